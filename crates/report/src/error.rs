//! Errors of result files.

use crate::SCHEMA;
use std::io;
use std::path::PathBuf;

/// Error of reading, writing or drawing a result. The message names the file, the mistake and the
/// remedy.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The file could not be read.
    #[error("{}: cannot be read: {source}", path.display())]
    Read {
        /// The requested file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file could not be written.
    #[error("{}: cannot be written: {source}{}", path.display(), advice(source))]
    Write {
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file is not JSON, or not JSON of this shape.
    #[error("{}: not a result file: {source}; use the NAME.json that an experiment wrote", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// The parser's error, with line and column.
        source: serde_json::Error,
    },
    /// The file has another schema.
    #[error(
        "{}: schema {found}, but this program reads schema {SCHEMA}; \
         use the version of tailbound that wrote it, or run the experiment again",
        path.display()
    )]
    Schema {
        /// The file.
        path: PathBuf,
        /// The schema in the file.
        found: u64,
    },
    /// A histogram in the result is damaged.
    #[error("{place}: the histogram is damaged: {source}")]
    Histogram {
        /// File, variant and series.
        place: String,
        /// The error of the decoder.
        source: HistogramError,
    },
    /// A histogram cannot be written as a log.
    #[error("the log cannot be made: {0}")]
    Log(#[source] io::Error),
    /// The experiment's name cannot name a file.
    #[error("experiment {name:?} cannot name a file; use letters, digits, '-', '_' and '.'")]
    Name {
        /// The name.
        name: String,
    },
    /// No variant has the requested series.
    #[error("no series {name:?}; there are: {known}")]
    NoSeries {
        /// The requested name.
        name: String,
        /// The existing names.
        known: String,
    },
    /// The run has no such chart.
    #[error("no chart {name:?}; there are: {known}")]
    NoChart {
        /// The requested name.
        name: String,
        /// The existing names.
        known: String,
    },
    /// The drawing failed.
    #[error("cannot draw {series:?}: {reason}")]
    Drawing {
        /// The series or chart.
        series: String,
        /// The plotting library's error.
        reason: String,
    },
}

/// Returns the remedy for a file that could not be written, with what precedes it; empty if none is
/// known.
fn advice(error: &io::Error) -> &'static str {
    use io::ErrorKind as Kind;
    match error.kind() {
        Kind::StorageFull | Kind::QuotaExceeded => "; free some space there, or name another place",
        Kind::FileTooLarge => "; raise the limit on the size of files (ulimit -f)",
        Kind::NotFound => "; make its directory first",
        Kind::IsADirectory => "; name a file in it",
        Kind::PermissionDenied | Kind::ReadOnlyFilesystem => "; name a directory you may write to",
        _ => "",
    }
}

/// Reason why a text is not a histogram.
#[derive(Debug, thiserror::Error)]
pub enum HistogramError {
    /// Not base64.
    #[error("not base64: {0}")]
    Base64(#[from] base64::DecodeError),
    /// Shorter than its header, or than the length in its header.
    #[error("{found} bytes, but the header requires {wanted}")]
    Length {
        /// The required number of bytes.
        wanted: u64,
        /// The actual number of bytes.
        found: u64,
    },
    /// Compressed data that cannot be decompressed, or has more bytes than any histogram needs.
    #[error("the compressed part does not unpack: {0}")]
    Deflate(#[source] std::io::Error),
    /// Bounds or digits that a histogram cannot have.
    #[error("bounds {low} to {high} with {digits} significant digits are not possible")]
    Bounds {
        /// Lowest discernible value.
        low: u64,
        /// Highest trackable value.
        high: u64,
        /// Significant decimal digits.
        digits: u32,
    },
    /// Counts that do not fit the histogram.
    #[error("the counts do not fit its bounds")]
    Counts,
    /// Another encoding, or a feature that V2 files of this program never use.
    #[error("not a V2 HdrHistogram: {0}")]
    Encoding(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_advice_fits_the_cause() {
        for (number, advice) in [
            (28, "; free some space there, or name another place"),
            (13, "; name a directory you may write to"),
            (30, "; name a directory you may write to"),
            (2, "; make its directory first"),
            (5, " (os error 5)"),
        ] {
            let source = io::Error::from_raw_os_error(number);
            let path = "out/page.html".into();
            let message = ReportError::Write { path, source }.to_string();
            assert!(message.ends_with(advice), "{message}");
        }
    }
}

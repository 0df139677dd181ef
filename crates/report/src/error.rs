//! What can be wrong with a result file.

use crate::SCHEMA;
use std::io;
use std::path::PathBuf;

/// Why a result could not be read, written or drawn. The message names the
/// file, what was wrong and what would be right.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The file could not be read.
    #[error("{}: cannot be read: {source}", path.display())]
    Read {
        /// The file that was asked for.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file could not be written.
    #[error("{}: cannot be written: {source}{}", path.display(), advice(source))]
    Write {
        /// The file or directory that was to be written.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file is not JSON, or not JSON of this shape.
    #[error("{}: not a result file: {source}; give the NAME.json that an experiment wrote", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What the parser said, with line and column.
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
        /// The schema it says it has.
        found: u64,
    },
    /// A histogram in the result is damaged.
    #[error("{place}: the histogram is damaged: {source}")]
    Histogram {
        /// File, variant and series.
        place: String,
        /// What is wrong with it.
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
    /// A series that is in no variant was asked for.
    #[error("no series {name:?}; there are: {known}")]
    NoSeries {
        /// The name that was asked for.
        name: String,
        /// The names there are.
        known: String,
    },
    /// A chart that the run does not have was asked for.
    #[error("no chart {name:?}; there are: {known}")]
    NoChart {
        /// The name that was asked for.
        name: String,
        /// The names there are.
        known: String,
    },
    /// The drawing failed.
    #[error("cannot draw {series:?}: {reason}")]
    Drawing {
        /// The series or chart.
        series: String,
        /// What the plotting library said.
        reason: String,
    },
}

/// The remedy for a file that could not be written, with what precedes it; empty if none is known.
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

/// Why a text is not a histogram.
#[derive(Debug, thiserror::Error)]
pub enum HistogramError {
    /// Not base64.
    #[error("not base64: {0}")]
    Base64(#[from] base64::DecodeError),
    /// Shorter than its header, or than its header says.
    #[error("{found} bytes where the header asks for {wanted}")]
    Length {
        /// How many bytes there should be.
        wanted: u64,
        /// How many there are.
        found: u64,
    },
    /// Compressed data that does not unpack, or unpacks to more than any histogram needs.
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

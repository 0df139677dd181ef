//! `HdrHistogram` interval logs, version 1.3: what `HistogramLogProcessor` and the
//! project's plotters read.

use crate::exit::Failure;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};
use std::fs::File;
use std::io::{self, Write as _};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use tailbound_units::Nanos;

/// A log that is being written, one interval a line, tagged with what it is of.
#[derive(Debug)]
pub(super) struct Log {
    path: PathBuf,
    file: File,
}

impl Log {
    /// Makes the file, whose times count from `start`.
    pub(super) fn create(path: PathBuf, start: SystemTime) -> Result<Self, Failure> {
        let head = |path| -> io::Result<File> {
            let mut file = File::create(path)?;
            let start = super::document::unix(start);
            writeln!(file, "#[tailbound probe: times in ns]")?;
            writeln!(file, "#[Histogram log format version 1.3]")?;
            writeln!(file, "#[StartTime: {start:.3} (seconds since epoch)]")?;
            writeln!(file, "#[BaseTime: {start:.3} (seconds since epoch)]")?;
            let columns =
                "StartTimestamp,Interval_Length,Interval_Max,Interval_Compressed_Histogram";
            writeln!(file, "\"{}\"", columns.replace(',', "\",\""))?;
            Ok(file)
        };
        match head(&path) {
            Ok(file) => Ok(Self { path, file }),
            Err(error) => Err(failed(&path, &error)),
        }
    }

    /// Writes the times of one interval, counted from the start; nothing if there
    /// are none.
    pub(super) fn write(
        &mut self,
        tag: &str,
        span: Range<Nanos>,
        times: &Histogram<u64>,
    ) -> Result<(), Failure> {
        if times.is_empty() {
            return Ok(());
        }
        let length = span.end.since(span.start);
        // Without a head: that is there already.
        let written = IntervalLogWriterBuilder::new()
            .begin_log_with(&mut self.file, &mut V2DeflateSerializer::new())
            .and_then(|mut log| {
                log.write_histogram(times, span.start.into(), length.into(), Tag::new(tag))
                    .map_err(|error| io::Error::other(error.to_string()))
            });
        written.map_err(|error| failed(&self.path, &error))
    }
}

fn failed(path: &Path, error: &io::Error) -> Failure {
    Failure::new(format!("{}: {error}", path.display()))
}

//! `HdrHistogram` interval logs, version 1.3: what `HistogramLogProcessor` and the
//! project's plotters read.

use super::error::ProbeError;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};
use std::fs::File;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};
use tailbound_units::Nanos;

/// A log that is being written, one interval a line, tagged with its vCPU.
#[derive(Debug)]
pub(super) struct Log {
    path: PathBuf,
    file: File,
    /// When the interval that is written next began.
    began: Nanos,
    /// The end of the intervals written last.
    ended: Nanos,
}

impl Log {
    /// Makes the file, whose times count from `start`.
    pub(super) fn create(path: PathBuf, start: SystemTime) -> Result<Self, ProbeError> {
        let head = |path| -> io::Result<File> {
            let mut file = File::create(path)?;
            let start = start
                .duration_since(SystemTime::UNIX_EPOCH)
                .unwrap_or_default()
                .as_secs_f64();
            writeln!(file, "#[tailbound probe: how long sleeps took, in ns]")?;
            writeln!(file, "#[Histogram log format version 1.3]")?;
            writeln!(file, "#[StartTime: {start:.3} (seconds since epoch)]")?;
            writeln!(file, "#[BaseTime: {start:.3} (seconds since epoch)]")?;
            let columns =
                "StartTimestamp,Interval_Length,Interval_Max,Interval_Compressed_Histogram";
            writeln!(file, "\"{}\"", columns.replace(',', "\",\""))?;
            Ok(file)
        };
        match head(&path) {
            Ok(file) => Ok(Self {
                path,
                file,
                began: Nanos::ZERO,
                ended: Nanos::ZERO,
            }),
            Err(source) => Err(ProbeError::Log { path, source }),
        }
    }

    /// Writes the sleeps of one vCPU in the interval that ended `at`, counted from
    /// the start; nothing if there were none.
    pub(super) fn write(
        &mut self,
        cpu: u32,
        at: Nanos,
        sleeps: &Histogram<u64>,
    ) -> Result<(), ProbeError> {
        if at > self.ended {
            self.began = std::mem::replace(&mut self.ended, at);
        }
        if sleeps.is_empty() {
            return Ok(());
        }
        let tag = format!("cpu{cpu}");
        let (began, length) = (self.began, at.since(self.began));
        // Without a head: that is there already.
        let written = IntervalLogWriterBuilder::new()
            .begin_log_with(&mut self.file, &mut V2DeflateSerializer::new())
            .and_then(|mut log| {
                log.write_histogram(
                    sleeps,
                    Duration::from(began),
                    Duration::from(length),
                    Tag::new(&tag),
                )
                .map_err(|error| io::Error::other(error.to_string()))
            });
        written.map_err(|source| ProbeError::Log {
            path: self.path.clone(),
            source,
        })
    }
}

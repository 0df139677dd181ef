//! The file of a probe's interval log.

use crate::exit::Failure;
use hdrhistogram::Histogram;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use tailbound_report::IntervalLog;
use tailbound_units::Nanos;

/// A log during writing, one interval a line, tagged with its subject.
#[derive(Debug)]
pub(super) struct Log {
    path: PathBuf,
    log: IntervalLog<File>,
}

impl Log {
    /// Creates the file, whose times count from `start`.
    pub(super) fn create(path: PathBuf, start: SystemTime) -> Result<Self, Failure> {
        let start = super::document::unix(start);
        let log =
            File::create(&path).and_then(|file| IntervalLog::begin(file, "tailbound probe", start));
        match log {
            Ok(log) => Ok(Self { path, log }),
            Err(error) => Err(failed(&path, &error)),
        }
    }

    /// Writes the times of one interval, counted from the start, if there are any.
    pub(super) fn write(
        &mut self,
        tag: &str,
        span: Range<Nanos>,
        times: &Histogram<u64>,
    ) -> Result<(), Failure> {
        let written = self
            .log
            .write(tag, span.start.into()..span.end.into(), times);
        written.map_err(|error| failed(&self.path, &error))
    }
}

fn failed(path: &Path, error: &io::Error) -> Failure {
    Failure::new(format!("{}: {error}", path.display()))
}

//! The program under test: command lines in a directory, and their exit codes and output.

// Each test file uses its own part of this.
#![allow(dead_code)]

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as BASE64;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;
use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_tailbound");

/// Returns the program without settings from the environment of the tests.
pub(crate) fn tailbound() -> Command {
    let mut command = Command::new(PROGRAM);
    for variable in ["URL", "TOKEN_FILE", "CA", "LOG"] {
        command.env_remove(format!("TAILBOUND_{variable}"));
    }
    command.env_remove("COLUMNS").env("NO_COLOR", "1");
    // Results of different runs are the same.
    command.env("SOURCE_DATE_EPOCH", "1000000000");
    command
}

/// Divides a command line at white space, except between two apostrophes.
pub(crate) fn words(line: &str) -> Vec<&str> {
    let parts = line.split('\'').enumerate();
    let words = parts.map(|(number, part)| match number % 2 {
        0 => part.split_whitespace().collect(),
        _ => vec![part],
    });
    words.collect::<Vec<_>>().concat()
}

/// Runs a command line in a directory.
pub(crate) fn run(directory: &Path, line: &str) -> CommandOutput {
    let mut command = tailbound();
    command.args(words(line)).current_dir(directory);
    CommandOutput::new(command.output().unwrap())
}

/// Runs a command line that needs no files.
pub(crate) fn run_anywhere(line: &str) -> CommandOutput {
    run(Path::new("."), line)
}

/// A directory with the files of a test.
pub(crate) struct Folder(TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        std::fs::write(self.join(name), text).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.join(name)).unwrap()
    }

    /// Runs a command line of the program here.
    pub(crate) fn run(&self, line: &str) -> CommandOutput {
        run(self.path(), line)
    }
}

/// The exit code and the output of a command.
#[derive(Debug)]
pub(crate) struct CommandOutput {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl CommandOutput {
    pub(crate) fn new(output: Output) -> Self {
        Self {
            code: output.status.code(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// The output of what must have worked.
    #[track_caller]
    pub(crate) fn done(self) -> String {
        self.ended(0).out
    }

    /// The output as JSON. The exit code may be any.
    #[track_caller]
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The complaint of what must have ended with `code`.
    #[track_caller]
    pub(crate) fn failed(self, code: i32) -> String {
        self.ended(code).err
    }

    /// Checks the exit code.
    #[track_caller]
    pub(crate) fn ended(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:?}");
        self
    }
}

/// Returns the histograms of an `HdrHistogram` log, each with its tag.
pub(crate) fn histograms(log: &str) -> Vec<(String, Histogram<u64>)> {
    let entries = IntervalLogIterator::new(log.as_bytes());
    let intervals = entries.filter_map(|entry| match entry.unwrap() {
        LogEntry::Interval(interval) => Some(interval),
        _ => None,
    });
    let histograms = intervals.map(|interval| {
        let bytes = BASE64.decode(interval.encoded_histogram()).unwrap();
        let histogram = Deserializer::new().deserialize(&mut bytes.as_slice());
        let tag = interval.tag().unwrap().as_str().to_owned();
        (tag, histogram.unwrap())
    });
    histograms.collect()
}

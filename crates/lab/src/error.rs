//! What can go wrong with a run.

use std::io;
use std::path::PathBuf;
use tailbound_agent::AgentError;
use tailbound_experiment::{ExperimentError, TraceError};
use tailbound_report::ReportError;
use tailbound_sys::user_namespace::EnterError;

/// Why a run has no result.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The experiment is of no use.
    #[error(transparent)]
    Experiment(#[from] ExperimentError),
    /// A variant was asked for that the experiment does not have.
    #[error("{0}")]
    UnknownVariant(String),
    /// Another one runs.
    #[error(
        "another lab runs on this machine{}: two would measure each other; wait until it is over",
        pid.map_or(String::new(), |pid| format!(" (process {pid})"))
    )]
    Busy {
        /// Its process, where that can be seen.
        pid: Option<u32>,
    },
    /// No namespaces.
    #[error(
        "{0}\nThe lab needs namespaces of its own: `tailbound doctor` says what this machine allows and how to mend it"
    )]
    Enter(#[from] EnterError),
    /// A program that the lab needs is not there.
    #[error("{program} is not installed: apt-get install {package}")]
    Missing {
        /// The program.
        program: &'static str,
        /// Debian's package.
        package: &'static str,
    },
    /// A recorded video is of no use.
    #[error("{path}: {wrong}")]
    Trace {
        /// Its file.
        path: PathBuf,
        /// What is wrong with it.
        wrong: TraceError,
    },
    /// A command that builds the data centre failed.
    #[error("{command}: {message}")]
    Build {
        /// The command.
        command: String,
        /// What it said.
        message: String,
    },
    /// Guests could not be given their class.
    #[error(transparent)]
    Class(#[from] AgentError),
    /// A child died, or did not become ready.
    #[error("{who} {what}{}", tail(.stderr))]
    Child {
        /// Which one.
        who: String,
        /// What happened to it.
        what: String,
        /// The end of what it said.
        stderr: String,
    },
    /// A system call or a file of the run failed.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// Why it failed.
        source: io::Error,
    },
    /// The result could not be written.
    #[error(transparent)]
    Report(#[from] ReportError),
    /// A signal ended it.
    #[error("interrupted; everything that was built is gone")]
    Interrupted {
        /// Its number.
        signal: usize,
    },
}

fn tail(stderr: &str) -> String {
    if stderr.is_empty() {
        String::new()
    } else {
        format!("; the last it said:\n{stderr}")
    }
}

impl LabError {
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }

    pub(crate) fn file(what: &str, path: &std::path::Path) -> impl FnOnce(io::Error) -> Self {
        Self::io(format!("{what} {}", PathBuf::from(path).display()))
    }
}

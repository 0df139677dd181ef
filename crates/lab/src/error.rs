//! Errors of a run.

use std::io;
use std::path::PathBuf;
use tailbound_agent::AgentError;
use tailbound_experiment::{ExperimentError, TraceError};
use tailbound_report::ReportError;
use tailbound_sys::user_namespace::EnterError;

/// Reason for a run without a result.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The experiment is invalid.
    #[error(transparent)]
    Experiment(#[from] ExperimentError),
    /// The experiment does not have the requested variant.
    #[error("{0}")]
    UnknownVariant(String),
    /// Another lab is running.
    #[error(
        "another lab runs on this machine{}: two would measure each other; wait until it is over",
        pid.map_or(String::new(), |pid| format!(" (process {pid})"))
    )]
    Busy {
        /// Its process ID, if visible.
        pid: Option<u32>,
    },
    /// Namespaces are not available.
    #[error(
        "{0}\nThe lab needs namespaces of its own: `tailbound doctor` reports what this computer permits, and the remedy"
    )]
    Enter(#[from] EnterError),
    /// A program that the lab needs is not installed.
    #[error("{program} is not installed: apt-get install {package}")]
    Missing {
        /// The program.
        program: &'static str,
        /// Debian's package.
        package: &'static str,
    },
    /// A recorded video is invalid.
    #[error("{path}: {wrong}")]
    Trace {
        /// Its file.
        path: PathBuf,
        /// The mistake in it.
        wrong: TraceError,
    },
    /// A command that builds the data centre failed.
    #[error("{command}: {message}")]
    Build {
        /// The command.
        command: String,
        /// Its error message.
        message: String,
    },
    /// The agent could not set the class of guests.
    #[error(transparent)]
    Class(#[from] AgentError),
    /// A child process died, or did not become ready.
    #[error("{who} {what}{}", tail(.stderr))]
    Child {
        /// Name of the child.
        who: String,
        /// Description of the failure.
        what: String,
        /// The end of its standard error.
        stderr: String,
    },
    /// A system call or a file operation of the run failed.
    #[error("{what}: {source}")]
    Io {
        /// The attempted operation.
        what: String,
        /// Cause of the failure.
        source: io::Error,
    },
    /// The result could not be written.
    #[error(transparent)]
    Report(#[from] ReportError),
    /// A signal ended the run.
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
    pub(crate) fn io(action: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let action = action.into();
        move |source| Self::Io {
            what: action,
            source,
        }
    }

    pub(crate) fn file(action: &str, path: &std::path::Path) -> impl FnOnce(io::Error) -> Self {
        Self::io(format!("{action} {}", PathBuf::from(path).display()))
    }
}

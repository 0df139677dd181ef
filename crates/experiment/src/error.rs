//! Errors of experiments.

use tailbound_document::{DocumentError, Mistake};
use tailbound_report::ReportError;

/// Reason of an experiment without a result.
#[derive(Debug, thiserror::Error)]
pub enum ExperimentError {
    /// There is no experiment with this name.
    #[error("there is no experiment {name:?}; name a file, or one of {known}")]
    Unknown {
        /// The requested name.
        name: String,
        /// The experiments that come with the program.
        known: String,
    },
    /// Its file cannot be read, or has mistakes: one line for each.
    #[error(transparent)]
    Document(#[from] DocumentError),
    /// A run could not be started, or did not end.
    #[error("variant {variant}: {message}")]
    Run {
        /// The variant.
        variant: String,
        /// The error message.
        message: String,
    },
    /// The result could not be written.
    #[error(transparent)]
    Report(#[from] ReportError),
}

impl ExperimentError {
    /// Returns the error for the mistakes of a file.
    pub fn mistakes(file: &str, mistakes: Vec<Mistake>) -> Self {
        let path = file.into();
        DocumentError::Mistakes { path, mistakes }.into()
    }

    /// Returns the mistakes without their locations, for a text without a file.
    pub fn messages(&self) -> Vec<String> {
        match self {
            Self::Document(DocumentError::Mistakes { mistakes, .. }) => {
                mistakes.iter().map(|it| it.message.clone()).collect()
            }
            other => vec![other.to_string()],
        }
    }

    /// Returns the error of a run of `variant`.
    #[expect(clippy::needless_pass_by_value, reason = "errors end here")]
    pub fn run(variant: &str, message: impl ToString) -> Self {
        Self::Run {
            variant: variant.to_owned(),
            message: message.to_string(),
        }
    }
}

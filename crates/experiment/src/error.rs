//! Why an experiment has no result.

use tailbound_document::{DocumentError, Mistake};
use tailbound_report::ReportError;

/// Why an experiment has no result.
#[derive(Debug, thiserror::Error)]
pub enum ExperimentError {
    /// There is no such experiment.
    #[error("there is no experiment {name:?}; name a file, or one of {known}")]
    Unknown {
        /// What was asked for.
        name: String,
        /// The experiments that come with the program.
        known: String,
    },
    /// Its file cannot be read, or has mistakes: a line for each.
    #[error(transparent)]
    Document(#[from] DocumentError),
    /// A run could not be made, or came to no end.
    #[error("variant {variant}: {message}")]
    Run {
        /// The variant.
        variant: String,
        /// What went wrong.
        message: String,
    },
    /// The result could not be written.
    #[error(transparent)]
    Report(#[from] ReportError),
}

impl ExperimentError {
    /// The mistakes of a file.
    pub fn mistakes(file: &str, mistakes: Vec<Mistake>) -> Self {
        let path = file.into();
        DocumentError::Mistakes { path, mistakes }.into()
    }

    /// What is wrong, without where: the mistakes of a text that no file has.
    pub fn messages(&self) -> Vec<String> {
        match self {
            Self::Document(DocumentError::Mistakes { mistakes, .. }) => {
                mistakes.iter().map(|it| it.message.clone()).collect()
            }
            other => vec![other.to_string()],
        }
    }

    /// A run of `variant` that could not be made.
    #[expect(clippy::needless_pass_by_value, reason = "errors end here")]
    pub fn run(variant: &str, message: impl ToString) -> Self {
        Self::Run {
            variant: variant.to_owned(),
            message: message.to_string(),
        }
    }
}

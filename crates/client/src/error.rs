//! What can go wrong between a client and the service.

use std::path::PathBuf;
use tailbound_api::{Code, Problem};

/// Why there is no answer, or none that helps.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The service says no.
    #[error("{0}")]
    Problem(Problem),
    /// Nobody answers, of whom each was tried. Whether a change was made is not
    /// known.
    #[error("cannot reach the placement service {}", listed(.0))]
    Unreachable(Vec<Away>),
    /// There is no trust between the two.
    #[error("cannot talk TLS with {url}: {why}")]
    Tls {
        /// Where it was to be.
        url: String,
        /// What happened, and what may help.
        why: String,
    },
    /// There is an answer, but not one of the placement service.
    #[error("{url} is not a placement service that this version knows: {what}")]
    Unexpected {
        /// What was asked.
        url: String,
        /// What came.
        what: String,
    },
    /// Nothing was asked yet.
    #[error(transparent)]
    Settings(#[from] SettingsError),
}

impl ClientError {
    /// The kind, if the service itself said no.
    pub fn code(&self) -> Option<Code> {
        match self {
            Self::Problem(problem) => Some(problem.code),
            _ => None,
        }
    }

    /// One error for two replicas that may answer later. Who says so itself is
    /// heard before who says nothing.
    pub(crate) fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Unreachable(mut all), Self::Unreachable(more)) => {
                all.extend(more);
                Self::Unreachable(all)
            }
            (Self::Unreachable(_), said) | (said, _) => said,
        }
    }
}

/// A replica that does not answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Away {
    /// Where it was to be.
    pub url: String,
    /// What happened.
    pub why: String,
}

fn listed(all: &[Away]) -> String {
    let all = all
        .iter()
        .map(|Away { url, why }| format!("at {url}: {why}"));
    all.collect::<Vec<_>>().join("; ")
}

/// Why a service cannot even be asked.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// The address is none.
    #[error("{url:?} is no address of a placement service: {why}")]
    Url {
        /// What was given.
        url: String,
        /// What is wrong with it, and what would be right.
        why: &'static str,
    },
    /// The file with the token or the CA cannot be used.
    #[error("{path}: {why}", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A token would be read by everyone on the way.
    #[error("a token is not sent to {url} without TLS; use https://, or a service on this machine")]
    PlainToken {
        /// Where it would have been sent.
        url: String,
    },
    /// The system has no randomness.
    #[error("no randomness for an idempotency key: {0}")]
    Randomness(String),
}

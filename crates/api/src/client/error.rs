//! Errors between a client and the service.

use crate::{Code, Problem};
use std::path::PathBuf;

/// Failure of a request.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The service refuses the request.
    #[error("{0}")]
    Problem(Problem),
    /// Every replica was tried and none answers. It is not known whether a change was made.
    #[error("cannot reach the placement service {}", listed(.0))]
    Unreachable(Vec<UnreachableReplica>),
    /// TLS failed, for example because the certificate is not trusted.
    #[error("cannot talk TLS with {url}: {why}")]
    Tls {
        /// The service's address.
        url: String,
        /// Description of the failure, and a possible remedy.
        why: String,
    },
    /// The answer is not one of a placement service.
    #[error("{url} is not a placement service that this version knows: {what}")]
    Unexpected {
        /// The requested URL.
        url: String,
        /// Description of the received answer.
        what: String,
    },
    /// The settings cannot be used; nothing was sent.
    #[error(transparent)]
    Settings(#[from] SettingsError),
}

impl ClientError {
    /// Returns the kind of the error if the service itself refused.
    pub fn code(&self) -> Option<Code> {
        match self {
            Self::Problem(problem) => Some(problem.code),
            _ => None,
        }
    }

    /// Joins the errors of two replicas that may answer later. An answer counts more than none.
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
pub struct UnreachableReplica {
    /// Address of the replica.
    pub url: String,
    /// Description of the failure.
    pub why: String,
}

fn listed(all: &[UnreachableReplica]) -> String {
    let all = all
        .iter()
        .map(|UnreachableReplica { url, why }| format!("at {url}: {why}"));
    all.collect::<Vec<_>>().join("; ")
}

/// Mistake in the settings of a client.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// The address is not a URL of a service.
    #[error("{url:?} is no address of a placement service: {why}")]
    Url {
        /// The address.
        url: String,
        /// Description of the mistake, and a correct value.
        why: &'static str,
    },
    /// The file with the token or the CA cannot be used.
    #[error("{path}: {why}", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Description of the mistake.
        why: String,
    },
    /// The token would be sent in the clear over a network.
    #[error("a token is not sent to {url} without TLS; use https://, or a service on this machine")]
    PlainToken {
        /// The address.
        url: String,
    },
    /// The system provides no randomness.
    #[error("no randomness for an idempotency key: {0}")]
    Randomness(String),
}

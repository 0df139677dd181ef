//! The errors of a plugin, as JSON on its standard output.

use super::super::journal::JournalError;
use serde_json::json;

/// The numbers of errors. Those below 100 are the specification's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub enum Code {
    /// The version of the protocol is not known.
    Version = 1,
    /// A key of the network configuration is not known.
    UnknownKey = 2,
    /// A variable of the environment is missing or wrong.
    Environment = 4,
    /// A file or the kernel failed.
    Failed = 5,
    /// The input is no JSON.
    Json = 6,
    /// A value of the configuration is wrong.
    Configuration = 7,
    /// Another process is at work.
    Later = 11,
    /// No container can be protected on this host.
    NotReady = 50,
    /// No container can be protected, and some of the network's were.
    NotReadyAnyMore = 51,
    /// The container is refused; nothing has changed.
    Refused = 100,
    /// A container's protection is not as it was.
    Changed = 101,
}

/// Reason why a plugin failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}: {details}")]
pub struct CniError {
    pub(super) code: Code,
    pub(super) message: String,
    pub(super) details: String,
}

impl CniError {
    pub(super) fn new(
        code: Code,
        message: impl Into<String>,
        details: impl std::fmt::Display,
    ) -> Self {
        Self {
            code,
            message: message.into(),
            details: details.to_string(),
        }
    }

    /// Returns the JSON document for a configuration of this version.
    pub(super) fn document(&self, version: &str) -> String {
        let document = json!({
            "cniVersion": version,
            "code": self.code as u16,
            "msg": self.message,
            "details": self.details,
        });
        format!("{document:#}\n")
    }
}

impl From<JournalError> for CniError {
    fn from(error: JournalError) -> Self {
        let code = match error {
            JournalError::Busy { .. } => Code::Later,
            JournalError::File { .. } | JournalError::Content { .. } => Code::Failed,
        };
        Self::new(code, "the journal of adoptions cannot be used", error)
    }
}

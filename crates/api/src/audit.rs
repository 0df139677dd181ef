//! The audit: an entry for each change of the service, and for refused ones.

use crate::enforcement::is_zero;
use serde::{Deserialize, Serialize};

/// The caller of a change.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AuditCaller {
    /// The name of the caller's token; `service` if the service itself made the change.
    pub token: String,
    /// The role of the token, with its owner or host.
    pub role: String,
    /// The `X-Request-Id` of the answer; absent if there was no request.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub request: String,
}

/// The outcome of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum AuditOutcome {
    /// The change was made. Its entry is a part of the same transaction.
    Done,
    /// The change was refused, and nothing was changed.
    Refused,
}

impl AuditOutcome {
    /// Returns the word of this outcome in JSON.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Refused => "refused",
        }
    }
}

/// A change, or a refused one.
///
/// Each entry has a digest of itself and of the entry before, so that a changed or missing entry is
/// detected.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AuditEntry {
    /// The number of the entry; numbers rise by one.
    pub number: u64,
    /// The time of the decision by the leader's clock, in milliseconds since 1970.
    pub at_ms: u64,
    /// The caller.
    pub caller: AuditCaller,
    /// The kind of the change, such as `create`.
    pub command: String,
    /// The owners whose tenants the change concerns.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub owners: Vec<String>,
    /// The object of the change, and the requested state.
    pub what: String,
    /// The state before.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub before: String,
    /// The state after the change, or the reason of the refusal.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub after: String,
    /// The outcome.
    pub outcome: AuditOutcome,
    /// The number of further refused requests of this caller that have no entry of their own.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more: u64,
    /// SHA-256 of the digest of the entry before (64 hexadecimal digits, none for the first entry)
    /// and of this entry as JSON with an empty digest.
    pub digest: String,
}

/// A line of the stream of the audit: an entry, or none every ten seconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AuditLine {
    /// The entry; absent in a heartbeat line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entry: Option<AuditEntry>,
    /// The number up to which everything was sent: the `since` of a stream that continues.
    pub number: u64,
    /// The revision of the replica that sent the line.
    pub revision: u64,
    /// An upper bound on the age of this line in milliseconds: the time since the last proof that the replica
    /// has all of the store.
    pub age_ms: u64,
}

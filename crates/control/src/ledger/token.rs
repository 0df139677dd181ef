//! The record of an issued token.

use serde::{Deserialize, Serialize};
use tailbound_api::{AuditCaller, TokenRole, is_name};

/// The SHA-256 of a token's secret.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TokenHash(pub [u8; 32]);

/// The text is not 64 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this is not 64 hexadecimal digits")]
pub struct NoTokenHash;

/// A token as the store keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenRecord {
    /// The name, unique in the store.
    pub name: String,
    /// The role.
    pub role: TokenRole,
    /// The owner, for the role `tenant`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The host, for the role `host`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The hash of the secret.
    pub sha256: TokenHash,
    /// The end of its validity, in seconds since 1970; None has no end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<u64>,
    /// The time at which it was issued, in seconds since 1970.
    pub issued: u64,
    /// The caller that issued it.
    pub issued_by: AuditCaller,
}

impl std::str::FromStr for TokenHash {
    type Err = NoTokenHash;

    fn from_str(text: &str) -> Result<Self, NoTokenHash> {
        if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(NoTokenHash);
        }
        let mut hash = [0; 32];
        for (byte, digits) in hash.iter_mut().zip(text.as_bytes().chunks(2)) {
            let digits = std::str::from_utf8(digits).map_err(|_| NoTokenHash)?;
            *byte = u8::from_str_radix(digits, 16).map_err(|_| NoTokenHash)?;
        }
        Ok(Self(hash))
    }
}

impl TryFrom<String> for TokenHash {
    type Error = NoTokenHash;

    fn try_from(text: String) -> Result<Self, NoTokenHash> {
        text.parse()
    }
}

impl From<TokenHash> for String {
    fn from(hash: TokenHash) -> Self {
        hash.to_string()
    }
}

impl std::fmt::Display for TokenHash {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0
            .iter()
            .try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

impl std::fmt::Debug for TokenHash {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, formatter)
    }
}

impl TokenRecord {
    /// Returns whether the token is not valid any more.
    pub const fn has_expired(&self, now: u64) -> bool {
        match self.expires {
            Some(end) => now >= end,
            None => false,
        }
    }

    /// Returns the role with its owner or host, as the audit names it.
    pub fn rights(&self) -> String {
        let scope = self.owner.as_deref().or(self.host.as_deref());
        let role = self.role.word();
        scope.map_or_else(|| role.to_owned(), |scope| format!("{role} {scope}"))
    }
}

/// Checks that a role has its owner or host, and nothing else.
///
/// # Errors
/// The wrong part, and what would be right.
pub(crate) fn check_scope(
    role: TokenRole,
    owner: Option<&str>,
    host: Option<&str>,
) -> Result<(), (&'static str, &'static str)> {
    match (role, owner, host) {
        (
            TokenRole::Operator | TokenRole::Maintenance | TokenRole::Viewer | TokenRole::Metrics,
            None,
            None,
        )
        | (TokenRole::Host, None, Some(_)) => Ok(()),
        (
            TokenRole::Operator | TokenRole::Maintenance | TokenRole::Viewer | TokenRole::Metrics,
            ..,
        ) => Err((
            "role",
            "only the roles tenant and host have an owner or a host",
        )),
        (TokenRole::Tenant, Some(owner), None) if is_name(owner) => Ok(()),
        (TokenRole::Tenant, Some(_), None) => Err((
            "owner",
            "an owner is 1 to 63 of a-z, 0-9 and -, neither first nor last a -",
        )),
        (TokenRole::Tenant, ..) => Err(("role", "a tenant's token has an owner and no host")),
        (TokenRole::Host, ..) => Err(("role", "a host's token has a host and no owner")),
    }
}

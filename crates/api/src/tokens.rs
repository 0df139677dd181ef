//! Tokens that the service issues and revokes.

use serde::{Deserialize, Serialize};

/// The role of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum TokenRole {
    /// All requests.
    Operator,
    /// Reads as a viewer; drains and restores hosts.
    Maintenance,
    /// Reads everything except secrets.
    Viewer,
    /// Reads the metrics.
    Metrics,
    /// Requests about the tenants of one owner.
    Tenant,
    /// Requests of one host.
    Host,
}

impl TokenRole {
    /// Returns the word of this role in JSON.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Operator => "operator",
            Self::Maintenance => "maintenance",
            Self::Viewer => "viewer",
            Self::Metrics => "metrics",
            Self::Tenant => "tenant",
            Self::Host => "host",
        }
    }
}

/// A request for a token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewToken {
    /// The token's name in lists, in the audit and in the log: 1 to 63 of a-z, 0-9 and -, neither
    /// first nor last a -.
    #[cfg_attr(
        feature = "openapi",
        schema(pattern = "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")
    )]
    pub name: String,
    /// The role.
    pub role: TokenRole,
    /// The owner of the tenants; for the role `tenant` only. The default is the caller's owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The host; for the role `host` only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The end of the token's validity by the service's clock, such as `2027-01-31T00:00:00Z`.
    /// Without it, the token ends with the caller's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(format = DateTime))]
    pub expires: Option<String>,
}

/// A token that the service issued. Its secret is not kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Token {
    /// The name.
    pub name: String,
    /// The role.
    pub role: TokenRole,
    /// The owner, for the role `tenant`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The host, for the role `host`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The end of its validity; absent if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(format = DateTime))]
    pub expires: Option<String>,
    /// The time at which it was issued.
    #[cfg_attr(feature = "openapi", schema(format = DateTime))]
    pub issued: String,
    /// The name of the token that issued it; empty for a tenant's token that another role's issued.
    pub issued_by: String,
}

/// A new token with its secret, which is shown this once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct IssuedToken {
    /// The token.
    pub token: Token,
    /// The secret: 64 hexadecimal digits, for `Authorization: Bearer SECRET`.
    pub secret: String,
}

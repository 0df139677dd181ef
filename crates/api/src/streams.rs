//! Lines of streams that continue from a revision, and quotas.

use crate::{Host, HostLine, Tenant};
use serde::{Deserialize, Serialize};
use tailbound_placement::TenantId;
use tailbound_units::Rate;

/// A line of the stream of a host, with the age of its replica.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AgedHostLine {
    /// The line.
    #[serde(flatten)]
    pub line: HostLine,
    /// An upper bound on the age of this line in milliseconds: the time since the last proof that the replica
    /// has all of the store.
    pub age_ms: u64,
}

/// A line of the stream of tenants.
///
/// A line without a tenant follows all others of its revision, and comes every ten seconds: all
/// changes up to its revision were sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TenantLine {
    /// The tenant as it is now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<Tenant>,
    /// The number of a tenant that was deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gone: Option<TenantId>,
    /// The revision of this state. A stream continues from the revision of a line without a tenant,
    /// which is its `since`.
    pub revision: u64,
    /// An upper bound on the age of this line in milliseconds: the time since the last proof that the replica
    /// has all of the store.
    pub age_ms: u64,
}

/// A line of the stream of hosts.
///
/// A line without a host follows all others of its revision, and comes every ten seconds: all
/// changes up to its revision were sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HostChangeLine {
    /// The host as it is now, without machines and ports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<Host>,
    /// True if hosts may have come and gone: list them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub topology: bool,
    /// The revision of this state. A stream continues from the revision of a line without a host,
    /// which is its `since`.
    pub revision: u64,
    /// An upper bound on the age of this line in milliseconds: the time since the last proof that the replica
    /// has all of the store.
    pub age_ms: u64,
}

/// The quota of an owner, and the part that is used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct OwnerQuota {
    /// The owner.
    pub owner: String,
    /// Limits for the owner's own tokens; an absent one is no limit.
    pub quota: QuotaLimits,
    /// The use by all tenants of the owner.
    pub used: QuotaUse,
}

/// Limits on the sum of an owner's tenants.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct QuotaLimits {
    /// The number of tenants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenants: Option<u64>,
    /// The number of machines of all tenants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vms: Option<u64>,
    /// The sum of the guaranteed bandwidths of all machines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bandwidth: Option<Rate>,
    /// The number of open reservations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reservations: Option<u64>,
}

/// The sum of an owner's tenants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct QuotaUse {
    /// The number of tenants.
    pub tenants: u64,
    /// The number of machines of all tenants.
    pub vms: u64,
    /// The sum of the guaranteed bandwidths of all machines.
    pub bandwidth: Rate,
    /// The number of open reservations.
    pub reservations: u64,
}

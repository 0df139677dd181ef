//! Host reports, and the state of tenants' guarantees.

use crate::measurements::{HostMeasured, WorstMeasurements};
use serde::{Deserialize, Serialize};
use tailbound_classes::{Classes, ClassesSpec};
use tailbound_placement::{HostCpu, HostLimits, TenantId};

/// The request header with a host's time of day as it sent its report, in milliseconds since 1970. A
/// service of an earlier version ignores it.
pub const TIME_HEADER: &str = "tailbound-time-ms";

/// The report of a host, sent after each change and otherwise every ten seconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct HostReport {
    /// The revision of the guarantees in force on the host; 0 before the first ones.
    #[cfg_attr(feature = "openapi", schema(maximum = 9_007_199_254_740_991_u64))]
    pub revision: u64,
    /// The `change` of these guarantees: the number of the latest change of a tenant in them.
    #[cfg_attr(feature = "openapi", schema(maximum = 9_007_199_254_740_991_u64))]
    pub change: u64,
    /// The priority classes that the host sets on frames, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub classes: Option<ClassesSpec>,
    /// The limits of the host's pacer; absent if its uplink is not paced, so that it enforces no
    /// guarantee.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<HostLimits>,
    /// The CPU that the host offers for reservations, with its measured overheads; absent if it
    /// offers none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<HostCpu>,
    /// The guarantees that the host refuses, with one machine of each tenant.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<RefusedVm>,
    /// The guests with more CPU reserved than guaranteed, the largest first; the sum of all is in
    /// `cpu`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unpromised: Vec<UnpromisedGuest>,
    /// The moving machines that have arrived: `OWNER/NAME/NUMBER`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arrived: Vec<String>,
    /// The waiting times of packets with guarantees; absent if none were sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<HostMeasured>,
}

impl HostReport {
    /// Checks that every JSON parser reads the numbers exactly, and that the classes are valid.
    /// Returns the error.
    pub fn check(&self) -> Result<(), String> {
        /// The highest integer that every JSON parser reads exactly.
        const MAX_JSON_INTEGER: u64 = (1 << 53) - 1;
        if let Some(Err(error)) = self.classes.map(Classes::try_from) {
            return Err(format!("classes: {error}"));
        }
        if let Some(Err(error)) = self.cpu.map(|cpu| cpu.check()) {
            return Err(format!("cpu: {error}"));
        }
        if let Some(Err(error)) = self.measured.as_ref().map(HostMeasured::check) {
            return Err(error);
        }
        let tenants = self.refused.iter().map(|it| ("tenant", it.tenant.0));
        let all = [("revision", self.revision), ("change", self.change)];
        let mut all = all.into_iter().chain(tenants);
        match all.find(|(_, number)| *number > MAX_JSON_INTEGER) {
            Some((what, number)) => Err(format!("{what}: {number} is above {MAX_JSON_INTEGER}")),
            None => Ok(()),
        }
    }

    /// Returns the host's priority classes, if there are any and they are valid.
    pub fn classes(&self) -> Option<Classes> {
        self.classes?.try_into().ok()
    }
}

/// A machine whose guarantee its host refuses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RefusedVm {
    /// The tenant's number.
    #[cfg_attr(
        feature = "openapi",
        schema(value_type = u64, maximum = 9_007_199_254_740_991_u64)
    )]
    pub tenant: TenantId,
    /// The machine's name: `OWNER/NAME/NUMBER`.
    pub vm: String,
    /// The broken rule, as text.
    pub why: String,
}

/// A guest whose vCPUs have more CPU reserved than guaranteed, which admission does not count.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct UnpromisedGuest {
    /// The guest's name on its host.
    pub guest: String,
    /// The reserved and the guaranteed CPU, as text.
    pub what: String,
}

/// The state of a tenant's guarantee.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum TenantState {
    /// Everything is reserved, and each host has confirmed it. A tenant without a guarantee needs
    /// no confirmation.
    Admitted,
    /// Everything is reserved, but a host has not confirmed it yet.
    Pending,
    /// A host does not enforce the guarantee, or is silent.
    Degraded,
}

impl TenantState {
    /// Returns the value in JSON.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Admitted => "admitted",
            Self::Pending => "pending",
            Self::Degraded => "degraded",
        }
    }
}

/// The state of a tenant's guarantee on its hosts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Standing))]
pub struct TenantEnforcement {
    /// The worst state of its hosts.
    pub state: TenantState,
    /// The tenant's hosts in the order of the topology. In lists only the first sixteen hosts that
    /// do not enforce the guarantee.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<HostEnforcement>,
    /// Recent measurements of the tenant's hosts; absent without reports to this replica. Hosts
    /// report to the leader.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<WorstMeasurements>,
}

/// The state of a tenant's guarantee on one host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = HostStanding))]
pub struct HostEnforcement {
    /// The host.
    pub host: String,
    /// The state on this host.
    pub state: TenantState,
    /// The reason, if the guarantee is not confirmed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// The revision of the guarantees that the host follows; absent without a report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<u64>,
    /// The start of the host's silence, in seconds since 1970; absent if it reports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silent_since: Option<u64>,
}

/// The state of a host's reports.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Following {
    /// The host never reported.
    #[default]
    Unheard,
    /// The host follows and enforces all guarantees.
    Follows,
    /// The host follows, but refuses a guarantee.
    Refuses,
    /// The host sent no report for 30 s.
    Silent,
}

impl Following {
    /// Returns the value in JSON.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Unheard => "unheard",
            Self::Follows => "follows",
            Self::Refuses => "refuses",
            Self::Silent => "silent",
        }
    }
}

/// The last report of a host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HostWord {
    /// The state of the host's reports.
    pub following: Following,
    /// The revision of the guarantees that the host follows; absent without a report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<u64>,
    /// The start of the host's silence, in seconds since 1970; absent if it reports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silent_since: Option<u64>,
    /// The limits of the host's pacer; absent without a pacer or a report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<HostLimits>,
    /// The CPU that the host offers for reservations; absent if it offers none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<HostCpu>,
    /// The refused guarantees by tenant, or a reason for all of them. In lists only the first one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<UnenforcedGuarantee>,
    /// The guests with more CPU reserved than guaranteed, sixteen at most; not in lists.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unpromised: Vec<UnpromisedGuest>,
}

/// A guarantee that a host does not enforce.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Refused))]
pub struct UnenforcedGuarantee {
    /// The tenant's number; absent if the reason concerns all machines with a guarantee.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<TenantId>,
    /// The reason, as text.
    pub why: String,
}

/// A line of the stream of events.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Event {
    /// The revision of this state.
    pub revision: u64,
    /// The tenant whose state has changed; absent in a heartbeat line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<TenantEvent>,
    /// The number of lines that a slow reader lost, from services of earlier versions only.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub missed: u64,
    /// An upper bound on the age of this line in milliseconds: the time since the last proof that the replica
    /// has all of the store.
    #[serde(default)]
    pub age_ms: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
pub(crate) fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A tenant's new state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TenantEvent {
    /// The tenant's number.
    pub tenant: TenantId,
    /// The tenant's owner.
    pub owner: String,
    /// The tenant's name.
    pub name: String,
    /// The state.
    pub state: TenantState,
    /// The hosts that cause the state, sixteen at most, with reasons.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<HostEnforcement>,
}

//! What hosts say of themselves, and how it is with what tenants are promised.

use crate::measured::{HostMeasured, Measured};
use serde::{Deserialize, Serialize};
use tailbound_classes::{Classes, ClassesSpec};
use tailbound_placement::{HostCpu, HostLimits, TenantId};

/// What a host says of itself: with each change, and every ten seconds without one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct HostReport {
    /// The revision of the guarantees that are in force there; 0 before there were any.
    #[cfg_attr(feature = "openapi", schema(maximum = 9_007_199_254_740_991_u64))]
    pub revision: u64,
    /// The `change` of these guarantees: the latest change of a tenant that they are of.
    #[cfg_attr(feature = "openapi", schema(maximum = 9_007_199_254_740_991_u64))]
    pub change: u64,
    /// The classes that it gives frames; none where it gives none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub classes: Option<ClassesSpec>,
    /// What it can keep; none where nothing paces its uplink, so that it keeps no guarantee.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<HostLimits>,
    /// The CPU that it keeps for reservations, and what was measured there of what takes time
    /// beside them; none where it keeps none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<HostCpu>,
    /// What of these guarantees it does not keep: one machine of each tenant.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<RefusedVm>,
    /// The guests that have more CPU reserved than they are promised, the largest first; how much
    /// all of them have is in `cpu`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unpromised: Vec<UnpromisedGuest>,
    /// The machines that are to come to it and are there: `OWNER/NAME/NUMBER`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arrived: Vec<String>,
    /// How long packets waited there that something is promised for; none where nothing was sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<HostMeasured>,
}

impl HostReport {
    /// Checks that no number is higher than every reader of JSON takes, and that the classes keep
    /// their rules. Returns what is wrong.
    pub fn check(&self) -> Result<(), String> {
        const MOST: u64 = (1 << 53) - 1;
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
        match all.find(|(_, number)| *number > MOST) {
            Some((what, number)) => Err(format!("{what}: {number} is above {MOST}")),
            None => Ok(()),
        }
    }

    /// The classes that it gives frames, where it gives any and they keep their rules.
    pub fn classes(&self) -> Option<Classes> {
        self.classes?.try_into().ok()
    }
}

/// A machine whose guarantee its host does not keep.
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
    /// The rule that it breaks, in words.
    pub why: String,
}

/// A guest whose vCPUs have more CPU reserved than is promised: what nobody counts who admits others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct UnpromisedGuest {
    /// What its host calls it.
    pub guest: String,
    /// What it has, and what it is promised, in words.
    pub what: String,
}

/// Whether a tenant gets what it is promised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum TenantState {
    /// All is reserved, and each of its hosts says that it keeps it. Without a guarantee there is
    /// nothing to keep.
    Admitted,
    /// All is reserved, and a host has not said yet that it keeps it.
    Pending,
    /// A host does not keep it, or is silent.
    Degraded,
}

impl TenantState {
    /// Returns the word for it in JSON.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Admitted => "admitted",
            Self::Pending => "pending",
            Self::Degraded => "degraded",
        }
    }
}

/// How it is with what a tenant is promised.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Standing {
    /// The worst of its hosts'.
    pub state: TenantState,
    /// Its hosts, in the order of the tree. In lists only those that do not keep it, sixteen at
    /// most.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<HostStanding>,
    /// What its hosts measured lately beside what is promised; absent where they said nothing of it
    /// to the replica that is asked, which is the leader that they speak to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<Measured>,
}

/// How it is with what a tenant is promised on one host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HostStanding {
    /// The host.
    pub host: String,
    /// Whether it keeps it.
    pub state: TenantState,
    /// Why not, or not yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// The revision of the guarantees that the host follows; absent if it never said anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<u64>,
    /// Since when it is silent, in seconds since 1970; absent if it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silent_since: Option<u64>,
}

/// Whether a host follows its guarantees.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Following {
    /// It never said anything.
    #[default]
    Unheard,
    /// It does, and keeps all.
    Follows,
    /// It does, and does not keep something that is promised.
    Refuses,
    /// It said nothing for half a minute.
    Silent,
}

impl Following {
    /// Returns the word for it in JSON.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Unheard => "unheard",
            Self::Follows => "follows",
            Self::Refuses => "refuses",
            Self::Silent => "silent",
        }
    }
}

/// What a host said, and when it stopped.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HostWord {
    /// Whether it follows its guarantees.
    pub following: Following,
    /// The revision of those that it follows; absent if it never said anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<u64>,
    /// Since when it is silent, in seconds since 1970; absent if it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silent_since: Option<u64>,
    /// What it can keep; absent where nothing paces its uplink, or it never said anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<HostLimits>,
    /// The CPU that it keeps for reservations; absent where it keeps none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<HostCpu>,
    /// Why its machines do not have what they are promised, tenant by tenant, or what makes that
    /// so for all of them. In lists the first one alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<Refused>,
    /// The guests that have more CPU reserved than they are promised, sixteen at most; not in lists.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unpromised: Vec<UnpromisedGuest>,
}

/// Something promised that a host does not keep.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Refused {
    /// The tenant's number; absent where it is so for all machines with a guarantee.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<TenantId>,
    /// Why, in words.
    pub why: String,
}

/// A line of the stream of events.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Event {
    /// The revision at which it was so.
    pub revision: u64,
    /// The tenant whose state is another one now; absent in a line that only says that the
    /// service is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<TenantEvent>,
    /// Lines that this reader was too slow for: what they told is to be asked for.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub missed: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(number: &u64) -> bool {
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
    /// The state that it is in.
    pub state: TenantState,
    /// The hosts by which it is so, sixteen at most, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<HostStanding>,
}

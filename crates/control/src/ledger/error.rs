//! Errors of the ledger: of calls and queries, and of loading it from a store.

use tailbound_api::{Broken, Code, Moving, RefusalDetail, ReservationId, Tenant};
use tailbound_placement::pinned::{PinnedError, Refusal};
use tailbound_placement::{AdmitError, PlacementError, RequestError, SpecError, TenantId};

/// Reason for the refusal of a call or a query; nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LedgerError {
    /// The thing does not exist, or belongs to another owner.
    #[error("there is no {0}")]
    NotFound(String),
    /// The owner has a tenant of this name.
    #[error("{owner} has a tenant {name:?} already, with the id {}", .id.0)]
    Exists {
        /// The owner.
        owner: String,
        /// The name of the tenant that exists.
        name: String,
        /// The number of the tenant that exists.
        id: TenantId,
    },
    /// No placement keeps every promise.
    #[error(transparent)]
    NoPlacement(#[from] PlacementError),
    /// A rule refuses the placement that the caller chose.
    #[error(transparent)]
    Pinned(#[from] Refusal),
    /// A machine of this name exists.
    #[error("{tenant} has a machine {name:?} already: its number is {number}")]
    MachineExists {
        /// The tenant: `OWNER/NAME`.
        tenant: String,
        /// The caller's name of the machine.
        name: String,
        /// The number of the machine that exists.
        number: u32,
    },
    /// A host puts a machine, or one into a tenant, that does not exist.
    #[error("there is no {0}, and a host's token admits nothing new")]
    HostAdmits(String),
    /// Open reservations prevent the change.
    #[error("{tenant} has open reservations: confirm or cancel {reservation} first")]
    Reserved {
        /// The tenant: `OWNER/NAME`.
        tenant: String,
        /// One of the reservations.
        reservation: ReservationId,
    },
    /// The reservation was confirmed.
    #[error("the reservation {0} is confirmed; its machines are part of the tenant")]
    Confirmed(ReservationId),
    /// An operation of a batch is refused, and none was made.
    #[error("operation {index} of the batch: {error}; no operation was made")]
    InBatch {
        /// The index of the operation, from 0.
        index: usize,
        /// The reason.
        error: Box<Self>,
    },
    /// A host cannot take a machine.
    #[error("{vm} cannot move to {to}: {why}")]
    NoMove {
        /// The machine: `OWNER/NAME/NUMBER`.
        vm: String,
        /// The host.
        to: String,
        /// Reason for the refusal.
        why: String,
    },
    /// A machine is on its way.
    #[error("{vm} is on its way to {to}: have that done, or cancel it, first")]
    Moves {
        /// The machine: `OWNER/NAME/NUMBER`.
        vm: String,
        /// The host.
        to: String,
    },
    /// A token of this name is in force.
    #[error("there is a token {0:?} already; revoke it, or take another name")]
    TokenExists(String),
    /// The owner would have more than it may.
    #[error(
        "{owner} would have {after}, and its quota is {most} (it has {before}): release \
            something, or request a larger quota from the operator"
    )]
    Quota {
        /// The owner.
        owner: String,
        /// Usage of the owner after the change.
        after: String,
        /// Quota of the owner.
        most: String,
        /// Usage of the owner before the change.
        before: String,
    },
    /// The tenant was changed since the caller read it.
    #[error(
        "tenant {} is at change {change}, not {expected}: read it again, and repeat the request if it \
            still fits", .id.0
    )]
    TenantChanged {
        /// The tenant.
        id: TenantId,
        /// The change that the caller knows.
        expected: u64,
        /// The last change.
        change: u64,
    },
    /// The request makes no sense by itself.
    #[error("{0}")]
    Absurd(String),
    /// The idempotency key was used for another request.
    #[error("the idempotency key {0:?} was used for another request; take a new one")]
    KeyReused(String),
    /// The topology would break promises.
    #[error("{}", breaks(.0))]
    Breaks(Vec<Broken>),
    /// The topology is not the one that was compared with.
    #[error("the topology is at revision {is}, not {expected}; look at it again")]
    Changed {
        /// Number that the caller expects.
        expected: u64,
        /// Number in force.
        is: u64,
    },
}

/// Limit on the broken tenants that an error names; the diff of the topology lists all.
const NAMED: usize = 5;

fn breaks(broken: &[Broken]) -> String {
    let named: Vec<String> = broken
        .iter()
        .take(NAMED)
        .map(|broken| format!("{}/{}: {}", broken.owner, broken.name, broken.why))
        .collect();
    let more = broken.len().saturating_sub(NAMED);
    let more = if more > 0 {
        format!("; and {more} more")
    } else {
        String::new()
    };
    format!(
        "{} tenants' promises would not hold: {}{more}",
        broken.len(),
        named.join("; ")
    )
}

impl LedgerError {
    /// Makes the error for changes to a tenant that has a moving machine.
    pub(super) fn on_its_way(tenant: &Tenant, moving: &Moving) -> Self {
        Self::Moves {
            vm: format!("{}/{}/{}", tenant.owner, tenant.name, moving.vm),
            to: moving.to.clone(),
        }
    }

    /// Returns the rule that refused, if the error is a refusal by a rule.
    pub fn refusal(&self) -> Option<RefusalDetail> {
        match self {
            Self::NoPlacement(error) => Some(detail(Refusal::of_placement(error))),
            Self::Pinned(refusal) => Some(detail(refusal.clone())),
            Self::InBatch { index, error } => error.refusal().map(|refusal| RefusalDetail {
                operation: u32::try_from(*index).ok(),
                ..refusal
            }),
            _ => None,
        }
    }

    /// Returns the error code of the reply.
    pub fn code(&self) -> Code {
        match self {
            Self::NotFound(_) => Code::NotFound,
            Self::Exists { .. } | Self::MachineExists { .. } | Self::TokenExists(_) => Code::Exists,
            Self::NoPlacement(_)
            | Self::NoMove { .. }
            | Self::Moves { .. }
            | Self::Pinned(_)
            | Self::Reserved { .. }
            | Self::Confirmed(_) => Code::Refused,
            Self::HostAdmits(_) => Code::Forbidden,
            Self::InBatch { error, .. } => error.code(),
            Self::Quota { .. } => Code::Quota,
            Self::Absurd(_) => Code::Absurd,
            Self::KeyReused(_) => Code::KeyReused,
            Self::Breaks(_) => Code::Breaks,
            Self::Changed { .. } | Self::TenantChanged { .. } => Code::Changed,
        }
    }
}

fn detail(refusal: Refusal) -> RefusalDetail {
    let Refusal {
        rule,
        host,
        port,
        excess,
        ..
    } = refusal;
    RefusalDetail {
        rule,
        host,
        port,
        excess,
        operation: None,
        revision: None,
        nearest: Vec::new(),
    }
}

impl From<RequestError> for LedgerError {
    fn from(error: RequestError) -> Self {
        Self::Absurd(error.to_string())
    }
}

impl From<SpecError> for LedgerError {
    fn from(error: SpecError) -> Self {
        Self::Absurd(error.to_string())
    }
}

impl From<PinnedError> for LedgerError {
    fn from(error: PinnedError) -> Self {
        match error {
            PinnedError::Refused(refusal) => refusal.into(),
            PinnedError::Tenant(error) => error.into(),
        }
    }
}

impl From<AdmitError> for LedgerError {
    fn from(error: AdmitError) -> Self {
        match error {
            AdmitError::NoPlacement(error) => Self::NoPlacement(error),
            AdmitError::Unknown(id) => Self::NotFound(format!("tenant {}", id.0)),
            // All others are about requests that make no sense.
            other => Self::Absurd(other.to_string()),
        }
    }
}

/// Reason why the content of a store is not a ledger.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// The store is new.
    #[error("there is no topology yet")]
    NoTopology,
    /// The topology cannot be built.
    #[error("the topology: {0}")]
    Topology(#[from] SpecError),
    /// A tenant is damaged, or its promise does not hold.
    #[error("the tenant {}: {why}", .tenant.0)]
    Tenant {
        /// The tenant.
        tenant: TenantId,
        /// Cause of the error.
        why: String,
    },
    /// A name in the list of closed hosts is not a host.
    #[error("the host {0:?} is recorded as closed, but does not exist")]
    Host(String),
}

//! Commands to the ledger, and the replies to them.

use super::quota::Quota;
use super::token::TokenRecord;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use tailbound_api::{
    AdoptionReport, AuditCaller, HostChange, HostMachines, HostReport, HostState, Machine,
    MachinePut, MoveVm, NewReservation, NewTenant, Operation, Reservation, ReservationId, Tenant,
    TopologyDiff, VmLimit,
};
use tailbound_placement::{Guarantee, Spec, TenantId};

/// A change of the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Admits a tenant, which names its owner; where it names hosts, exactly there.
    Create(NewTenant),
    /// Changes the number of a tenant's machines, or their guarantee.
    Change {
        /// The tenant.
        id: TenantId,
        /// The new number of machines; None keeps it.
        vms: Option<u32>,
        /// The new guarantee; None keeps it.
        guarantee: Option<Guarantee>,
    },
    /// Deletes a tenant.
    Delete {
        /// The tenant.
        id: TenantId,
    },
    /// Moves a tenant's machines on closed hosts to open ones.
    Relocate {
        /// The tenant.
        id: TenantId,
    },
    /// Moves a machine of a tenant to a host, or ends the move.
    Move {
        /// The tenant.
        id: TenantId,
        /// The machine, and the step of its move.
        step: MoveVm,
    },
    /// Sets the number of a tenant's machines on a host.
    PutHost {
        /// The tenant.
        id: TenantId,
        /// The host.
        host: String,
        /// The number of machines there, and which of them go.
        machines: HostMachines,
    },
    /// Reserves machines on hosts; the owner is named.
    Reserve(Box<NewReservation>),
    /// Sets the tenant and the host of a named machine.
    PutMachine(Box<PutMachine>),
    /// Releases the place of a named machine on a host.
    DeleteMachine {
        /// The machine.
        machine: NamedMachine,
        /// The host.
        host: String,
        /// The caller.
        caller: Caller,
    },
    /// Makes the machines of a reservation part of their tenant.
    Confirm(ReservationId),
    /// Cancels a reservation.
    Cancel(ReservationId),
    /// Cancels these reservations, except confirmed ones. The leader sends it at the end of their
    /// time to live.
    Expire(Vec<ReservationId>),
    /// Makes all of some changes, or none. New tenants name their owners.
    Batch(Vec<Operation>),
    /// Records tenants whose machines run. Each names its owner and its placement.
    Adopt(Vec<NewTenant>),
    /// Limits what a tenant's machines may send and be sent.
    Limit {
        /// The tenant.
        id: TenantId,
        /// Limits of each machine; a direction that is left out becomes unlimited.
        limit: VmLimit,
    },
    /// Drains hosts, takes them for broken, or opens them again.
    SetHosts {
        /// The host, rack or pod.
        node: String,
        /// The new state of its hosts.
        state: HostState,
    },
    /// Records a report of a host.
    Report {
        /// The host.
        host: String,
        /// The report.
        report: Box<HostReport>,
    },
    /// Records that hosts have become silent.
    Silence {
        /// Their names, and since when, in seconds since 1970.
        hosts: Vec<(String, u64)>,
    },
    /// Issues a token. Its rights are at most those of the caller, which the caller's server has
    /// checked.
    IssueToken(Arc<TokenRecord>),
    /// Revokes the token of this name.
    RevokeToken(String),
    /// Replaces the topology.
    SetTopology {
        /// The new topology.
        spec: Box<Spec>,
        /// The revision that it was compared with, if it was.
        expected: Option<u64>,
    },
}

/// A machine by the name that its owner's scheduler gave it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedMachine {
    /// The owner.
    pub owner: String,
    /// The name, unique among the owner's machines.
    pub name: String,
}

/// The kind of caller that changes the place of a named machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caller {
    /// The owner or an operator, who may admit machines.
    Owner,
    /// A host. It may put only machines that are known, so that a host that was taken over cannot
    /// fill the data centre.
    Host,
}

/// A new place of a named machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PutMachine {
    /// The machine.
    pub machine: NamedMachine,
    /// Its tenant and host.
    pub put: MachinePut,
    /// The caller.
    pub caller: Caller,
}

impl Command {
    /// Returns the command that changes the number of a tenant's machines alone.
    pub const fn resize(id: TenantId, vms: u32) -> Self {
        Self::Change {
            id,
            vms: Some(vms),
            guarantee: None,
        }
    }

    /// Returns the name of the command in metrics and in the audit.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Create(_) => "create",
            Self::Change {
                guarantee: None, ..
            } => "resize",
            Self::Change { .. } => "change",
            Self::Delete { .. } => "delete",
            Self::Relocate { .. } => "relocate",
            Self::Move { .. } => "move",
            Self::PutHost { .. } => "put",
            Self::Reserve(_) => "reserve",
            Self::PutMachine(_) => "put-machine",
            Self::DeleteMachine { .. } => "delete-machine",
            Self::Confirm(_) => "confirm",
            Self::Cancel(_) => "cancel",
            Self::Expire(_) => "expire",
            Self::Batch(_) => "batch",
            Self::Adopt(_) => "adopt",
            Self::Limit { .. } => "limit",
            Self::SetHosts { .. } => "hosts",
            Self::Report { .. } => "report",
            Self::Silence { .. } => "silence",
            Self::IssueToken(_) => "issue-token",
            Self::RevokeToken(_) => "revoke-token",
            Self::SetTopology { .. } => "topology",
        }
    }

    /// Returns the tenant that exists already and is changed; None for other commands.
    pub const fn tenant(&self) -> Option<TenantId> {
        match self {
            Self::Change { id, .. }
            | Self::Delete { id }
            | Self::Relocate { id }
            | Self::Move { id, .. }
            | Self::PutHost { id, .. }
            | Self::Limit { id, .. } => Some(*id),
            Self::Create(_)
            | Self::Reserve(_)
            | Self::PutMachine(_)
            | Self::DeleteMachine { .. }
            | Self::Confirm(_)
            | Self::Cancel(_)
            | Self::Expire(_)
            | Self::Batch(_)
            | Self::Adopt(_)
            | Self::SetHosts { .. }
            | Self::Report { .. }
            | Self::Silence { .. }
            | Self::IssueToken(_)
            | Self::RevokeToken(_)
            | Self::SetTopology { .. } => None,
        }
    }

    /// Returns the owner whose quota and share of the deciding time a host's command uses; None for
    /// other commands.
    pub fn owner_of_host(&self) -> Option<&str> {
        let (machine, caller) = match self {
            Self::PutMachine(put) => (&put.machine, put.caller),
            Self::DeleteMachine {
                machine, caller, ..
            } => (machine, *caller),
            _ => return None,
        };
        (caller == Caller::Host).then_some(&machine.owner)
    }

    /// Returns the number of values that the decision may change, if it may be many.
    pub const fn many_changes(&self) -> Option<usize> {
        match self {
            Self::Batch(operations) => Some(operations.len()),
            Self::Adopt(tenants) => Some(tenants.len()),
            Self::Expire(reservations) => Some(reservations.len()),
            _ => None,
        }
    }
}

/// A command and its caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// The owner whose tenants the caller may change; None for an operator, who may change all.
    pub owner: Option<String>,
    /// Quota of the owner; an operator's call has no limit.
    pub quota: Quota,
    /// The idempotency key, if any.
    pub key: Option<String>,
    /// Hash of the whole request, which distinguishes requests with the same key.
    pub fingerprint: [u8; 32],
    /// The change of the tenant that the caller knows ([`Tenant::change`]): the call is refused if
    /// another one was made since. None makes no condition.
    pub expected: Option<u64>,
    /// The caller as the audit names it.
    pub caller: AuditCaller,
    /// The change.
    pub command: Command,
}

impl Call {
    /// Returns a call of the service itself.
    pub fn of_service(command: Command) -> Self {
        Self {
            owner: None,
            quota: Quota::default(),
            key: None,
            fingerprint: [0; 32],
            expected: None,
            caller: AuditCaller {
                token: "service".to_owned(),
                role: "service".to_owned(),
                request: String::new(),
            },
            command,
        }
    }
}

/// The reply to a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reply {
    /// The tenant as it is now.
    Tenant(Arc<Tenant>),
    /// The tenant is gone.
    Deleted,
    /// The reservation as it is now.
    Reservation(Arc<Reservation>),
    /// The named machine as it is now.
    Machine(Arc<Machine>),
    /// The tenant after each operation of a batch.
    Batch(Vec<Option<Arc<Tenant>>>),
    /// The adopted tenants and the misfits.
    Adopted(Arc<AdoptionReport>),
    /// The hosts' new state and the tenants that it affects.
    Hosts(Arc<HostChange>),
    /// The host's report was recorded.
    Noted,
    /// The token was issued. Its secret is not kept.
    Token(Arc<TokenRecord>),
    /// The differences from the topology before.
    Topology(Arc<TopologyDiff>),
}

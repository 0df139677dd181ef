//! Documents for outside schedulers: placements that the caller chooses, candidates, reservations,
//! batches and adoption.

use crate::reserved::{PinnedHost, ReservationId, is_false};
use crate::types::{NewTenant, Tenant};
use serde::{Deserialize, Serialize};
use std::fmt;
use tailbound_placement::pinned::Rule;
use tailbound_placement::{CpuReservation, Guarantee, Message, Request, TenantId};
use tailbound_units::{Bytes, Nanos, Rate};

/// The shortest time to live of a reservation.
pub const MIN_TTL: Nanos = Nanos::from_secs(1);
/// The longest time to live of a reservation.
pub const MAX_TTL: Nanos = Nanos::from_secs(3_600);
/// The maximum number of operations in a batch.
pub const MAX_OPERATIONS: usize = 100;
/// The maximum number of requests in one question for candidates.
pub const MAX_QUESTIONS: usize = 64;
/// The maximum number of named machines in a reservation that replaces their others.
pub const MAX_REPLACED: usize = 16;

/// The number of a tenant's machines on a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct HostMachines {
    /// The number of machines on the host, without those of open reservations.
    #[cfg_attr(feature = "openapi", schema(maximum = 4_294_967_295_u64))]
    pub vms: u32,
    /// The machines that are removed if there are fewer than before: their numbers, or the names
    /// that a reservation gave them. The default is those with the highest numbers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remove: Vec<MachineRef>,
}

/// A machine of a tenant: its number, or the name that a reservation gave it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum MachineRef {
    /// The machine's number.
    Number(u32),
    /// The name of a reservation's machine.
    Name(String),
}

impl fmt::Display for MachineRef {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(formatter),
            Self::Name(name) => write!(formatter, "{name:?}"),
        }
    }
}

/// A tenant: its number, its name, or `OWNER/NAME`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum TenantRef {
    /// The tenant's number.
    Id(TenantId),
    /// The tenant's number as text, its name, or `OWNER/NAME`.
    Name(String),
}

impl TenantRef {
    /// Returns the number, if the tenant is named by it.
    pub fn id(&self) -> Option<TenantId> {
        match self {
            Self::Id(id) => Some(*id),
            Self::Name(name) => {
                let is_number = name.bytes().all(|byte| byte.is_ascii_digit());
                is_number.then(|| name.parse().ok().map(TenantId))?
            }
        }
    }

    /// Returns the owner, if it is named, and the name.
    pub fn name(&self) -> Option<(Option<&str>, &str)> {
        match self {
            Self::Id(_) => None,
            Self::Name(name) => Some(match name.split_once('/') {
                Some((owner, name)) => (Some(owner), name),
                None => (None, name),
            }),
        }
    }
}

impl fmt::Display for TenantRef {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Id(id) => id.0.fmt(formatter),
            Self::Name(name) => formatter.write_str(name),
        }
    }
}

/// The request of each machine of a tenant.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct MachineRequest {
    /// The guarantee of the machine's traffic; the default is best effort.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guarantee: Option<Guarantee>,
    /// The machine's CPU, in thousandths of a CPU.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(maximum = 4_398_046_511_104_u64))]
    pub cpu: u64,
    /// The machine's memory.
    #[serde(default)]
    pub memory: Bytes,
    /// The CPU that is reserved for the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_reservation: Option<CpuReservation>,
    /// The machine's message, for the computation of its latency.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<Message>,
}

impl MachineRequest {
    /// Returns the request of a tenant with this number of machines, with the default number of
    /// bursts if it has none.
    pub fn of(self, vms: u32) -> Request {
        Request {
            vms,
            guarantee: self.guarantee.map(Guarantee::with_default_bursts),
            cpu: self.cpu,
            memory: self.memory,
            domains: None,
            cpu_reservation: self.cpu_reservation,
            message: self.message,
        }
    }
}

/// A request for a reservation of machines on hosts that the caller chooses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewReservation {
    /// The tenant's name. A tenant that does not exist is created with the reserved machines.
    #[cfg_attr(
        feature = "openapi",
        schema(pattern = "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")
    )]
    pub tenant: String,
    /// The owner. An operator must set it; with a tenant's token the default is the token's owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "openapi",
        schema(pattern = "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")
    )]
    pub owner: Option<String>,
    /// The request of each machine; required for a tenant that does not exist yet, and for others
    /// the same as that of the tenant's machines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<MachineRequest>,
    /// The hosts of the machines.
    #[cfg_attr(feature = "openapi", schema(min_items = 1))]
    pub placement: Vec<PinnedHost>,
    /// The time to live, from `1s` to `1h`: without a confirmation the reservation is cancelled
    /// after it.
    pub ttl: Nanos,
    /// The caller's names of the machines, one each in the order of the placement; none, or unique
    /// among the owner's machines. A name has 1 to 128 printable ASCII characters.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub machines: Vec<String>,
    /// True if up to 16 named machines may be elsewhere. Then a place that is only reserved is
    /// released, and a confirmed one stays until the new place is confirmed.
    #[serde(default, skip_serializing_if = "is_false")]
    pub replace: bool,
}

/// The state of a reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum ReservationState {
    /// The machines are reserved until the end of the time to live.
    Open,
    /// The machines are part of the tenant.
    Confirmed,
}

/// A reservation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Reservation {
    /// The reservation's number.
    #[cfg_attr(feature = "openapi", schema(value_type = String, pattern = "^[0-9]{1,19}$"))]
    pub id: ReservationId,
    /// The tenant's number.
    pub tenant: TenantId,
    /// The tenant's owner.
    pub owner: String,
    /// The tenant's name.
    pub name: String,
    /// The state.
    pub state: ReservationState,
    /// The time to live. Each leader counts it from the moment at which it became the leader or
    /// received the reservation.
    pub ttl: Nanos,
    /// The rest of the time to live at the leader; absent at other replicas and after a
    /// confirmation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in: Option<Nanos>,
    /// The machines in ascending order of their numbers.
    pub machines: Vec<ReservedVm>,
    /// The revision of the ledger that has the reservation; absent in lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<u64>,
}

/// A machine of a reservation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ReservedVm {
    /// The machine's number in the tenant.
    pub number: u32,
    /// The machine's full name, `OWNER/NAME/NUMBER`.
    pub vm: String,
    /// The machine's host.
    pub host: String,
    /// The caller's name of the machine, if the reservation gave one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// Questions for candidates, answered from one state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct CandidateQuestions {
    /// The questions.
    #[cfg_attr(feature = "openapi", schema(min_items = 1, max_items = 64))]
    pub requests: Vec<CandidateQuestion>,
}

/// A question for the hosts that take some machines.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct CandidateQuestion {
    /// The tenant that would get more machines; absent for a tenant that does not exist yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<TenantRef>,
    /// The whole request of a tenant that does not exist yet. Beside a tenant it counts if there is
    /// no such tenant; otherwise it must be that of the tenant, except for the number of machines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<Request>,
    /// The number of machines on each host; 1 by default.
    #[serde(default = "one")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 4_294_967_295_u64))]
    pub vms: u32,
    /// The names of the hosts; all hosts without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hosts: Option<Vec<String>>,
}

const fn one() -> u32 {
    1
}

/// The answers to [`CandidateQuestions`], in their order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CandidateAnswers {
    /// The revision of the ledger that answered.
    pub revision: u64,
    /// The answers.
    pub answers: Vec<CandidateAnswer>,
}

/// The candidates for one question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CandidateAnswer {
    /// The hosts in the order of the question, or in the order of the topology.
    pub candidates: Vec<Candidate>,
}

/// The verdict on a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Candidate {
    /// The host's name.
    pub host: String,
    /// True if the host takes the machines.
    pub fits: bool,
    /// The room for more.
    pub headroom: Headroom,
    /// The rule that refuses the machines; absent if they fit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<PlacementRefusal>,
}

/// The room of a host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Headroom {
    /// The number of machines of this request that the host takes.
    pub vms: u32,
    /// The lowest unreserved rate of the ports between the host and the top of the tree.
    pub bandwidth: Rate,
    /// The smallest unreserved part of the queues of these ports.
    pub burst: Bytes,
}

/// A refusal, for programs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PlacementRefusal {
    /// The rule.
    pub rule: Rule,
    /// The port that refuses, if it is one, such as `rack1 up`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
    /// The reason in one sentence.
    pub sentence: String,
}

/// Changes that are made together or not at all.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Batch {
    /// The operations, which are made in this order.
    #[cfg_attr(feature = "openapi", schema(min_items = 1, max_items = 100))]
    pub operations: Vec<Operation>,
}

/// An operation of a batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Operation {
    /// Admits a tenant.
    Create(Box<NewTenant>),
    /// Deletes a tenant.
    Delete(TenantRef),
    /// Sets the number of a tenant's machines on a host.
    Put(HostPut),
}

/// The number of a tenant's machines on a host, as an operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct HostPut {
    /// The tenant.
    pub tenant: TenantRef,
    /// The host's name.
    pub host: String,
    /// The number of machines on the host, without those of open reservations.
    #[cfg_attr(feature = "openapi", schema(maximum = 4_294_967_295_u64))]
    pub vms: u32,
    /// The machines that are removed if there are fewer than before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remove: Vec<MachineRef>,
}

/// The results of a [`Batch`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BatchResult {
    /// The revision of the ledger that has all changes.
    pub revision: u64,
    /// The tenant after each operation, in their order; null if it is gone.
    pub tenants: Vec<Option<Tenant>>,
}

/// Tenants whose machines run already, each with its placement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Adoption {
    /// The tenants.
    pub tenants: Vec<NewTenant>,
}

/// The result of an [`Adoption`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AdoptionReport {
    /// The number of tenants that were adopted.
    pub adopted: u64,
    /// The number of tenants that the service had already, with the same request and hosts.
    pub present: u64,
    /// The tenants whose promises do not hold where their machines run, and those that could not
    /// be recorded.
    pub misfits: Vec<Misfit>,
}

/// A tenant that does not fit where its machines run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Misfit {
    /// The tenant: `OWNER/NAME`.
    pub tenant: String,
    /// True if the tenant is recorded. False if the service has no such host, or the owner has
    /// another tenant of the name.
    pub adopted: bool,
    /// The rule that is broken.
    pub rule: Rule,
    /// The host with too little, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The port with too much, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
    /// The missing amount with its unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub excess: Option<String>,
    /// The reason in one sentence.
    pub sentence: String,
}

/// The derived schemas would allow several keys, and numbers without limits.
#[cfg(feature = "openapi")]
mod openapi {
    use super::{HostPut, MachineRef, NewTenant, Operation, TenantRef};
    use utoipa::openapi::schema::{AdditionalProperties, ObjectBuilder, OneOfBuilder, Type};
    use utoipa::openapi::{Ref, RefOr, Schema};
    use utoipa::{PartialSchema, ToSchema};

    impl PartialSchema for Operation {
        fn schema() -> RefOr<Schema> {
            let only = |key: &str, schema: &str| {
                ObjectBuilder::new()
                    .property(key, Ref::from_schema_name(schema))
                    .required(key)
                    .additional_properties(Some(AdditionalProperties::FreeForm(false)))
            };
            OneOfBuilder::new()
                .item(only("create", "NewTenant"))
                .item(only("delete", "TenantRef"))
                .item(only("put", "HostPut"))
                .into()
        }
    }

    /// Returns the schema of a number up to `most`, or a text.
    fn number_or_text(most: u64, description: &str) -> RefOr<Schema> {
        let number = ObjectBuilder::new()
            .schema_type(Type::Integer)
            .minimum(Some(0_u64))
            .maximum(Some(most));
        let text = ObjectBuilder::new().schema_type(Type::String);
        OneOfBuilder::new()
            .item(number)
            .item(text.min_length(Some(1)))
            .description(Some(description))
            .into()
    }

    impl PartialSchema for MachineRef {
        fn schema() -> RefOr<Schema> {
            let what = "A machine: its number, or the name that a reservation gave it.";
            number_or_text(u32::MAX.into(), what)
        }
    }

    impl ToSchema for MachineRef {}

    impl PartialSchema for TenantRef {
        fn schema() -> RefOr<Schema> {
            let what = "A tenant: its number, its name, or OWNER/NAME.";
            number_or_text(9_007_199_254_740_991, what)
        }
    }

    impl ToSchema for TenantRef {}

    impl ToSchema for Operation {
        fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
            fn add<T: ToSchema>(schemas: &mut Vec<(String, RefOr<Schema>)>) {
                schemas.push((T::name().into_owned(), T::schema()));
                T::schemas(schemas);
            }
            add::<NewTenant>(schemas);
            add::<TenantRef>(schemas);
            add::<HostPut>(schemas);
        }
    }
}

//! Documents that the service and its clients exchange.
//!
//! Quantities are strings with a unit, as in all files of tailbound (`"1Gbit/s"`, `"100KB"`,
//! `"1ms"`). Numbers with the unit in their name (`_ns`, `_bytes`, `_bit_s`) are for charts and
//! programs.

use crate::enforcement::{Following, HostWord, TenantEnforcement};
use crate::limit::VmLimit;
use crate::message::MessageBound;
use crate::moving::{MoveEnd, Moving};
use crate::reserved::{PinnedHost, ReservationRecord, is_false};
use serde::{Deserialize, Serialize};

use std::sync::Arc;
use tailbound_classes::Classes;
use tailbound_placement::{
    CpuReservation, CpuUse, DelayClassSpec, FaultDomains, Guarantee, Message, Policy, Request,
    Spec, TenantId,
};
use tailbound_units::{Bytes, Nanos};

/// A request for a new tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewTenant {
    /// The tenant's name, unique among the tenants of one owner: 1 to 63 of `a-z`, `0-9` and `-`,
    /// without a `-` at either end.
    #[cfg_attr(
        feature = "openapi",
        schema(pattern = "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")
    )]
    pub name: String,
    /// The owner, in the form of a name. An operator must set it. With a tenant's token the default
    /// is the token's owner, and no other is accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "openapi",
        schema(pattern = "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")
    )]
    pub owner: Option<String>,
    /// The number of machines, N.
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 4_294_967_295_u64))]
    pub vms: u32,
    /// The guarantee for the traffic of each machine; the default is best effort.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guarantee: Option<Guarantee>,
    /// The CPU of each machine, in thousandths of a CPU.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(maximum = 4_398_046_511_104_u64))]
    pub cpu: u64,
    /// The memory of each machine.
    #[serde(default)]
    pub memory: Bytes,
    /// The fault domains over which the machines are spread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domains: Option<FaultDomains>,
    /// The CPU that is reserved for each machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_reservation: Option<CpuReservation>,
    /// The message of each machine, for the computation of its latency.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<Message>,
    /// The rate limits of each machine. Only an operator may set them.
    #[serde(default, skip_serializing_if = "VmLimit::is_none")]
    pub limit: VmLimit,
    /// The hosts of the machines, whose sum is `vms`. The service admits or refuses exactly this
    /// placement. Without it, the service chooses the hosts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub placement: Vec<PinnedHost>,
}

/// Returns true if a text is a valid name of a tenant or an owner: 1 to 63 of `a-z`, `0-9` and `-`,
/// without a `-` at either end.
pub fn is_name(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=63).contains(&text.len())
        && text.bytes().all(inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

impl NewTenant {
    /// Returns the request to the data centre, without the names, and with the default number of
    /// bursts if it has none.
    pub fn request(&self) -> Request {
        Request {
            vms: self.vms,
            guarantee: self.guarantee.map(Guarantee::with_default_bursts),
            cpu: self.cpu,
            memory: self.memory,
            domains: self.domains,
            cpu_reservation: self.cpu_reservation,
            message: self.message,
        }
    }
}

/// Machines of one tenant with consecutive numbers on one host.
///
/// A machine keeps its number for life. Its full name is `OWNER/NAME/NUMBER`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// The first number.
    pub first: u32,
    /// The number of machines.
    pub count: u32,
    /// The host's name. All tenants and replies share the names of the topology, to save memory.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub host: Arc<str>,
}

/// An admitted tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Tenant {
    /// The tenant's number, which is never reused.
    pub id: TenantId,
    /// The tenant's owner.
    pub owner: String,
    /// The tenant's name, unique among those of the owner.
    pub name: String,
    /// The admitted request.
    pub request: Request,
    /// The rate limits of each machine.
    #[serde(default, skip_serializing_if = "VmLimit::is_none")]
    pub limit: VmLimit,
    /// The placement of the machines, in ascending order of their numbers.
    pub runs: Vec<Run>,
    /// The machine that is moving to another host, if any. Its present host is in `runs`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moving: Option<Moving>,
    /// The number of the tenant's last change, in the sequence of all tenants. Hosts report the
    /// number that they follow.
    #[serde(default)]
    pub change: u64,
    /// The state of the tenant's guarantee on its hosts; absent if not requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub standing: Option<TenantEnforcement>,
    /// The reservations whose machines the tenant has. Answers of the API are without them: an
    /// earlier client knows no such field, and `GET /v1/reservations` has them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "openapi", schema(ignore))]
    pub reservations: Vec<ReservationRecord>,
    /// True if the tenant did not fit where its machines ran when they were adopted. Answers of the
    /// API are without it.
    #[serde(default, skip_serializing_if = "is_false")]
    #[cfg_attr(feature = "openapi", schema(ignore))]
    pub misfit: bool,
}

impl Tenant {
    /// Returns the reservation: a moving machine counts on both of its hosts.
    pub fn reserved(&self) -> Request {
        match self.moving {
            Some(_) => self.request.with_one_more(),
            None => self.request,
        }
    }

    /// Returns the hosts with reserved places of the tenant.
    pub fn hosts(&self) -> impl Iterator<Item = &str> {
        let runs = self.runs.iter().map(|run| &*run.host);
        runs.chain(self.moving.iter().map(|moving| moving.to.as_str()))
    }
}

/// One page of a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Page<T> {
    /// The items in ascending order.
    pub items: Vec<T>,
    /// The `after` of the next page; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A change of a tenant; fields that are left out stay as they are.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct TenantPatch {
    /// The new number of machines. Remaining machines are not moved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 4_294_967_295_u64))]
    pub vms: Option<u32>,
    /// The new guarantee, as a whole. No machine is moved for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guarantee: Option<Guarantee>,
}

/// A number of machines on a host, without their tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Placed))]
pub struct HostShare {
    /// The host's name.
    pub host: String,
    /// The number of machines.
    pub vms: u32,
}

/// The result of a check of a request: the placement, or the reason of the refusal and the nearest
/// requests that would be admitted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Explanation {
    /// True if the request would be admitted now.
    pub fits: bool,
    /// The placement; empty if the request would be refused.
    pub hosts: Vec<HostShare>,
    /// The rule that refuses the request, as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<String>,
    /// The port that refuses the request, for the placement nearest to fitting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overload: Option<Overload>,
    /// Requests that would be admitted now and differ in one number each.
    pub nearest: Vec<Nearest>,
}

/// A port that a request would overload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Overload {
    /// The port's name, such as `rack1 up`.
    pub port: String,
    /// The report in one sentence.
    pub message: String,
    /// The rate of the link.
    pub rate_bit_s: u64,
    /// The limit of queued bytes at which no frame waits longer than the capacity.
    pub room_bytes: u64,
    /// The worst-case backlog with the request; absent if unbounded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backlog_bytes: Option<u64>,
    /// The queue's capacity: the longest allowed wait of a frame.
    pub capacity_ns: u64,
    /// The worst-case wait beyond the capacity; absent if unbounded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub late_ns: Option<u64>,
    /// The arrival curve of the present traffic: the minimum of these lines.
    pub carried: Vec<Line>,
    /// The additional arrival curve of the request.
    pub added: Vec<Line>,
    /// The joint limit of the links before the port; absent at a host's own queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub feed: Option<Line>,
}

/// An affine arrival curve: at most `burst + rate * t` bits in any time t.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Line {
    /// The rate.
    pub rate_bit_s: u64,
    /// The burst.
    pub burst_bits: u64,
}

/// A request that would be admitted and differs in one number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Nearest {
    /// The difference as text: `a burst of 68.35KB`.
    pub change: String,
    /// The whole request.
    pub request: Request,
}

/// The administrative state of a host.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum HostState {
    /// The host accepts machines.
    #[default]
    Open,
    /// The host accepts no further machines; present ones run until they are moved or deleted.
    Drained,
    /// The host and its machines are down.
    Failed,
}

impl HostState {
    /// Returns the value in JSON.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Drained => "drained",
            Self::Failed => "failed",
        }
    }
}

/// A host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Host {
    /// The host's name.
    pub name: String,
    /// The groups of the host, from the nearest to the highest: rack, pod.
    pub path: Vec<String>,
    /// The administrative state of the host.
    pub state: HostState,
    /// The number of machine slots.
    pub slots: u32,
    /// The number of used slots.
    pub used: u32,
    /// The priority classes that the host reported, if they differ from the topology's. No
    /// guarantee of its machines holds then, and it gets no machines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other_classes: Option<Classes>,
    /// The lateness of frames that admission counts with; absent for an exact pacer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lateness: Option<Nanos>,
    /// The CPU that is reserved on the host.
    #[serde(default)]
    pub reserved_cpu: CpuUse,
    /// The last report of the host about its guarantees.
    #[serde(default)]
    pub said: HostWord,
    /// The machines on the host. Empty in lists.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vms: Vec<HostedRun>,
    /// The two ports of the host's link. Empty in lists.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<PortState>,
}

/// Machines on a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HostedRun {
    /// The tenant's number.
    pub tenant: TenantId,
    /// The tenant's owner.
    pub owner: String,
    /// The tenant's name.
    pub name: String,
    /// The first machine's number.
    pub first: u32,
    /// The number of machines.
    pub count: u32,
}

/// A port: a queue and its link, with the guarantees over it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PortState {
    /// The port's name, such as `rack1 up`.
    pub name: String,
    /// The rate of the link.
    pub rate_bit_s: u64,
    /// The sum of the tenants' average rates.
    pub reserved_bit_s: u64,
    /// The queue's capacity: the longest allowed wait of a frame.
    pub capacity_ns: u64,
    /// The worst-case wait of a frame with the present tenants.
    pub bound_ns: u64,
    /// The limit of queued bytes.
    pub room_bytes: u64,
    /// The worst-case backlog with the present tenants.
    pub backlog_bytes: u64,
    /// The unreserved part of the rate or the buffer, the lower of the two, in thousandths.
    pub headroom: u16,
}

/// The result of a drain, a failure or a restore of hosts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HostChange {
    /// The host, rack or pod.
    pub node: String,
    /// The new state of its hosts.
    pub state: HostState,
    /// The number of its hosts.
    pub hosts: u32,
    /// The tenants with machines on these hosts; empty for a restore.
    pub affected: Vec<Affected>,
}

/// A tenant with machines on closed hosts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Affected {
    /// The tenant's number.
    pub tenant: TenantId,
    /// The tenant's owner.
    pub owner: String,
    /// The tenant's name.
    pub name: String,
    /// The number of the tenant's machines on these hosts.
    pub lost: u32,
    /// A placement of the whole tenant without these hosts; empty if there is none.
    pub refit: Vec<HostShare>,
    /// The reason why there is no other placement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<String>,
}

/// The data centre in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TopologyState {
    /// The revision of the topology, which rises with each change; also the `ETag`.
    pub revision: u64,
    /// The admission policy.
    pub policy: Policy,
    /// The description of the tree.
    pub spec: Spec,
}

/// The difference to another topology.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TopologyDiff {
    /// The compared revision, or the new one after an apply.
    pub revision: u64,
    /// Names of hosts, racks and pods that are new.
    pub added: Vec<String>,
    /// Names of hosts, racks and pods that are gone.
    pub removed: Vec<String>,
    /// Nodes whose position, slots or links differ, with the difference.
    pub changed: Vec<NodeChange>,
    /// Tenants whose guarantee would break, or whose hosts would be removed. The topology is
    /// applied only if this list is empty.
    pub broken: Vec<Broken>,
}

/// A host, rack or pod that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NodeChange {
    /// The name.
    pub name: String,
    /// The difference, such as `slots: 8, was 4`.
    pub what: String,
}

/// A tenant whose guarantee would break in another topology.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Broken {
    /// The tenant's number.
    pub tenant: TenantId,
    /// The tenant's owner.
    pub owner: String,
    /// The tenant's name.
    pub name: String,
    /// The guarantee that would break, or the host that would be removed.
    pub why: String,
}

/// The upper bound of a frame's delay between two machines of one tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PairBound {
    /// The sender's number.
    pub from: u32,
    /// The receiver's number.
    pub to: u32,
    /// The sender's host.
    pub from_host: String,
    /// The receiver's host.
    pub to_host: String,
    /// The delay class of the frames; absent for the ordinary class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<u8>,
    /// The guaranteed delay, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub promised: Option<Nanos>,
    /// The sum of the queue capacities: a bound that later tenants do not change.
    pub capacity: Nanos,
    /// The sum of the bounds with the present tenants.
    pub now: Nanos,
    /// The latency of the tenant's message, with the CPU at both ends; absent if the tenant has no
    /// message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<MessageBound>,
    /// Each port on the path.
    pub ports: Vec<PortState>,
}

/// The guarantees of the machines on a host. The service sends the whole state after each change,
/// and at intervals without one, so that silence means an unreachable service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HostGuarantees {
    /// The host.
    pub host: String,
    /// The administrative state of the host.
    pub state: HostState,
    /// The revision of this host's guarantees, which rises with each change.
    pub revision: u64,
    /// The number of the latest change of a tenant in these guarantees. The host reports it once it
    /// follows them.
    #[serde(default)]
    pub change: u64,
    /// The priority classes of the topology, which must be the host's, too. The default is
    /// guarantees first, with the default marks.
    #[serde(default)]
    pub classes: Classes,
    /// The delay classes of the topology, the highest first: the first is `class` 1 of a guarantee.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub delay_classes: Vec<DelayClassSpec>,
    /// The machines in ascending order of owner, name and number.
    pub vms: Vec<VmGuarantee>,
    /// The positions of all hosts with machines of the tenants above that have a number of `bursts`
    /// into each subtree, in ascending order of their names. The pacer limits bursts for each
    /// subtree that has a receiver's host and not this host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub places: Vec<HostPlace>,
}

/// The position of a host in the tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HostPlace {
    /// The host.
    pub host: String,
    /// The groups above it, from the nearest to the highest: rack, pod. Two hosts are in one
    /// subtree if both have its group.
    pub path: Vec<String>,
}

/// The guarantee of a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct VmGuarantee {
    /// The machine's name, `OWNER/NAME/NUMBER`.
    pub vm: String,
    /// The tenant's number.
    pub tenant: TenantId,
    /// The number of machines of the whole tenant.
    pub tenant_vms: u32,
    /// The guarantee; absent for best effort.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guarantee: Option<Guarantee>,
    /// The CPU that is reserved for the machine on this host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_reservation: Option<CpuReservation>,
    /// The rate limits. For a direction that is left out, the host's configuration applies.
    #[serde(default, skip_serializing_if = "VmLimit::is_none")]
    pub limit: VmLimit,
    /// The role of this host in the move of the machine, if it moves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moves: Option<MoveEnd>,
}

/// A node of the map: a host, rack, pod or the core.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct MapNode {
    /// The name.
    pub name: String,
    /// The height: 0 for a host, 1 for a rack.
    pub height: u8,
    /// The state of its hosts, if all have the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<HostState>,
    /// The hosts below.
    #[serde(flatten)]
    pub counts: MapCounts,
    /// For a host, the state of its reports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub following: Option<Following>,
    /// The number of machine slots of the hosts.
    pub slots: u32,
    /// The number of used slots.
    pub used: u32,
    /// The headroom of the scarcer port of the node's own link, in thousandths; 1000 for the core,
    /// which has no link.
    pub headroom: u16,
    /// The lowest headroom of all ports at or below the node.
    pub least: u16,
    /// The ports of the node's own link, for the requested node and nodes with listed children;
    /// empty for the core.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<PortState>,
    /// The nodes directly below, down to the requested depth.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "openapi", schema(no_recursion))]
    pub children: Vec<MapNode>,
}

/// The hosts at or below a node of the map.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct MapCounts {
    /// The number of hosts.
    pub hosts: u32,
    /// The number of hosts that refuse a guarantee or are silent.
    pub troubled: u32,
    /// The number of hosts whose link has less than 10 % headroom.
    #[serde(default)]
    pub tight: u32,
}

/// The role of a replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// The replica decides.
    Leader,
    /// The replica answers reads and forwards writes to the leader.
    Follower,
}

/// A summary of the service and the data centre.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Status {
    /// tailbound's version.
    pub version: String,
    /// The role of this replica.
    pub role: Role,
    /// The leader's URL, if another replica leads and is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader: Option<String>,
    /// The revision of the ledger, which rises with each change.
    pub revision: u64,
    /// The admission policy.
    pub policy: Policy,
    /// The number of tenants.
    pub tenants: u64,
    /// The number of tenants that wait for a host's confirmation.
    #[serde(default)]
    pub pending: u64,
    /// The number of tenants with a host that does not enforce their guarantee.
    #[serde(default)]
    pub degraded: u64,
    /// The number of hosts.
    pub hosts: u64,
    /// The number of open hosts.
    pub open_hosts: u64,
    /// The number of machine slots.
    pub slots: u64,
    /// The number of used slots.
    pub used: u64,
}

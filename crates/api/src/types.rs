//! The documents that the service and its clients exchange.
//!
//! Quantities are texts with their unit, as in all of tailbound's files
//! (`"1Gbit/s"`, `"100KB"`, `"1ms"`); numbers whose unit is part of their name
//! (`_ns`, `_bytes`, `_bit_s`) are for charts and programs.

use crate::limit::VmLimit;
use crate::message::MessageBound;
use crate::moving::{MoveEnd, Moving};
use crate::standing::{Following, HostWord, Standing};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use tailbound_classes::Classes;
use tailbound_placement::{
    CpuReservation, CpuUse, FaultDomains, Guarantee, Message, Policy, Request, Spec, TenantId,
};
use tailbound_units::{Bytes, Nanos};

/// A request for a new tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewTenant {
    /// Unique among the tenants of one owner: 1 to 63 of `a-z`, `0-9` and `-`,
    /// neither first nor last a `-`.
    #[cfg_attr(
        feature = "openapi",
        schema(pattern = "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")
    )]
    pub name: String,
    /// The owner. An operator must name it; with a tenant's own token it is the token's owner, and
    /// no other is accepted. It has the same form as a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "openapi",
        schema(pattern = "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")
    )]
    pub owner: Option<String>,
    /// N, the number of machines.
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 4_294_967_295_u64))]
    pub vms: u32,
    /// The guarantee for the traffic of each machine; best effort without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guarantee: Option<Guarantee>,
    /// The CPU of each machine, in thousandths of a CPU.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(maximum = 4_398_046_511_104_u64))]
    pub cpu: u64,
    /// The memory of each machine.
    #[serde(default)]
    pub memory: Bytes,
    /// How the machines are kept apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domains: Option<FaultDomains>,
    /// The CPU that is reserved for each machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_reservation: Option<CpuReservation>,
    /// What each machine sends as one, of which the latency is to be known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<Message>,
    /// What each machine may send and be sent at most. Only an operator can say it.
    #[serde(default, skip_serializing_if = "VmLimit::is_none")]
    pub limit: VmLimit,
}

/// Returns whether a text can be the name of a tenant or an owner: 1 to 63 of `a-z`, `0-9` and `-`,
/// neither first nor last a `-`.
pub fn is_name(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=63).contains(&text.len())
        && text.bytes().all(inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

impl NewTenant {
    /// Returns the request to the data centre, without the names.
    pub fn request(&self) -> Request {
        Request {
            vms: self.vms,
            guarantee: self.guarantee,
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
/// A machine keeps its number for life: it is `OWNER/NAME/NUMBER` everywhere.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// The first number.
    pub first: u32,
    /// The number of machines.
    pub count: u32,
    /// The host's name. A service keeps a hundred thousand tenants and replies: all share the
    /// names that its topology has.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub host: Arc<str>,
}

/// An admitted tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Tenant {
    /// The tenant's number, which is never used again.
    pub id: TenantId,
    /// The tenant's owner.
    pub owner: String,
    /// The tenant's name, unique among those of the owner.
    pub name: String,
    /// The request that was admitted, and so is promised.
    pub request: Request,
    /// What each machine may send and be sent at most.
    #[serde(default, skip_serializing_if = "VmLimit::is_none")]
    pub limit: VmLimit,
    /// Where the machines are, in ascending order of their numbers.
    pub runs: Vec<Run>,
    /// The machine that is on its way to another host, if one is. Where it is now, the runs say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moving: Option<Moving>,
    /// The number of its last change, among those of all tenants: hosts say up to which they
    /// follow.
    #[serde(default)]
    pub change: u64,
    /// How it is with what it is promised; absent where nobody asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub standing: Option<Standing>,
}

impl Tenant {
    /// What is reserved: a machine that is on its way counts on both of its hosts.
    pub fn reserved(&self) -> Request {
        match self.moving {
            Some(_) => self.request.with_one_more(),
            None => self.request,
        }
    }

    /// The hosts where it has places.
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

/// A change of a tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Resize {
    /// The new number of machines. Those that stay are not moved.
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 4_294_967_295_u64))]
    pub vms: u32,
}

/// Machines on a host, where their tenant does not matter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Placed {
    /// The host's name.
    pub host: String,
    /// The number of machines.
    pub vms: u32,
}

/// Whether a request would be admitted now, and if not, why, and which requests would.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Explanation {
    /// Whether it would be admitted.
    pub fits: bool,
    /// Where its machines would go; empty if it does not fit.
    pub hosts: Vec<Placed>,
    /// The rule that refused, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<String>,
    /// The port that refused, at the place that came nearest to fitting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overload: Option<Overload>,
    /// Requests that would be admitted now and differ in one number each.
    pub nearest: Vec<Nearest>,
}

/// A port that would carry too much.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Overload {
    /// The port's name, such as `rack1 up`.
    pub port: String,
    /// The whole report in one sentence.
    pub message: String,
    /// The rate of the link.
    pub rate_bit_s: u64,
    /// The most bytes that may wait, so that no frame waits longer than the capacity.
    pub room_bytes: u64,
    /// The most bytes that would wait at worst; absent if they have no bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backlog_bytes: Option<u64>,
    /// How long a frame may wait there: the queue's capacity.
    pub capacity_ns: u64,
    /// How much longer a frame would wait at worst; absent if that has no bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub late_ns: Option<u64>,
    /// The arrival curve of the port's present traffic: the least of these lines.
    pub carried: Vec<Line>,
    /// The arrival curve that the request would add.
    pub added: Vec<Line>,
    /// The most that the links before the port can bring together; absent at a host's own queue.
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

/// A request that would be admitted, with one number changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Nearest {
    /// The difference in words: `a burst of 68.35KB`.
    pub change: String,
    /// The whole request.
    pub request: Request,
}

/// Whether a host gets machines.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum HostState {
    /// It gets machines.
    #[default]
    Open,
    /// It gets no more machines; its machines run until they are moved or deleted.
    Drained,
    /// It is broken, and so are its machines.
    Failed,
}

impl HostState {
    /// Returns the word for it in JSON.
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
    /// The groups that it is in, from the nearest to the highest: rack, pod.
    pub path: Vec<String>,
    /// Whether it gets machines.
    pub state: HostState,
    /// The slots for machines.
    pub slots: u32,
    /// How many of them are used.
    pub used: u32,
    /// The classes that it gives frames, as it said, where they are not the topology's: no
    /// promise holds that its machines' frames are part of, and it gets no machines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other_classes: Option<Classes>,
    /// What is reserved of its CPU.
    #[serde(default)]
    pub reserved_cpu: CpuUse,
    /// What it said of its guarantees.
    #[serde(default)]
    pub said: HostWord,
    /// The machines there. Empty in lists.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vms: Vec<HostedRun>,
    /// The two ports of its link. Empty in lists.
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

/// A port: a queue and its link, and what is promised over it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PortState {
    /// The port's name, such as `rack1 up`.
    pub name: String,
    /// The rate of the link.
    pub rate_bit_s: u64,
    /// The sum of the tenants' average rates.
    pub reserved_bit_s: u64,
    /// The queue's capacity: how long a frame may wait.
    pub capacity_ns: u64,
    /// How long a frame waits at worst with the present tenants.
    pub bound_ns: u64,
    /// The most bytes that may wait.
    pub room_bytes: u64,
    /// The most bytes that wait at worst with the present tenants.
    pub backlog_bytes: u64,
    /// What is left of the scarcer of the rate and the buffer, in thousandths.
    pub headroom: u16,
}

/// The result of a drain, a failure or a return of hosts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HostChange {
    /// The host, rack or pod.
    pub node: String,
    /// The new state of its hosts.
    pub state: HostState,
    /// The number of its hosts.
    pub hosts: u32,
    /// The tenants with machines there, none for a return.
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
    /// How many of its machines are there.
    pub lost: u32,
    /// Where all of it would fit if those were moved; empty if nowhere.
    pub refit: Vec<Placed>,
    /// Why it would fit nowhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<String>,
}

/// The data centre in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TopologyState {
    /// Rises with each change of the topology; also the `ETag`.
    pub revision: u64,
    /// The rules of admission.
    pub policy: Policy,
    /// The description of the tree.
    pub spec: Spec,
}

/// What another topology would change.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TopologyDiff {
    /// The topology's revision that this compares with, or after an apply the
    /// new one.
    pub revision: u64,
    /// Names of hosts, racks and pods that are new.
    pub added: Vec<String>,
    /// Names of hosts, racks and pods that are gone.
    pub removed: Vec<String>,
    /// Names whose place, slots or links differ, and how.
    pub changed: Vec<NodeChange>,
    /// Tenants whose promise would not hold any more, or whose hosts would be
    /// gone. While there are any, the topology is not applied.
    pub broken: Vec<Broken>,
}

/// A host, rack or pod that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NodeChange {
    /// Its name.
    pub name: String,
    /// What differs, such as `slots: 8, was 4`.
    pub what: String,
}

/// A tenant whose promise would not hold in another topology.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Broken {
    /// The tenant's number.
    pub tenant: TenantId,
    /// The tenant's owner.
    pub owner: String,
    /// The tenant's name.
    pub name: String,
    /// The promise that would not hold, or the host that would be gone.
    pub why: String,
}

/// How long a frame takes at most between two machines of one tenant.
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
    /// The promised delay, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub promised: Option<Nanos>,
    /// The sum of the queue capacities, which is a bound whatever tenants are admitted later.
    pub capacity: Nanos,
    /// The sum of the bounds with the present tenants.
    pub now: Nanos,
    /// How long the tenant's message takes, with the CPU at both ends; absent where the tenant did
    /// not say what it sends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<MessageBound>,
    /// Each port on the path.
    pub ports: Vec<PortState>,
}

/// The guarantees of the machines on a host: sent whole on each change, and at intervals without
/// one, so that silence means that the service is away.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HostGuarantees {
    /// The host.
    pub host: String,
    /// Whether it gets machines.
    pub state: HostState,
    /// Rises with each change of this host's guarantees, and never falls.
    pub revision: u64,
    /// The number of the latest change of any tenant that they are of: the host says it when it
    /// follows them.
    #[serde(default)]
    pub change: u64,
    /// The classes of the fabric, by the topology: the host must have the same. Guarantees first,
    /// with the default marks, if left out.
    #[serde(default)]
    pub classes: Classes,
    /// In ascending order of owner, name and number.
    pub vms: Vec<VmGuarantee>,
}

/// The guarantee of a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct VmGuarantee {
    /// `OWNER/NAME/NUMBER`.
    pub vm: String,
    /// The tenant's number.
    pub tenant: TenantId,
    /// The number of all machines of the tenant.
    pub tenant_vms: u32,
    /// The guarantee; absent for best effort.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guarantee: Option<Guarantee>,
    /// The CPU that is reserved for it there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_reservation: Option<CpuReservation>,
    /// What it may send and be sent at most; of what is left out the host's own file says.
    #[serde(default, skip_serializing_if = "VmLimit::is_none")]
    pub limit: VmLimit,
    /// Which end of its way the host is, for a machine that is on its way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moves: Option<MoveEnd>,
}

/// The keys that a host signs with what it says to other hosts about rates: those of its own
/// pairs and no others, of the two latest epochs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HoseKeys {
    /// The host.
    pub host: String,
    /// How long an epoch is.
    pub period: Nanos,
    /// In how long the next one begins.
    pub next: Nanos,
    /// The latest epoch last.
    pub epochs: Vec<HoseKeyEpoch>,
}

/// The keys of one epoch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HoseKeyEpoch {
    /// Its number, which is not 0; the later the higher.
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 4_294_967_295_u64))]
    pub epoch: u32,
    /// The key with each other host of the topology.
    pub keys: BTreeMap<String, PairKeyText>,
}

/// The key of two hosts, in 64 hexadecimal digits. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(pattern = "^[0-9a-f]{64}$"))]
#[serde(transparent)]
pub struct PairKeyText(pub String);

impl fmt::Debug for PairKeyText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PairKeyText")
    }
}

/// A node of the map: a host, rack, pod or the core.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct MapNode {
    /// Its name.
    pub name: String,
    /// 0 for a host, 1 for a rack.
    pub height: u8,
    /// The state of its hosts, if all have the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<HostState>,
    /// The number of hosts below.
    pub hosts: u32,
    /// How many of them refuse something that is promised, or are silent.
    pub troubled: u32,
    /// Whether it follows its guarantees; of a host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub following: Option<Following>,
    /// The slots for machines on them.
    pub slots: u32,
    /// How many of these are used.
    pub used: u32,
    /// What is left of the scarcer port of its own link, in thousandths; 1000 for the core, which
    /// has no link.
    pub headroom: u16,
    /// The least headroom of any port at or below the node.
    pub least: u16,
    /// The ports of its own link, for the requested node and those that are listed with their
    /// children; none for the core.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<PortState>,
    /// The nodes directly below, down to the requested depth.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "openapi", schema(no_recursion))]
    pub children: Vec<MapNode>,
}

/// The role of a replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// It decides.
    Leader,
    /// It answers reads and forwards writes to the leader.
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
    /// Rises with each change.
    pub revision: u64,
    /// The rules of admission.
    pub policy: Policy,
    /// The number of tenants.
    pub tenants: u64,
    /// How many of them wait for a host to say that it keeps what they are promised.
    #[serde(default)]
    pub pending: u64,
    /// How many of them have a host that does not keep what they are promised.
    #[serde(default)]
    pub degraded: u64,
    /// The number of hosts.
    pub hosts: u64,
    /// How many of them are open.
    pub open_hosts: u64,
    /// The slots for machines.
    pub slots: u64,
    /// How many of them are used.
    pub used: u64,
}

/// An error, as RFC 9457 has it (`application/problem+json`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Problem {
    /// The kind of the error, for programs.
    pub code: Code,
    /// The HTTP status.
    pub status: u16,
    /// What is wrong, where, and what would be right.
    pub detail: String,
    /// The field of the body that is wrong, such as `guarantee.bandwidth`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)
    }
}

/// The kinds of errors; each has one HTTP status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Code {
    /// 400: not JSON, an unknown field, a wrong type; a bad query or header.
    Malformed,
    /// 401: no token, or one that is not known.
    Unauthenticated,
    /// 403: the token's role may not do this.
    Forbidden,
    /// 403: the owner would have more than its quota.
    Quota,
    /// 404: there is no such thing, or it is another's.
    NotFound,
    /// 405: the path is right, the method is not.
    MethodNotAllowed,
    /// 409: there is no place where every promise would hold.
    Refused,
    /// 409: the owner has a tenant of this name.
    Exists,
    /// 409: a topology that would break promises.
    Breaks,
    /// 412: the topology is not the one that was compared with.
    Changed,
    /// 413: the body is too long.
    TooLarge,
    /// 415: the body is not said to be JSON.
    MediaType,
    /// 422: well formed, but zero, absurd or contradicting.
    Absurd,
    /// 422: the idempotency key was used for another request.
    KeyReused,
    /// 429: this token, or this address without one, asks too often.
    TooMany,
    /// 503: no leader is known, or it does not answer; nothing was changed, or
    /// it is not known: try again with the same idempotency key.
    Unavailable,
    /// 507: the store has no space; nothing was changed.
    NoSpace,
    /// 500: the store failed otherwise; nothing was changed.
    Store,
}

impl Code {
    /// The HTTP status of this kind.
    pub const fn status(self) -> u16 {
        match self {
            Self::Malformed => 400,
            Self::Unauthenticated => 401,
            Self::Forbidden | Self::Quota => 403,
            Self::NotFound => 404,
            Self::MethodNotAllowed => 405,
            Self::Refused | Self::Exists | Self::Breaks => 409,
            Self::Changed => 412,
            Self::TooLarge => 413,
            Self::MediaType => 415,
            Self::Absurd | Self::KeyReused => 422,
            Self::TooMany => 429,
            Self::Unavailable => 503,
            Self::NoSpace => 507,
            Self::Store => 500,
        }
    }
}

//! What goes over the wire, in both directions.
//!
//! Quantities are texts with their unit, as in all of tailbound's files
//! (`"1Gbit/s"`, `"100KB"`, `"1ms"`); numbers whose unit is part of their name
//! (`_ns`, `_bytes`, `_bit_s`) are for charts and programs.

use serde::{Deserialize, Serialize};
use std::fmt;
use tailbound_placement::{FaultDomains, Guarantee, Policy, Request, Spec, TenantId};
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
    /// Whose it is. An operator must say it; for a tenant's own token it is the
    /// token's owner, and nothing else is accepted. Same form as a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "openapi",
        schema(pattern = "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")
    )]
    pub owner: Option<String>,
    /// N, the number of machines.
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 4_294_967_295_u64))]
    pub vms: u32,
    /// What the traffic of each machine is promised; best effort without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guarantee: Option<Guarantee>,
    /// Of each machine, in thousandths of a CPU.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(maximum = 4_398_046_511_104_u64))]
    pub cpu: u64,
    /// Of each machine.
    #[serde(default)]
    pub memory: Bytes,
    /// How the machines are kept apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domains: Option<FaultDomains>,
}

/// Whether this can be a tenant's or an owner's name: 1 to 63 of `a-z`, `0-9`
/// and `-`, neither first nor last a `-`.
pub fn is_name(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=63).contains(&text.len())
        && text.bytes().all(inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

impl NewTenant {
    /// What is asked of the data centre.
    pub fn request(&self) -> Request {
        Request {
            vms: self.vms,
            guarantee: self.guarantee,
            cpu: self.cpu,
            memory: self.memory,
            domains: self.domains,
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
    /// How many.
    pub count: u32,
    /// The host's name.
    pub host: String,
}

/// An admitted tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Tenant {
    /// Its number, never used again.
    pub id: TenantId,
    /// Whose it is.
    pub owner: String,
    /// Its name among the owner's.
    pub name: String,
    /// What was asked for and is promised.
    pub request: Request,
    /// Where the machines are, in ascending order of their numbers.
    pub runs: Vec<Run>,
}

/// One page of a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Page<T> {
    /// In ascending order.
    pub items: Vec<T>,
    /// What to give as `after` for the next page; absent on the last one.
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
    /// How many machines.
    pub vms: u32,
}

/// Whether a request would pass now, and if not, why and what would.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Explanation {
    /// Whether it would pass.
    pub fits: bool,
    /// Where it would go; empty if it does not fit.
    pub hosts: Vec<Placed>,
    /// Which rule refused, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<String>,
    /// The port that refused, in the place where least was missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overload: Option<Overload>,
    /// Requests that would pass now and differ in one number each.
    pub nearest: Vec<Nearest>,
}

/// A port that would carry too much.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Overload {
    /// Such as `rack1 up`.
    pub port: String,
    /// All of it in one sentence.
    pub message: String,
    /// What the link sends.
    pub rate_bit_s: u64,
    /// How much may wait, so that nobody waits longer than the capacity.
    pub room_bytes: u64,
    /// How much would wait at worst; absent if there is no end to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backlog_bytes: Option<u64>,
    /// How long a frame may wait there: the queue's capacity.
    pub capacity_ns: u64,
    /// By how much a frame would wait longer; absent if there is no end to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub late_ns: Option<u64>,
    /// The arrival curve of what the port carries now: the least of these lines.
    pub carried: Vec<Line>,
    /// The same of what the request would add.
    pub added: Vec<Line>,
    /// What the links before the port can bring together; absent at a host's
    /// own queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub feed: Option<Line>,
}

/// A line of a curve: at time t there are at most `burst + rate * t` bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Line {
    /// The slope.
    pub rate_bit_s: u64,
    /// The start.
    pub burst_bits: u64,
}

/// A request that would pass, with one number changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Nearest {
    /// What is different, in words: `a burst of 68.35KB`.
    pub change: String,
    /// The whole request.
    pub request: Request,
}

/// Whether hosts get machines.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum HostState {
    /// They do.
    #[default]
    Open,
    /// They get no more; those there run until they are moved or deleted.
    Drained,
    /// They are broken, and with them the machines there.
    Failed,
}

impl HostState {
    /// As it is on the wire.
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
    /// Its name.
    pub name: String,
    /// What it is in, from the nearest to the highest: rack, pod.
    pub path: Vec<String>,
    /// Whether it gets machines.
    pub state: HostState,
    /// Places for machines.
    pub slots: u32,
    /// How many of them are taken.
    pub used: u32,
    /// Who has machines there. Empty in lists.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vms: Vec<HostedRun>,
    /// Its link's two ports. Empty in lists.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<PortState>,
}

/// Machines on a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HostedRun {
    /// Whose.
    pub tenant: TenantId,
    /// The tenant's owner.
    pub owner: String,
    /// The tenant's name.
    pub name: String,
    /// The first machine's number.
    pub first: u32,
    /// How many.
    pub count: u32,
}

/// A queue and its link, and what is promised over it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PortState {
    /// Such as `rack1 up`.
    pub name: String,
    /// What the link sends.
    pub rate_bit_s: u64,
    /// The sum of the tenants' average rates.
    pub reserved_bit_s: u64,
    /// The queue's capacity: how long a frame may wait.
    pub capacity_ns: u64,
    /// How long a frame waits at worst with the tenants there are.
    pub bound_ns: u64,
    /// How much may wait.
    pub room_bytes: u64,
    /// How much waits at worst with the tenants there are.
    pub backlog_bytes: u64,
    /// What is left of the scarcer of rate and room, in thousandths of it.
    pub headroom: u16,
}

/// What a drain, a failure or a return of hosts means.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HostChange {
    /// The host, rack or pod.
    pub node: String,
    /// What its hosts are now.
    pub state: HostState,
    /// How many hosts that are.
    pub hosts: u32,
    /// The tenants with machines there, none for a return.
    pub affected: Vec<Affected>,
}

/// A tenant with machines on closed hosts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Affected {
    /// Which.
    pub tenant: TenantId,
    /// Its owner.
    pub owner: String,
    /// Its name.
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
    /// Counts up with each change of the topology; also the `ETag`.
    pub revision: u64,
    /// By which rules is admitted.
    pub policy: Policy,
    /// The description.
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
    /// Names that are no more.
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

/// A tenant that another topology has no room for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Broken {
    /// Which.
    pub tenant: TenantId,
    /// Its owner.
    pub owner: String,
    /// Its name.
    pub name: String,
    /// Why.
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
    /// What was promised, if anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub promised: Option<Nanos>,
    /// The sum of the queue capacities: whoever else comes, it is no more.
    pub capacity: Nanos,
    /// The sum of the bounds with the tenants there are now.
    pub now: Nanos,
    /// Each queue on the way.
    pub ports: Vec<PortState>,
}

/// What a host has to keep to: sent whole on each change, and now and then
/// without, so that silence means that the service is away.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HostGuarantees {
    /// The host.
    pub host: String,
    /// Whether it gets machines.
    pub state: HostState,
    /// Never falls; rises with each change of this host's guarantees.
    pub revision: u64,
    /// In ascending order of owner, name and number.
    pub vms: Vec<VmGuarantee>,
}

/// What a machine is promised, and held to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct VmGuarantee {
    /// `OWNER/NAME/NUMBER`.
    pub vm: String,
    /// Its tenant.
    pub tenant: TenantId,
    /// How many machines the tenant has in all.
    pub tenant_vms: u32,
    /// None for best effort.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guarantee: Option<Guarantee>,
}

/// A node of the map: a host, rack, pod or the core.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct MapNode {
    /// Its name.
    pub name: String,
    /// 0 for a host, 1 for a rack.
    pub height: u8,
    /// What its hosts are, if all are the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<HostState>,
    /// Hosts below.
    pub hosts: u32,
    /// Places for machines on them.
    pub slots: u32,
    /// How many of these are taken.
    pub used: u32,
    /// What is left of its own link's scarcer port, in thousandths; all of it
    /// for the core, which has none.
    pub headroom: u16,
    /// The least headroom of any port at or below the node.
    pub least: u16,
    /// Its own link's ports, for the node that was asked for and those that are
    /// listed with what is below them; none for the core.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<PortState>,
    /// What is directly below, as deep as was asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "openapi", schema(no_recursion))]
    pub children: Vec<MapNode>,
}

/// What a replica does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// It decides.
    Leader,
    /// It answers reads, and sends the rest to the leader.
    Follower,
}

/// The service and the data centre in short.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Status {
    /// tailbound's version.
    pub version: String,
    /// What this replica does.
    pub role: Role,
    /// Where the leader is, if this is not it and it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader: Option<String>,
    /// Rises with each change.
    pub revision: u64,
    /// By which rules is admitted.
    pub policy: Policy,
    /// How many tenants there are.
    pub tenants: u64,
    /// How many hosts.
    pub hosts: u64,
    /// How many of them are open.
    pub open_hosts: u64,
    /// Places for machines.
    pub slots: u64,
    /// How many of them are taken.
    pub used: u64,
}

/// An error, as RFC 9457 has it (`application/problem+json`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Problem {
    /// Which kind, for programs; see [`Problem::code`].
    pub code: Code,
    /// The HTTP status.
    pub status: u16,
    /// What is wrong, where, and what would be right.
    pub detail: String,
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
            Self::Forbidden => 403,
            Self::NotFound => 404,
            Self::MethodNotAllowed => 405,
            Self::Refused | Self::Exists | Self::Breaks => 409,
            Self::Changed => 412,
            Self::TooLarge => 413,
            Self::MediaType => 415,
            Self::Absurd | Self::KeyReused => 422,
            Self::Unavailable => 503,
            Self::NoSpace => 507,
            Self::Store => 500,
        }
    }
}

//! The state: who is where, and what every port carries.
//!
//! Each port has the sum of its tenants' curves, each node the free slots of
//! all hosts below it and bounds on the best of them. A change updates the ports
//! that it is about and the nodes above them; a decision only reads.

mod best;
mod bound;
mod change;
mod explain;
mod index;
mod limits;
mod ports;
mod search;

pub use bound::Bound;
pub use change::Affected;
pub use explain::{Explanation, Near, Overload};
pub use search::Refusal;

use crate::load::Load;
use crate::request::{Policy, Request, RequestError};
use crate::topology::{NodeId, PortId, Resources, Topology};
use best::BestPorts;
use index::Largest;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use tailbound_units::Bytes;

/// A tenant's number, which its owner chooses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(transparent)]
pub struct TenantId(pub u64);

/// How many machines each host gets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Placement {
    /// Hosts in ascending order, each once, with at least one machine.
    hosts: Vec<(NodeId, u32)>,
}

impl Placement {
    /// A placement from hosts in any order; a host that is named twice gets
    /// both.
    pub fn new(hosts: impl IntoIterator<Item = (NodeId, u32)>) -> Self {
        let mut sums: BTreeMap<NodeId, u32> = BTreeMap::new();
        for (host, count) in hosts.into_iter().filter(|(_, count)| *count > 0) {
            let sum = sums.entry(host).or_default();
            *sum = sum.saturating_add(count);
        }
        Self {
            hosts: sums.into_iter().collect(),
        }
    }

    /// The hosts in ascending order, and how many machines each has.
    pub fn hosts(&self) -> &[(NodeId, u32)] {
        &self.hosts
    }

    /// The machines in all.
    pub fn vms(&self) -> u64 {
        self.hosts.iter().map(|(_, count)| u64::from(*count)).sum()
    }
}

/// Who has a reservation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tenant {
    /// What was asked for.
    pub request: Request,
    /// Where it is.
    pub placement: Placement,
}

/// Why a change was not made; nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AdmitError {
    /// The request makes no sense.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// There is no place where every promise would hold.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The number is taken.
    #[error("there is a tenant {} already", .0.0)]
    Exists(TenantId),
    /// No such tenant.
    #[error("there is no tenant {}", .0.0)]
    Unknown(TenantId),
    /// A placement names what is not a host.
    #[error("node {0} is not a host")]
    NotAHost(usize),
    /// A placement has another number of machines than its request.
    #[error("the placement has {placed} machines, the request {vms}")]
    Count {
        /// In the placement.
        placed: u64,
        /// In the request.
        vms: u32,
    },
}

/// What is known of the hosts below a node, so that it can be passed over.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Summary {
    /// No host below that has a free slot has less load at its port: up, down.
    lightest: Option<[Load; 2]>,
    /// The most that any host below has free, each for itself.
    largest: Resources,
    /// The free slots of all hosts below that have at least 1, 2, ... free.
    by_least: [u32; STEPS],
}

/// Up to how many free slots of a host are told apart.
const STEPS: usize = 8;

/// A data centre with its tenants.
#[derive(Debug, Clone)]
pub struct Datacentre {
    /// Shared by clones.
    topology: Arc<Topology>,
    policy: Policy,
    /// What each node's ports carry, up and down.
    loads: Vec<[Load; 2]>,
    /// What each host has free, closed or not; for inner nodes what the open
    /// hosts below have.
    free: Vec<Resources>,
    /// Hosts that get no machines.
    closed: Vec<bool>,
    /// Each node's place among those of its height.
    rank: Vec<u32>,
    /// The free slots of the nodes of each height.
    slots: Vec<Largest>,
    /// By height less one, then rank.
    summaries: Vec<Vec<Summary>>,
    best: BestPorts,
    tenants: BTreeMap<TenantId, Tenant>,
    effort: u32,
    last_effort: u32,
}

impl Datacentre {
    /// An empty data centre.
    pub fn new(topology: impl Into<Arc<Topology>>, policy: Policy) -> Self {
        let topology: Arc<Topology> = topology.into();
        let heights = usize::from(topology.height(NodeId::TOP)) + 1;
        let mut rank = vec![0; topology.len()];
        let mut slots = Vec::with_capacity(heights);
        for height in 0..heights {
            let nodes = topology.at_height(height as u8);
            for (place, node) in nodes.iter().enumerate() {
                rank[node.index()] = place as u32;
            }
            slots.push(Largest::new(nodes.len()));
        }
        let empty = Summary {
            lightest: None,
            largest: Resources::default(),
            by_least: [0; STEPS],
        };
        let inner = |height: usize| topology.at_height(height as u8).len();
        let summaries = (1..heights)
            .map(|height| vec![empty.clone(); inner(height)])
            .collect();
        let mut new = Self {
            loads: vec![[Load::NONE; 2]; topology.len()],
            free: (0..topology.len())
                .map(|index| topology.resources(NodeId(index as u32)))
                .collect(),
            closed: vec![false; topology.len()],
            best: BestPorts::new(&topology, &rank),
            rank,
            slots,
            summaries,
            tenants: BTreeMap::new(),
            effort: search::EFFORT,
            last_effort: 0,
            topology,
            policy,
        };
        for height in 0..heights {
            for place in 0..new.topology.at_height(height as u8).len() {
                let node = new.topology.at_height(height as u8)[place];
                new.summarise(node);
            }
        }
        new
    }

    /// The tree of hosts.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// The rules.
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// How many ports a decision looks at before it gives up with
    /// [`Refusal::Effort`]: 20,000 if not set, in less than half a
    /// millisecond. More finds places that are hard to find.
    pub fn set_effort(&mut self, ports: u32) {
        self.effort = ports;
    }

    /// How many ports the last [`Self::admit`] looked at: what it cost, whatever
    /// the machine.
    pub fn last_effort(&self) -> u32 {
        self.last_effort
    }

    /// All tenants, by number.
    pub fn tenants(&self) -> impl Iterator<Item = (TenantId, &Tenant)> {
        self.tenants.iter().map(|(id, tenant)| (*id, tenant))
    }

    /// A tenant.
    pub fn tenant(&self, id: TenantId) -> Option<&Tenant> {
        self.tenants.get(&id)
    }

    /// What a port carries.
    pub fn load(&self, port: PortId) -> &Load {
        &self.loads[port.node.index()][port.direction as usize]
    }

    /// What a host has free, or the open hosts below a node; nothing of a
    /// closed host.
    pub fn free(&self, node: NodeId) -> Resources {
        if self.closed[node.index()] {
            Resources::default()
        } else {
            self.free[node.index()]
        }
    }

    /// Whether a host is closed: drained or failed.
    pub fn is_closed(&self, host: NodeId) -> bool {
        self.closed[host.index()]
    }

    /// Where the tenant would be placed. Nothing is reserved.
    pub fn fit(&self, request: &Request) -> Result<Placement, AdmitError> {
        request.check()?;
        Ok(search::fit(self, request, self.effort).0?)
    }

    /// Finds a place and reserves it whole.
    ///
    /// # Errors
    /// The number is taken, the request makes no sense or does not fit. Then
    /// nothing has changed.
    pub fn admit(&mut self, id: TenantId, request: &Request) -> Result<&Placement, AdmitError> {
        if self.tenants.contains_key(&id) {
            return Err(AdmitError::Exists(id));
        }
        request.check()?;
        let (found, looked_at) = search::fit(self, request, self.effort);
        self.last_effort = looked_at;
        Ok(self.reserve(id, *request, found?))
    }

    /// Reserves a placement that was found before, by this or another one, if
    /// every promise would hold. Its hosts may be closed: they were closed after
    /// it was made.
    ///
    /// The same tenants and closed hosts are accepted in any order, and give the
    /// same state.
    ///
    /// # Errors
    /// As for [`Self::admit`], or the placement is not one of this request in
    /// this tree.
    pub fn restore(
        &mut self,
        id: TenantId,
        request: &Request,
        placement: Placement,
    ) -> Result<(), AdmitError> {
        request.check()?;
        if self.tenants.contains_key(&id) {
            return Err(AdmitError::Exists(id));
        }
        for (host, _) in &placement.hosts {
            if host.index() >= self.topology.len() || !self.topology.is_host(*host) {
                return Err(AdmitError::NotAHost(host.index()));
            }
        }
        if placement.vms() != u64::from(request.vms) {
            return Err(AdmitError::Count {
                placed: placement.vms(),
                vms: request.vms,
            });
        }
        self.verify(request, &placement)?;
        self.reserve(id, *request, placement);
        Ok(())
    }

    /// Undoes an admission exactly.
    pub fn release(&mut self, id: TenantId) -> Result<Tenant, AdmitError> {
        let tenant = self.tenants.remove(&id).ok_or(AdmitError::Unknown(id))?;
        self.apply(&tenant, false);
        Ok(tenant)
    }

    fn reserve(&mut self, id: TenantId, request: Request, placement: Placement) -> &Placement {
        let tenant = Tenant { request, placement };
        self.apply(&tenant, true);
        // All callers know that the number is free.
        &self.tenants.entry(id).or_insert(tenant).placement
    }

    /// Adds or takes away all that a tenant uses.
    fn apply(&mut self, tenant: &Tenant, add: bool) {
        let Self {
            topology, loads, ..
        } = self;
        ports::for_each_load(topology, self.policy, tenant, |port, load| {
            let had = &mut loads[port.node.index()][port.direction as usize];
            *had = if add { had.plus(load) } else { had.minus(load) };
        });
        let request = &tenant.request;
        for &(host, count) in &tenant.placement.hosts {
            let free = &mut self.free[host.index()];
            let (cpu, memory) = (
                request.cpu * u64::from(count),
                Bytes(request.memory.0 * u64::from(count)),
            );
            if add {
                free.slots -= count;
                free.cpu -= cpu;
                free.memory -= memory;
            } else {
                free.slots += count;
                free.cpu += cpu;
                free.memory += memory;
            }
        }
        let hosts: Vec<NodeId> = tenant
            .placement
            .hosts
            .iter()
            .map(|(host, _)| *host)
            .collect();
        self.refresh(hosts);
    }

    /// Brings the sums and bounds of these nodes and all above up to date.
    fn refresh(&mut self, mut nodes: Vec<NodeId>) {
        while !nodes.is_empty() {
            for &node in &nodes {
                self.summarise(node);
            }
            nodes = nodes
                .iter()
                .filter_map(|node| self.topology.parent(*node))
                .collect();
            nodes.sort_unstable();
            nodes.dedup();
            // A parent that is above another one comes later again.
        }
    }

    /// Sums and bounds of one node, from those directly below it.
    fn summarise(&mut self, node: NodeId) {
        let height = usize::from(self.topology.height(node));
        let rank = self.rank[node.index()] as usize;
        if height > 0 {
            let (sum, summary) = self.sum_of(node);
            self.free[node.index()] = sum;
            self.summaries[height - 1][rank] = summary;
        }
        let slots = self.free(node).slots;
        self.slots[height].set(rank, slots);
    }

    fn sum_of(&self, node: NodeId) -> (Resources, Summary) {
        let mut sum = Resources::default();
        let mut largest = Resources::default();
        let mut lightest: Option<[Load; 2]> = None;
        let mut by_least = [0; STEPS];
        for child in self.topology.children(node) {
            let free = self.free(child);
            if free.slots == 0 {
                continue;
            }
            sum.slots += free.slots;
            sum.cpu += free.cpu;
            sum.memory += free.memory;
            let (most, loads) = if let Some(below) = self.summary(child) {
                for (sum, slots) in by_least.iter_mut().zip(below.by_least) {
                    *sum += slots;
                }
                (below.largest, below.lightest.as_ref())
            } else {
                for sum in by_least.iter_mut().take(free.slots as usize) {
                    *sum += free.slots;
                }
                (free, Some(&self.loads[child.index()]))
            };
            largest.slots = largest.slots.max(most.slots);
            largest.cpu = largest.cpu.max(most.cpu);
            largest.memory = largest.memory.max(most.memory);
            if let Some(loads) = loads {
                let had = lightest.unwrap_or(*loads);
                lightest = Some([had[0].lower(&loads[0]), had[1].lower(&loads[1])]);
            }
        }
        let summary = Summary {
            lightest,
            largest,
            by_least,
        };
        (sum, summary)
    }

    /// None for a host.
    fn summary(&self, node: NodeId) -> Option<&Summary> {
        let height = usize::from(self.topology.height(node)).checked_sub(1)?;
        Some(&self.summaries[height][self.rank[node.index()] as usize])
    }
}

#[cfg(test)]
mod tests;

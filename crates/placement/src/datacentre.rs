//! The state of a data centre: the placement of tenants and the load of every port.
//!
//! Each port has the sum of its tenants' curves. Each node has the free slots of all hosts below
//! it, and bounds on the best of them. A change updates its ports and the nodes above them; a
//! decision only reads.

mod best;
mod bound;
mod change;
mod classes;
mod complete;
mod cpu;
mod error;
mod free;
mod index;
mod known;
mod limits;
mod loads;
mod moving;
mod offer;
pub mod pinned;
mod ports;
mod proof;
mod report;
mod restore;
mod search;
mod summary;
mod totals;

pub use bound::{Bound, bound_of_class};
pub use change::AffectedTenant;
pub use error::PlacementError;
pub use moving::MoveError;
pub use report::{Adjustment, PortOverload, RefusalReport};

use crate::cpu::CpuUse;
use crate::host::HostOffer;
use crate::load::Load;
use crate::pool::HostCpu;
use crate::request::{Policy, Request, RequestError};
use crate::topology::{NodeId, PortId, Resources, Topology};
use best::BestPorts;
use classes::PortLoads;
use free::{FreeResources, Use};
use index::Largest;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use summary::{Parts, Summary};

/// A tenant's number, which its owner chooses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(transparent)]
pub struct TenantId(pub u64);

/// The number of machines that each host gets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Placement {
    /// Hosts in ascending order, each once, with at least one machine.
    hosts: Vec<(NodeId, u32)>,
}

impl Placement {
    /// Makes a placement from hosts in any order. The machines of repeated hosts are added up.
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

    /// Returns the hosts in ascending order, and how many machines each has.
    pub fn hosts(&self) -> &[(NodeId, u32)] {
        &self.hosts
    }

    /// Returns the number of all machines.
    pub fn vms(&self) -> u64 {
        self.hosts.iter().map(|(_, count)| u64::from(*count)).sum()
    }
}

/// A tenant with a reservation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tenant {
    /// The request that was admitted.
    pub request: Request,
    /// The hosts of its machines.
    pub placement: Placement,
}

/// Reason why a change was not made; nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AdmitError {
    /// The request makes no sense.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// No placement keeps every promise.
    #[error(transparent)]
    NoPlacement(#[from] PlacementError),
    /// The number is taken.
    #[error("there is a tenant {} already", .0.0)]
    Exists(TenantId),
    /// The tenant does not exist.
    #[error("there is no tenant {}", .0.0)]
    Unknown(TenantId),
    /// A placement names a node that is not a host.
    #[error("node {0} is not a host")]
    NotAHost(usize),
    /// A placement has another number of machines than its request.
    #[error("the placement has {placed} machines, the request {vms}")]
    Count {
        /// The number in the placement.
        placed: u64,
        /// The number in the request.
        vms: u32,
    },
}

/// A data centre with its tenants.
#[derive(Debug, Clone)]
pub struct Datacentre {
    /// Shared by clones.
    topology: Arc<Topology>,
    policy: Policy,
    /// The loads of all ports.
    loads: PortLoads,
    /// The free resources of each host, closed or not; of an inner node those of the open hosts
    /// below.
    free: FreeResources,
    /// Hosts that get no machines.
    closed: Vec<bool>,
    /// Capacity of each host for guarantees, if it is known.
    offers: Vec<Option<Box<HostOffer>>>,
    /// True if hosts with unknown capacity are treated as paced ones.
    assumes_paced: bool,
    /// Sum of the guarantees of the machines on each host, in bits a second.
    promised: Vec<u64>,
    /// CPU of each host for reservations, if it was reported.
    cpus: Vec<Option<Box<HostCpu>>>,
    /// Reserved part of this CPU.
    reserved: Vec<CpuUse>,
    /// The index of each node among those of its height.
    rank: Vec<u32>,
    /// The free slots of the nodes of each height.
    slots: Vec<Largest>,
    /// The summaries of inner nodes, by height less one, then rank.
    summaries: Vec<Vec<Summary>>,
    /// The partial sums behind the summaries, by height less one, then rank.
    parts: Vec<Vec<Parts>>,
    best: BestPorts,
    tenants: BTreeMap<TenantId, Tenant>,
    effort: u32,
    last_effort: u32,
}

impl Datacentre {
    /// Makes an empty data centre.
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
        let inner = |height: usize| topology.at_height(height as u8);
        let summaries = (1..heights)
            .map(|height| vec![Summary::default(); inner(height).len()])
            .collect();
        let parts_of = |node: &NodeId| Parts::new(topology.child_range(*node).len());
        let parts = (1..heights)
            .map(|height| inner(height).iter().map(parts_of).collect())
            .collect();
        let mut new = Self {
            loads: PortLoads::new(&topology, &rank),
            free: FreeResources::new(
                (0..topology.len())
                    .map(|index| topology.resources(NodeId(index as u32)))
                    .collect(),
            ),
            closed: vec![false; topology.len()],
            offers: vec![None; topology.len()],
            assumes_paced: false,
            promised: vec![0; topology.len()],
            cpus: vec![None; topology.len()],
            reserved: vec![CpuUse::default(); topology.len()],
            best: BestPorts::new(&topology, &rank),
            rank,
            slots,
            summaries,
            parts,
            tenants: BTreeMap::new(),
            effort: search::EFFORT,
            last_effort: 0,
            topology,
            policy,
        };
        new.refresh(new.topology.hosts().to_vec());
        new
    }

    /// Returns the tree of hosts.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Returns the rules of admission.
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// Sets the number of ports that first fit checks before it gives up with
    /// [`PlacementError::Effort`]: 20,000 by default, in about a millisecond. If at most 64 hosts
    /// have room, every placement is tried then, with ten times as many checks. A larger number
    /// finds placements that are hard to find.
    pub fn set_effort(&mut self, ports: u32) {
        self.effort = ports;
    }

    /// Returns how often the last [`Self::admit`] looked at a port: a measure of its cost that does
    /// not depend on the machine.
    pub fn last_effort(&self) -> u32 {
        self.last_effort
    }

    /// Returns all tenants in ascending order of their numbers.
    pub fn tenants(&self) -> impl Iterator<Item = (TenantId, &Tenant)> {
        self.tenants.iter().map(|(id, tenant)| (*id, tenant))
    }

    /// Returns a tenant.
    pub fn tenant(&self, id: TenantId) -> Option<&Tenant> {
        self.tenants.get(&id)
    }

    /// Returns the load of a port: the sum of its tenants' curves. With delay classes those of
    /// higher classes are as they are when the longest wait of the ordinary class has passed.
    #[inline]
    pub fn load(&self, port: PortId) -> &Load {
        &self.loads.ordinary[port.node.index()][port.direction as usize]
    }

    /// Returns the free resources of a host, or of the open hosts below a node; none for a closed
    /// host and one that gets no machines.
    #[inline]
    pub fn free(&self, node: NodeId) -> Resources {
        let nothing = Some(&HostOffer::Nothing);
        if self.closed[node.index()] || self.offers[node.index()].as_deref() == nothing {
            Resources::default()
        } else {
            self.free[node.index()]
        }
    }

    /// Returns whether a host is closed: drained or failed.
    pub fn is_closed(&self, host: NodeId) -> bool {
        self.closed[host.index()]
    }

    /// Checks what no place could change: that the request makes sense, and that the fabric has a
    /// class for its guarantee.
    fn check(&self, request: &Request) -> Result<(), AdmitError> {
        request.check()?;
        request.check_inward_frames(self.topology.frame())?;
        request.check_class(&self.topology)?;
        let fabric = self.topology.classes().fabric();
        let delay = request.guarantee.and_then(|guarantee| guarantee.delay);
        if delay.is_some() && !fabric.promises_delays() {
            return Err(PlacementError::Fabric { fabric }.into());
        }
        Ok(())
    }

    /// Returns where the machines of a request would be placed. Nothing is reserved.
    pub fn fit(&self, request: &Request) -> Result<Placement, AdmitError> {
        self.check(request)?;
        self.check_hosts(request)?;
        let placement = search::fit(self, request, self.effort).0;
        Ok(placement.map_err(|error| self.with_cpu_cause(request, error))?)
    }

    /// Finds a placement and reserves it whole.
    ///
    /// # Errors
    /// The number is taken, or the request makes no sense or does not fit. Nothing has changed.
    pub fn admit(&mut self, id: TenantId, request: &Request) -> Result<&Placement, AdmitError> {
        if self.tenants.contains_key(&id) {
            return Err(AdmitError::Exists(id));
        }
        self.check(request)?;
        self.check_hosts(request)?;
        let (placement, looked_at) = search::fit(self, request, self.effort);
        self.last_effort = looked_at;
        let placement = placement.map_err(|error| self.with_cpu_cause(request, error))?;
        Ok(self.reserve(id, *request, placement))
    }

    /// Releases a tenant: the state is as if it had never been admitted.
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

    /// Adds or subtracts everything that a tenant uses.
    fn apply(&mut self, tenant: &Tenant, add: bool) {
        self.count(tenant, add);
        let hosts = tenant.placement.hosts.iter();
        self.refresh(hosts.map(|(host, _)| *host).collect());
    }

    /// Does the same without updating the nodes above the tenant's hosts.
    fn count(&mut self, tenant: &Tenant, add: bool) {
        let Self {
            topology, loads, ..
        } = self;
        let rank = topology.rank(tenant.request.class());
        ports::for_each_load(topology, self.policy, tenant, |port, load| {
            loads.put(topology, rank, port, load, add);
        });
        let request = &tenant.request;
        let each = request.cpu_reservation.map(|it| it.of_machine());
        let each = each.unwrap_or_default();
        for &(host, count) in &tenant.placement.hosts {
            let reserved = &mut self.reserved[host.index()];
            let more = each.times(count);
            *reserved = if add {
                reserved.plus(more)
            } else {
                reserved.minus(more)
            };
            let promised = &mut self.promised[host.index()];
            let bandwidth = request.guarantee.map_or(0, |given| given.bandwidth.0);
            let bandwidth = bandwidth * u64::from(count);
            let amount = Use {
                slots: count,
                cpu: u128::from(request.cpu) * u128::from(count),
                memory: u128::from(request.memory.0) * u128::from(count),
            };
            if add {
                self.free.take(host, amount);
                *promised += bandwidth;
            } else {
                self.free.give(host, amount);
                *promised -= bandwidth;
            }
        }
    }
}

#[cfg(test)]
mod tests;

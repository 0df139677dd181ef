//! The load that one tenant brings to each port that its traffic uses.

use super::classes::{Classes, Links};
use super::{Datacentre, Placement, PlacementError, Tenant};
use crate::load::{Exact, Load, Source, Wait};
use crate::request::{Policy, Request};
use crate::topology::{Direction, NodeId, Port, PortId, Resources, Topology};
use std::collections::BTreeMap;
use tailbound_units::Nanos;

/// Both ends of a link.
pub(super) const BOTH: [Direction; 2] = Direction::BOTH;

/// Division of a tenant by a port's link: `below` of its `vms` machines are below the port's node.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cut {
    pub(super) below: u32,
    pub(super) vms: u32,
}

impl Cut {
    /// Returns the number of machines on the sending side of a port.
    pub(super) fn senders(self, direction: Direction) -> u32 {
        match direction {
            Direction::Up => self.below,
            Direction::Down => self.vms - self.below,
        }
    }
}

impl Policy {
    /// Returns whether a port may carry a load under this policy.
    #[inline]
    pub(super) fn allows(self, load: &Load, port: &Port) -> bool {
        match self {
            Self::Silo => load.is_within(port.rate, port.backlog_limit, port.feed),
            Self::Oktopus | Self::OktopusBursts => load.rate() <= port.rate,
            Self::Locality => true,
        }
    }
}

/// A node that a tenant's traffic passes, and the ways of that traffic to its two ports.
#[derive(Debug, Clone, Copy)]
pub(super) struct Branch {
    node: NodeId,
    /// Number of the machines below the node.
    below: u32,
    /// Longest wait of frames before the port up: of machines below.
    up: Wait,
    /// Longest wait of frames before the port down: of all other machines.
    down: Wait,
}

impl Branch {
    fn waited(&self, direction: Direction) -> Wait {
        match direction {
            Direction::Up => self.up,
            Direction::Down => self.down,
        }
    }
}

/// Returns the nodes that the traffic passes, in ascending order, and the lowest node that is above
/// all machines, whose ports it does not pass.
pub(super) fn branches(topology: &Topology, placement: &Placement) -> (Vec<Branch>, NodeId) {
    let hosts = placement.hosts();
    let Some(&(first, _)) = hosts.first() else {
        return (Vec::new(), NodeId::TOP);
    };
    let scope = hosts
        .iter()
        .fold(first, |scope, (host, _)| topology.meeting(scope, *host));
    let mut all = Vec::with_capacity(2 * hosts.len());
    let mut level: Vec<(NodeId, u32)> = hosts.to_vec();
    // Parents come in the order of their children, so that equal ones meet.
    while !level.is_empty() {
        level.retain(|(node, _)| *node != scope);
        all.extend(level.iter().map(|&(node, below)| Branch {
            node,
            below,
            up: topology.wait_of_timers(node),
            down: Wait::default(),
        }));
        for entry in &mut level {
            entry.0 = topology.parent(entry.0).unwrap_or(scope);
        }
        level.dedup_by(|next, previous| {
            let same = next.0 == previous.0;
            previous.1 += if same { next.1 } else { 0 };
            same
        });
    }
    // In an uneven tree a node may have been met at two levels.
    all.sort_unstable_by_key(|branch| branch.node);
    all.dedup_by(|next, previous| {
        let same = next.node == previous.node;
        previous.below += if same { next.below } else { 0 };
        same
    });
    set_waits(topology, &mut all);
    (all, scope)
}

/// Sets how long frames may have waited before each port: those that exist, from one machine to
/// another.
fn set_waits(topology: &Topology, all: &mut [Branch]) {
    let capacity = |node: NodeId, direction: Direction| {
        let port = PortId { node, direction };
        topology.port(port).capacity
    };
    let parent_of = |all: &[Branch], node: NodeId| {
        let parent = topology.parent(node)?;
        all.binary_search_by_key(&parent, |branch| branch.node).ok()
    };
    // Children stand behind their parents.
    for index in (0..all.len()).rev() {
        let Branch { node, up, .. } = all[index];
        if let Some(parent) = parent_of(all, node) {
            all[parent].up = all[parent].up.or(up.after(capacity(node, Direction::Up)));
        }
    }
    let mut first = 0;
    while first < all.len() {
        // Those with one parent lie next to each other.
        let parent = topology.parent(all[first].node);
        let siblings = all[first..].iter();
        let siblings = siblings.take_while(|it| topology.parent(it.node) == parent);
        let end = first + siblings.count();
        let outside = parent_of(all, all[first].node).map_or(Wait::default(), |parent| {
            let down = all[parent].down;
            down.after(capacity(all[parent].node, Direction::Down))
        });
        let late = all[first..end].iter().filter(|it| it.up.late).count();
        // The longest way from one of them, and the longest but one.
        let mut longest = [(usize::MAX, Nanos::ZERO); 2];
        for (index, branch) in all[first..end].iter().enumerate() {
            let wait = branch.up.time + capacity(branch.node, Direction::Up);
            let wait = (index, wait);
            if wait.1 > longest[0].1 {
                longest = [wait, longest[0]];
            } else if wait.1 > longest[1].1 {
                longest[1] = wait;
            }
        }
        for (index, branch) in all[first..end].iter_mut().enumerate() {
            let beside = Wait {
                time: longest[usize::from(longest[0].0 == index)].1,
                late: late > usize::from(branch.up.late),
            };
            branch.down = outside.or(beside);
        }
        first = end;
    }
}

/// Traffic of a tenant across a port's link.
#[derive(Debug, Clone, Copy)]
pub(super) struct Crossing {
    pub(super) source: Source,
    /// Number of machines that send.
    pub(super) senders: u32,
    pub(super) vms: u32,
    /// The longest that their frames may have waited.
    pub(super) waited: Wait,
    /// Over how many links they are spread.
    pub(super) parts: u32,
}

impl Crossing {
    pub(super) fn load(&self) -> Load {
        self.source
            .across(self.senders, self.vms, self.waited, self.parts)
    }

    pub(super) fn exact(&self) -> Exact {
        self.source
            .exactly(self.senders, self.vms, self.waited, self.parts)
    }
}

/// Calls `each` with every port that the tenant's traffic may use.
pub(super) fn for_each_crossing(
    topology: &Topology,
    policy: Policy,
    tenant: &Tenant,
    mut each: impl FnMut(PortId, Crossing),
) {
    let Some(source) = tenant.request.source(policy, topology) else {
        return;
    };
    let topology = topology.of_request(&tenant.request);
    let vms = tenant.request.vms;
    for branch in branches(topology, &tenant.placement).0 {
        let (node, below) = (branch.node, branch.below);
        let cut = Cut { below, vms };
        for direction in BOTH {
            let port = PortId { node, direction };
            let crossing = Crossing {
                source,
                senders: cut.senders(direction),
                vms,
                waited: branch.waited(direction),
                parts: topology.port(port).parts,
            };
            each(port, crossing);
        }
    }
}

/// Calls `each` with every port that the tenant's traffic may use, and its load there.
pub(super) fn for_each_load(
    topology: &Topology,
    policy: Policy,
    tenant: &Tenant,
    mut each: impl FnMut(PortId, &Load),
) {
    for_each_crossing(topology, policy, tenant, |port, crossing| {
        each(port, &crossing.load());
    });
}

impl Datacentre {
    /// Checks every rule of the topology for a placement and everything that it touches. Closed
    /// hosts and hosts' own limits are ignored: existing machines stay until they are moved.
    pub(super) fn verify(
        &self,
        request: &Request,
        placement: &Placement,
    ) -> Result<(), PlacementError> {
        self.verify_resources(request, placement)?;
        self.verify_network(request, placement)
    }

    /// Checks slots, CPUs and memory.
    pub(super) fn verify_resources(
        &self,
        request: &Request,
        placement: &Placement,
    ) -> Result<(), PlacementError> {
        for &(host, count) in placement.hosts() {
            let free = self.free[host.index()];
            if vms_that_fit_in(free, request) < count {
                return Err(PlacementError::Slots {
                    wanted: count,
                    free: free.slots,
                });
            }
        }
        Ok(())
    }

    /// Checks the rest.
    pub(super) fn verify_network(
        &self,
        request: &Request,
        placement: &Placement,
    ) -> Result<(), PlacementError> {
        self.verify_place(request, placement)?;
        let tenant = Tenant {
            request: *request,
            placement: placement.clone(),
        };
        self.verify_ports(&tenant, Links::Built)
    }

    /// Checks the fault domains of a placement, and how far apart its machines are.
    pub(super) fn verify_place(
        &self,
        request: &Request,
        placement: &Placement,
    ) -> Result<(), PlacementError> {
        self.verify_domains(request, placement)?;
        if let Some(limit) = request.guarantee.and_then(|guarantee| guarantee.delay)
            && self.policy == Policy::Silo
        {
            let least = longest_delay(self.topology.of_request(request), placement);
            if least > limit {
                return Err(PlacementError::Delay { least, limit });
            }
        }
        Ok(())
    }

    /// Checks the load of a placement on the links of hosts, with the rates that the hosts report.
    pub(super) fn verify_links(
        &self,
        request: &Request,
        placement: &Placement,
    ) -> Result<(), PlacementError> {
        let tenant = Tenant {
            request: *request,
            placement: placement.clone(),
        };
        self.verify_ports(&tenant, Links::Reported)
    }

    fn verify_ports(&self, tenant: &Tenant, links: Links) -> Result<(), PlacementError> {
        let rank = self.topology.rank(tenant.request.class());
        let mut allowed = true;
        for_each_load(&self.topology, self.policy, tenant, |port, load| {
            allowed = allowed && Classes(self).may_carry(rank, load, port, links);
        });
        allowed.then_some(()).ok_or(PlacementError::Overload)
    }

    pub(super) fn verify_domains(
        &self,
        request: &Request,
        placement: &Placement,
    ) -> Result<(), PlacementError> {
        let Some(domains) = request.domains else {
            return Ok(());
        };
        let most = domains.most(request.vms);
        let mut sums: BTreeMap<NodeId, u32> = BTreeMap::new();
        for &(host, count) in placement.hosts() {
            *sums.entry(self.domain(host, domains.height)).or_default() += count;
        }
        if sums.values().any(|sum| *sum > most) {
            return Err(PlacementError::Domains);
        }
        Ok(())
    }

    /// Returns the fault domain of a host: the highest node above it that is no higher than
    /// `height`.
    pub(super) fn domain(&self, host: NodeId, height: u8) -> NodeId {
        let mut domain = host;
        while let Some(parent) = self.topology.parent(domain)
            && self.topology.height(parent) <= height
        {
            domain = parent;
        }
        domain
    }

    /// Returns whether a node is a fault domain of this height: it is no higher, and its parent
    /// is.
    pub(super) fn is_domain(&self, node: NodeId, height: u8) -> bool {
        self.topology.height(node) <= height && self.domain(node, height) == node
    }

    /// Returns how many machines of a request fit on a host by its resources, and are kept there.
    pub(super) fn vms_that_fit(&self, host: NodeId, request: &Request) -> u32 {
        match vms_that_fit_in(self.free(host), request) {
            0 => 0,
            fit => fit.min(self.vms_that_are_kept(host, request)),
        }
    }
}

/// Returns how many machines of a request fit into these resources.
fn vms_that_fit_in(free: Resources, request: &Request) -> u32 {
    let by = |free: u64, each: u64| free.checked_div(each).unwrap_or(u64::MAX);
    let most = by(free.cpu, request.cpu).min(by(free.memory.0, request.memory.0));
    free.slots.min(u32::try_from(most).unwrap_or(u32::MAX))
}

/// Returns the most queue capacity between any two hosts of a placement, with the lateness of the
/// sending one.
fn longest_delay(topology: &Topology, placement: &Placement) -> Nanos {
    let branches = branches(topology, placement).0;
    let delays = branches.iter().map(|branch| {
        let port = PortId {
            node: branch.node,
            direction: Direction::Down,
        };
        branch.down.time + topology.port(port).capacity
    });
    delays.max().unwrap_or(Nanos::ZERO)
}

//! The load that one tenant brings to each port that its traffic uses.

use super::{Datacentre, Placement, PlacementError, Tenant};
use crate::load::{Load, Source};
use crate::request::{Policy, Request};
use crate::topology::{Direction, NodeId, Port, PortId, Resources, Topology};
use std::collections::BTreeMap;
use tailbound_units::Nanos;

/// Both ends of a link.
pub(super) const BOTH: [Direction; 2] = [Direction::Up, Direction::Down];

/// How a port's link cuts a tenant in two: `below` of its `vms` machines are below the port's node.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cut {
    pub(super) below: u32,
    pub(super) vms: u32,
}

impl Cut {
    /// Returns the number of machines on the sending side of a port.
    fn senders(self, direction: Direction) -> u32 {
        match direction {
            Direction::Up => self.below,
            Direction::Down => self.vms - self.below,
        }
    }
}

impl Source {
    /// Returns what a port carries of a tenant that it cuts so, all of whose machines are below
    /// `scope`.
    pub(super) fn at(&self, topology: &Topology, port: PortId, cut: Cut, scope: NodeId) -> Load {
        let senders = cut.senders(port.direction);
        let delay = topology.delay_before(port, scope);
        self.across(senders, cut.vms, delay, topology.port(port).parts)
    }
}

impl Policy {
    /// Returns whether a port may carry a load under this policy.
    pub(super) fn allows(self, load: &Load, port: &Port) -> bool {
        match self {
            Self::Silo => load.is_within(port.rate, port.backlog_limit, port.feed),
            Self::Oktopus | Self::OktopusBursts => load.rate() <= port.rate,
            Self::Locality => true,
        }
    }
}

/// Returns how many machines are below each node that the traffic passes, and the lowest node that
/// is above all of them, whose ports it does not pass.
pub(super) fn counts(topology: &Topology, placement: &Placement) -> (Vec<(NodeId, u32)>, NodeId) {
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
        all.extend_from_slice(&level);
        for entry in &mut level {
            entry.0 = topology.parent(entry.0).unwrap_or(scope);
        }
        level.dedup_by(|next, kept| {
            let same = next.0 == kept.0;
            kept.1 += if same { next.1 } else { 0 };
            same
        });
    }
    // In an uneven tree a node may have been met at two levels.
    all.sort_unstable_by_key(|(node, _)| *node);
    all.dedup_by(|next, kept| {
        let same = next.0 == kept.0;
        kept.1 += if same { next.1 } else { 0 };
        same
    });
    (all, scope)
}

/// Calls `each` with every port that the tenant's traffic may use.
pub(super) fn for_each_load(
    topology: &Topology,
    policy: Policy,
    tenant: &Tenant,
    mut each: impl FnMut(PortId, &Load),
) {
    let Some(source) = tenant.request.source(policy, topology.frame()) else {
        return;
    };
    let (counts, scope) = counts(topology, &tenant.placement);
    for (node, count) in counts {
        for direction in BOTH {
            let port = PortId { node, direction };
            let cut = Cut {
                below: count,
                vms: tenant.request.vms,
            };
            let load = source.at(topology, port, cut, scope);
            each(port, &load);
        }
    }
}

impl Datacentre {
    /// Checks every rule of the topology for a placement and everything that it touches. Whether
    /// its hosts are closed, and what they keep, does not matter: machines that are there stay
    /// until they are moved.
    pub(super) fn verify(
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
        self.verify_network(request, placement)
    }

    /// Checks the same without slots, CPUs and memory.
    pub(super) fn verify_network(
        &self,
        request: &Request,
        placement: &Placement,
    ) -> Result<(), PlacementError> {
        self.verify_domains(request, placement)?;
        let (_, scope) = counts(&self.topology, placement);
        if let Some(limit) = request.guarantee.and_then(|guarantee| guarantee.delay)
            && self.policy == Policy::Silo
        {
            let least = longest_delay(&self.topology, placement, scope);
            if least > limit {
                return Err(PlacementError::Delay { least, limit });
            }
        }
        let tenant = Tenant {
            request: *request,
            placement: placement.clone(),
        };
        self.verify_ports(&tenant, |sum, port| {
            self.policy.allows(sum, self.topology.port(port))
        })
    }

    /// Checks what the links of hosts carry of a placement, as their hosts say.
    pub(super) fn verify_links(
        &self,
        request: &Request,
        placement: &Placement,
    ) -> Result<(), PlacementError> {
        let tenant = Tenant {
            request: *request,
            placement: placement.clone(),
        };
        self.verify_ports(&tenant, |sum, port| self.allows(sum, port))
    }

    fn verify_ports(
        &self,
        tenant: &Tenant,
        allows: impl Fn(&Load, PortId) -> bool,
    ) -> Result<(), PlacementError> {
        let mut allowed = true;
        for_each_load(&self.topology, self.policy, tenant, |port, load| {
            allowed = allowed && allows(&self.load(port).plus(load), port);
        });
        allowed.then_some(()).ok_or(PlacementError::Ports)
    }

    pub(super) fn verify_domains(
        &self,
        request: &Request,
        placement: &Placement,
    ) -> Result<(), PlacementError> {
        let Some(domains) = request.domains else {
            return Ok(());
        };
        let most = request.vms.div_ceil(domains.count);
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

/// Returns the most queue capacity between any two hosts of a placement.
///
/// This is the longest path up and the longest path down, of two hosts. Where both hosts are below
/// the same child of `scope` the true value is less.
fn longest_delay(topology: &Topology, placement: &Placement, scope: NodeId) -> Nanos {
    let delays: Vec<(Nanos, Nanos)> = placement
        .hosts()
        .iter()
        .map(|(host, _)| topology.delays(*host, scope))
        .collect();
    let most = |half: fn(&(Nanos, Nanos)) -> Nanos, but: Option<usize>| {
        (0..delays.len())
            .filter(|index| Some(*index) != but)
            .max_by_key(|index| half(&delays[*index]))
    };
    let pair = |from: Option<usize>, to: Option<usize>| match (from, to) {
        (Some(from), Some(to)) => delays[from].0 + delays[to].1,
        _ => Nanos::ZERO,
    };
    let from = most(|delay| delay.0, None);
    let to = most(|delay| delay.1, None);
    if from != to {
        return pair(from, to);
    }
    pair(from, most(|delay| delay.1, from)).max(pair(most(|delay| delay.0, to), to))
}

//! What one tenant brings to each port that its traffic uses.

use super::{Datacentre, Placement, Refusal, Tenant};
use crate::load::{Load, Source};
use crate::request::{Policy, Request};
use crate::topology::{Direction, NodeId, Port, PortId, Resources, Topology};
use std::collections::BTreeMap;
use tailbound_units::Nanos;

/// Both ends of a link.
pub(super) const BOTH: [Direction; 2] = [Direction::Up, Direction::Down];

impl Source {
    /// What a port carries of a tenant of `vms` machines, `count` of which are
    /// below its node, and all below `scope`.
    pub(super) fn at(
        &self,
        topology: &Topology,
        port: PortId,
        (count, vms): (u32, u32),
        scope: NodeId,
    ) -> Load {
        let senders = match port.direction {
            Direction::Up => count,
            Direction::Down => vms - count,
        };
        let delay = topology.delay_before(port, scope);
        self.across(senders, vms, delay, topology.port(port).parts)
    }
}

impl Policy {
    /// Whether a port may carry this.
    pub(super) fn allows(self, load: &Load, port: &Port) -> bool {
        match self {
            Self::Silo => load.is_within(port.rate, port.room, port.feed),
            Self::Oktopus | Self::OktopusBursts => load.rate() <= port.rate,
            Self::Locality => true,
        }
    }
}

/// How many machines are below each node that the traffic passes, and the
/// lowest node that all are below, which none passes.
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
            let load = source.at(topology, port, (count, tenant.request.vms), scope);
            each(port, &load);
        }
    }
}

impl Datacentre {
    /// Whether every promise would hold with this placement: every rule is
    /// looked at again, for all that the placement touches. Whether its hosts
    /// are closed is not: who is on them already stays until moved.
    pub(super) fn verify(&self, request: &Request, placement: &Placement) -> Result<(), Refusal> {
        for &(host, count) in placement.hosts() {
            let free = self.free[host.index()];
            if room_in(free, request) < count {
                return Err(Refusal::Slots {
                    wanted: count,
                    free: free.slots,
                });
            }
        }
        self.verify_network(request, placement)
    }

    /// The same without slots, CPUs and memory.
    pub(super) fn verify_network(
        &self,
        request: &Request,
        placement: &Placement,
    ) -> Result<(), Refusal> {
        self.verify_domains(request, placement)?;
        let (_, scope) = counts(&self.topology, placement);
        if let Some(limit) = request.guarantee.and_then(|guarantee| guarantee.delay)
            && self.policy == Policy::Silo
        {
            let least = longest_delay(&self.topology, placement, scope);
            if least > limit {
                return Err(Refusal::Delay { least, limit });
            }
        }
        let tenant = Tenant {
            request: *request,
            placement: placement.clone(),
        };
        let mut refused = None;
        for_each_load(&self.topology, self.policy, &tenant, |port, load| {
            let sum = self.load(port).plus(load);
            if refused.is_none() && !self.policy.allows(&sum, self.topology.port(port)) {
                refused = Some(port);
            }
        });
        refused.map_or(Ok(()), |_| Err(Refusal::Ports))
    }

    pub(super) fn verify_domains(
        &self,
        request: &Request,
        placement: &Placement,
    ) -> Result<(), Refusal> {
        let Some(domains) = request.domains else {
            return Ok(());
        };
        let most = request.vms.div_ceil(domains.count);
        let mut sums: BTreeMap<NodeId, u32> = BTreeMap::new();
        for &(host, count) in placement.hosts() {
            *sums.entry(self.domain(host, domains.height)).or_default() += count;
        }
        if sums.values().any(|sum| *sum > most) {
            return Err(Refusal::Domains);
        }
        Ok(())
    }

    /// What a host fails with: the highest node above it that is no higher than
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

    /// How many machines of this request the host has resources for.
    pub(super) fn room_at(&self, host: NodeId, request: &Request) -> u32 {
        room_in(self.free(host), request)
    }
}

/// How many machines of this request find room in what a host has free.
fn room_in(free: Resources, request: &Request) -> u32 {
    let by = |free: u64, each: u64| free.checked_div(each).unwrap_or(u64::MAX);
    let most = by(free.cpu, request.cpu).min(by(free.memory.0, request.memory.0));
    free.slots.min(u32::try_from(most).unwrap_or(u32::MAX))
}

/// The most queue capacity between any two hosts of a placement.
///
/// The longest way up and the longest way down, of two hosts; where both are
/// below the same part of `scope`, the true one is less.
fn longest_delay(topology: &Topology, placement: &Placement, scope: NodeId) -> Nanos {
    let delays: Vec<(Nanos, Nanos)> = placement
        .hosts()
        .iter()
        .map(|(host, _)| topology.delays(*host, scope))
        .collect();
    let most = |way: fn(&(Nanos, Nanos)) -> Nanos, but: Option<usize>| {
        (0..delays.len())
            .filter(|index| Some(*index) != but)
            .max_by_key(|index| way(&delays[*index]))
    };
    let pair = |from: Option<usize>, to: Option<usize>| match (from, to) {
        (Some(from), Some(to)) => delays[from].0 + delays[to].1,
        _ => Nanos::ZERO,
    };
    let from = most(|way| way.0, None);
    let to = most(|way| way.1, None);
    if from != to {
        return pair(from, to);
    }
    pair(from, most(|way| way.1, from)).max(pair(most(|way| way.0, to), to))
}

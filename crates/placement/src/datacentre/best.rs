//! Upper limits of the host ports below a node, and the latest arrival of traffic there. They
//! follow from the topology alone.

use super::ports::BOTH;
use crate::load::{AffineCurve, Interval};
use crate::topology::{NodeId, Port, PortId, Topology};
use tailbound_units::Nanos;

/// Waiting time of traffic before a host's port, over all hosts below a node.
pub(super) type Delays = Interval<Nanos>;

/// Upper bound on the ports of all hosts below a node.
#[derive(Debug, Clone, Copy)]
pub(super) struct BestPort {
    rate: u64,
    backlog_limit: u64,
    feed: Option<AffineCurve>,
    /// Delays if the whole tenant is below this node.
    pub(super) delays: Delays,
}

/// Upper bounds for all nodes that are not hosts.
#[derive(Debug, Clone)]
pub(super) struct BestPorts {
    /// Bounds by height less one, then rank; up and down.
    nodes: Vec<Vec<[BestPort; 2]>>,
    /// The least and the most delays of all nodes of a height, by height less
    /// one.
    delays: Vec<[Delays; 2]>,
}

impl BestPorts {
    /// `rank` is each node's place among those of its height.
    pub(super) fn new(topology: &Topology, rank: &[u32]) -> Self {
        let mut new = Self {
            nodes: Vec::new(),
            delays: Vec::new(),
        };
        for height in 1..=topology.height(NodeId::TOP) {
            let nodes = topology.at_height(height).iter();
            let best = nodes.map(|node| new.of_children(topology, rank, *node));
            let best = best.collect();
            new.nodes.push(best);
        }
        for host in topology.hosts() {
            new.add_delays(topology, rank, *host);
        }
        for nodes in &new.nodes {
            let all = nodes.iter().map(|best| best.map(|port| port.delays));
            let joined = all.reduce(|one, other| [0, 1].map(|end| one[end].hull(other[end])));
            new.delays.push(joined.unwrap_or([UNKNOWN; 2]));
        }
        new
    }

    /// Up and down, of a node that is not a host.
    pub(super) fn of(&self, topology: &Topology, rank: &[u32], node: NodeId) -> [BestPort; 2] {
        let Some(height) = usize::from(topology.height(node)).checked_sub(1) else {
            return BOTH.map(|direction| {
                let port = topology.port(PortId { node, direction });
                BestPort {
                    rate: port.rate,
                    backlog_limit: port.backlog_limit,
                    feed: port.feed,
                    delays: UNKNOWN,
                }
            });
        };
        self.nodes[height][rank[node.index()] as usize]
    }

    /// Over all nodes of a height, each with all of the tenant below it.
    pub(super) fn delays_at(&self, height: u8) -> [Delays; 2] {
        let height = usize::from(height).saturating_sub(1);
        self.delays.get(height).copied().unwrap_or([UNKNOWN; 2])
    }

    fn of_children(&self, topology: &Topology, rank: &[u32], node: NodeId) -> [BestPort; 2] {
        let children = topology.children(node);
        let all = children.map(|child| self.of(topology, rank, child));
        let best = all.reduce(|one, other| [0, 1].map(|end| one[end].or(other[end])));
        // Every node that is not a host has children.
        let best = best.unwrap_or_else(|| self.of(topology, rank, NodeId::TOP));
        best.map(|port| BestPort {
            delays: UNKNOWN,
            ..port
        })
    }

    /// Adds what is true of a host to all nodes above it.
    fn add_delays(&mut self, topology: &Topology, rank: &[u32], host: NodeId) {
        let mut scope = host;
        while let Some(parent) = topology.parent(scope) {
            scope = parent;
            let height = usize::from(topology.height(scope)) - 1;
            let best = &mut self.nodes[height][rank[scope.index()] as usize];
            for (port, direction) in best.iter_mut().zip(BOTH) {
                let node = host;
                let delay = topology.delay_before(PortId { node, direction }, scope);
                port.delays = port.delays.hull(Interval::point(delay));
            }
        }
    }
}

/// The empty interval, for no host.
const UNKNOWN: Delays = Interval {
    least: Nanos::MAX,
    most: Nanos::ZERO,
};

impl BestPort {
    /// Returns an upper bound on both: the larger port, fed by the slower links.
    fn or(self, other: Self) -> Self {
        let feed = match (self.feed, other.feed) {
            (Some(one), Some(other)) => Some(AffineCurve {
                rate: one.rate.min(other.rate),
                burst: one.burst.min(other.burst),
            }),
            (feed, None) | (None, feed) => feed,
        };
        Self {
            rate: self.rate.max(other.rate),
            backlog_limit: self.backlog_limit.max(other.backlog_limit),
            feed,
            delays: self.delays.hull(other.delays),
        }
    }

    /// Returns a port for checks of loads.
    pub(super) fn port(&self) -> Port {
        Port {
            rate: self.rate,
            backlog_limit: self.backlog_limit,
            feed: self.feed,
            ..Port::default()
        }
    }
}

//! Upper limits of the host ports below a node, and the latest arrival of traffic there. They
//! follow from the topology alone.

use crate::load::{AffineCurve, Interval, Waits};
use crate::topology::{Direction, NodeId, Port, PortId, Topology};
use tailbound_units::Nanos;

/// Upper bound on the ports of all hosts below a node.
#[derive(Debug, Clone, Copy)]
pub(super) struct BestPort {
    rate: u64,
    backlog_limit: u64,
    feed: Option<AffineCurve>,
    /// Waits of traffic before the port, if the whole tenant is below this node.
    pub(super) waits: Waits,
}

/// Upper bounds for all nodes that are not hosts.
#[derive(Debug, Clone)]
pub(super) struct BestPorts {
    /// Bounds by height less one, then rank; up and down.
    nodes: Vec<Vec<[BestPort; 2]>>,
    /// The least and the most waits of all nodes of a height, by height less
    /// one.
    waits: Vec<[Waits; 2]>,
}

impl BestPorts {
    /// `rank` is each node's place among those of its height.
    pub(super) fn new(topology: &Topology, rank: &[u32]) -> Self {
        let mut new = Self {
            nodes: Vec::new(),
            waits: Vec::new(),
        };
        for height in 1..=topology.height(NodeId::TOP) {
            let nodes = topology.at_height(height).iter();
            let best = nodes.map(|node| new.of_children(topology, rank, *node));
            let best = best.collect();
            new.nodes.push(best);
        }
        for host in topology.hosts() {
            new.add_waits(topology, rank, *host);
        }
        for nodes in &new.nodes {
            let all = nodes.iter().map(|best| best.map(|port| port.waits));
            let joined = all.reduce(|one, other| [0, 1].map(|end| one[end].hull(other[end])));
            new.waits.push(joined.unwrap_or([UNKNOWN; 2]));
        }
        new
    }

    /// Up and down, of a node that is not a host.
    pub(super) fn of(&self, topology: &Topology, rank: &[u32], node: NodeId) -> [BestPort; 2] {
        let Some(height) = usize::from(topology.height(node)).checked_sub(1) else {
            return Direction::BOTH.map(|direction| {
                let port = topology.port(PortId { node, direction });
                BestPort {
                    rate: port.rate,
                    backlog_limit: port.backlog_limit,
                    feed: port.feed,
                    waits: UNKNOWN,
                }
            });
        };
        self.nodes[height][rank[node.index()] as usize]
    }

    /// Over all nodes of a height, each with all of the tenant below it.
    pub(super) fn waits_at(&self, height: u8) -> [Waits; 2] {
        let height = usize::from(height).saturating_sub(1);
        self.waits.get(height).copied().unwrap_or([UNKNOWN; 2])
    }

    fn of_children(&self, topology: &Topology, rank: &[u32], node: NodeId) -> [BestPort; 2] {
        let children = topology.children(node);
        let all = children.map(|child| self.of(topology, rank, child));
        let best = all.reduce(|one, other| [0, 1].map(|end| one[end].or(other[end])));
        // Every node that is not a host has children.
        let best = best.unwrap_or_else(|| self.of(topology, rank, NodeId::TOP));
        best.map(|port| BestPort {
            waits: UNKNOWN,
            ..port
        })
    }

    /// Adds what is true of a host to all nodes above it.
    fn add_waits(&mut self, topology: &Topology, rank: &[u32], host: NodeId) {
        let mut scope = host;
        while let Some(parent) = topology.parent(scope) {
            scope = parent;
            let height = usize::from(topology.height(scope)) - 1;
            let best = &mut self.nodes[height][rank[scope.index()] as usize];
            for (port, direction) in best.iter_mut().zip(Direction::BOTH) {
                let node = host;
                let wait = topology.wait_before(PortId { node, direction }, scope);
                port.waits = port.waits.hull(Waits::point(wait));
            }
        }
    }
}

/// The empty interval, for no host.
const UNKNOWN: Waits = Waits {
    times: Interval {
        least: Nanos::MAX,
        most: Nanos::ZERO,
    },
    late: Interval {
        least: true,
        most: false,
    },
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
            waits: self.waits.hull(other.waits),
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

//! The topology of a data centre: a tree of hosts, racks, pods and the core.
//!
//! The nodes are stored level by level, so that the children of a node are adjacent. Node 0 is the
//! top.

mod classes;
mod diff;
mod names;
mod spec;

pub use classes::{DelayClassError, DelayClassSpec, MAX_DELAY_CLASSES};
pub use diff::{Diff, Difference, NodeDiff, diff};
pub use spec::{GroupSpec, HostSpec, Spec, SpecError, Spread, Uniform, UplinkSpec};

use crate::load::{AffineCurve, Wait};
use names::Names;
use std::ops::Range;
use std::sync::Arc;
use tailbound_classes::Classes;
use tailbound_units::{Bytes, Nanos, Rate};

/// The largest numbers that are accepted.
pub(crate) struct Limits {
    pub(crate) rate: Rate,
    pub(crate) burst: Bytes,
    /// The bursts of all pairs of a tenant's machines that a link may have between them.
    pub(crate) pairs: Bytes,
    pub(crate) cpu: u64,
    pub(crate) memory: Bytes,
}

/// Limits under which every sum over a data centre fits 64 bits: 4·10^6 slots times 10^12 bit/s,
/// over queues of 4 s, and at most some 3,800 tenants so large that their pairs reach `pairs` with
/// the longest burst.
pub(crate) const MAX_LIMITS: Limits = Limits {
    rate: Rate(1_000_000_000_000),
    burst: Bytes(1_000_000_000),
    pairs: Bytes(1 << 48),
    cpu: PLENTY,
    memory: Bytes(PLENTY),
};

/// CPU or memory of a host without a declaration: more than any host has, and small enough for
/// sums.
const PLENTY: u64 = 1 << 42;

/// A node of the tree: a host, a rack, a pod, the core.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub(crate) u32);

impl NodeId {
    /// The top of the tree.
    pub const TOP: Self = Self(0);

    /// Returns the node's number, from 0 and below [`Topology::len`].
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Direction of a port's traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// Traffic from the node to its parent.
    Up,
    /// Traffic from the parent to the node.
    Down,
}

impl Direction {
    /// Both directions.
    pub(crate) const BOTH: [Self; 2] = [Self::Up, Self::Down];
}

/// A queue and the link behind it, between a node and its parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortId {
    /// The lower node of the link.
    pub node: NodeId,
    /// End of the link.
    pub direction: Direction,
}

/// The constant properties of a port.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Port {
    /// Bits a second: of one link, or of all links where frames are spread evenly.
    pub rate: u64,
    /// The longest time from a frame's arrival to its departure: Silo's queue capacity.
    pub capacity: Nanos,
    /// The most bits that may be waiting, so that no frame waits longer than `capacity`: what the
    /// link sends in this time, less one frame of best effort that is on the wire already.
    pub backlog_limit: u64,
    /// The most that the links before the port can bring; None for a host's own queue, which is
    /// fed by its machines and not by links.
    pub feed: Option<AffineCurve>,
    /// The number of links over which each machine's frames are spread.
    pub parts: u32,
}

/// Resources of a host, in total or free.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Resources {
    /// Number of machines.
    pub slots: u32,
    /// CPU time, in thousandths of a CPU.
    pub cpu: u64,
    /// Memory for machines.
    pub memory: Bytes,
}

#[derive(Debug, Clone)]
struct Node {
    parent: u32,
    children: Range<u32>,
    /// The longest path down to a host: 0 for a host, 1 for a rack.
    height: u8,
    up: Port,
    down: Port,
    /// The most queue capacity that lies between a host and this node, this
    /// node's own link not included, with the lateness of the host.
    below: Nanos,
    /// The number of hosts with departure times, below it or itself.
    late: u32,
    /// The same up to the parent, of the hosts below the parent that are not below this node;
    /// None if there are none.
    beside: Option<Nanos>,
    /// The same downwards.
    below_down: Nanos,
    /// The least, upwards and down, of any host each.
    nearest: (Nanos, Nanos),
    name: Arc<str>,
    /// Index into [`Topology::uplinks`]; beyond its end for the top.
    uplink: u32,
}

/// A tree of nodes whose leaves are hosts.
#[derive(Debug, Clone)]
pub struct Topology {
    nodes: Vec<Node>,
    /// Resources of each host; for an inner node the sums of its hosts.
    resources: Vec<Resources>,
    /// The nodes of each height, in their order.
    by_height: Vec<Vec<NodeId>>,
    names: Names,
    /// The links as they were described, one for each group and each entry of
    /// hosts.
    uplinks: Vec<UplinkSpec>,
    frame: Bytes,
    packet: Bytes,
    classes: Classes,
    delay_classes: Vec<DelayClassSpec>,
    /// This tree with the queues of each delay class, in order of priority; none in such a tree.
    urgent: Vec<Topology>,
    /// The least delay between two hosts.
    shortest: Nanos,
}

impl Topology {
    /// Returns the number of nodes.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Returns false: there is always the top.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Returns the size of the longest frame, with everything that goes over the wire.
    pub fn frame(&self) -> Bytes {
        self.frame
    }

    /// Returns the size of the longest packet that a host with departure times releases at one time, on
    /// the wire: at least a frame.
    pub fn packet(&self) -> Bytes {
        self.packet
    }

    /// Returns what switches serve first, and by which marks.
    pub fn classes(&self) -> Classes {
        self.classes
    }

    /// Returns the node of this name, in constant time.
    pub fn find(&self, name: &str) -> Option<NodeId> {
        self.names.find(&self.nodes, name)
    }

    /// Returns a node's name.
    pub fn name(&self, node: NodeId) -> &str {
        &self.nodes[node.index()].name
    }

    /// Returns a node's name, of which a clone takes no memory of its own.
    pub fn shared_name(&self, node: NodeId) -> &Arc<str> {
        &self.nodes[node.index()].name
    }

    /// Returns the node above; None for the top.
    #[inline]
    pub fn parent(&self, node: NodeId) -> Option<NodeId> {
        (node != NodeId::TOP).then(|| NodeId(self.nodes[node.index()].parent))
    }

    /// Returns the nodes directly below.
    pub fn children(&self, node: NodeId) -> impl DoubleEndedIterator<Item = NodeId> + use<> {
        self.child_range(node).map(NodeId)
    }

    /// Returns the numbers of the nodes directly below.
    #[inline]
    pub(crate) fn child_range(&self, node: NodeId) -> Range<u32> {
        self.nodes[node.index()].children.clone()
    }

    /// Returns the longest path down to a host: 0 for a host, 1 for a rack.
    #[inline]
    pub fn height(&self, node: NodeId) -> u8 {
        self.nodes[node.index()].height
    }

    /// Returns whether the node is a host.
    #[inline]
    pub fn is_host(&self, node: NodeId) -> bool {
        self.nodes[node.index()].height == 0
    }

    /// Returns all nodes of a height; none if the tree is lower.
    pub fn at_height(&self, height: u8) -> &[NodeId] {
        self.by_height
            .get(usize::from(height))
            .map_or(&[], Vec::as_slice)
    }

    /// Returns all hosts.
    pub fn hosts(&self) -> &[NodeId] {
        self.at_height(0)
    }

    /// Returns the resources of a host, or of all hosts below a node.
    pub fn resources(&self, node: NodeId) -> Resources {
        self.resources[node.index()]
    }

    /// Returns the link to the parent as it was described; None for the top.
    pub fn uplink(&self, node: NodeId) -> Option<&UplinkSpec> {
        self.uplinks.get(self.nodes[node.index()].uplink as usize)
    }

    /// Returns a port. The top has no ports; the returned substitutes have no limits.
    #[inline]
    pub fn port(&self, port: PortId) -> &Port {
        let node = &self.nodes[port.node.index()];
        match port.direction {
            Direction::Up => &node.up,
            Direction::Down => &node.down,
        }
    }

    /// Returns a port's name for people: `rack1 up` leads from rack1 to its parent.
    pub fn port_name(&self, port: PortId) -> String {
        let direction = match port.direction {
            Direction::Up => "up",
            Direction::Down => "down",
        };
        format!("{} {direction}", self.name(port.node))
    }

    /// Returns whether `node` is `scope` or below it.
    pub fn is_below(&self, mut node: NodeId, scope: NodeId) -> bool {
        // Parents stand before their children.
        while node > scope {
            node = NodeId(self.nodes[node.index()].parent);
        }
        node == scope
    }

    /// Returns the lowest node that is above both.
    pub fn meeting(&self, mut one: NodeId, mut other: NodeId) -> NodeId {
        while one != other {
            if one > other {
                one = NodeId(self.nodes[one.index()].parent);
            } else {
                other = NodeId(self.nodes[other.index()].parent);
            }
        }
        one
    }

    /// Returns the ports between two hosts in the order in which frames pass them: up to the node
    /// where both branches meet, and down again.
    pub fn path(&self, from: NodeId, to: NodeId) -> Vec<PortId> {
        let scope = self.meeting(from, to);
        let branch = |mut at: NodeId, direction: Direction| {
            let mut ports = Vec::new();
            while at != scope {
                ports.push(PortId {
                    node: at,
                    direction,
                });
                at = NodeId(self.nodes[at.index()].parent);
            }
            ports
        };
        let mut path = branch(from, Direction::Up);
        path.extend(branch(to, Direction::Down).into_iter().rev());
        path
    }

    /// Returns how late frames leave a host after their departure times, at most: the part of its
    /// description with which admission counts. None for a host whose pacer is exact.
    pub fn lateness(&self, host: NodeId) -> Option<Nanos> {
        let node = &self.nodes[host.index()];
        (node.height == 0 && node.late > 0).then_some(node.below)
    }

    /// Returns how long frames of a host's machines may wait for its timers; no time for an inner
    /// node.
    pub(crate) fn wait_of_timers(&self, node: NodeId) -> Wait {
        let lateness = self.lateness(node);
        Wait {
            time: lateness.unwrap_or_default(),
            late: lateness.is_some(),
        }
    }

    /// Returns how long traffic may have waited before it comes to the port, if all of it comes
    /// from below `scope`. It comes from any host there, but never back to where it is from.
    #[inline]
    pub(crate) fn wait_before(&self, port: PortId, scope: NodeId) -> Wait {
        let node = &self.nodes[port.node.index()];
        match port.direction {
            Direction::Up => Wait {
                time: node.below,
                late: node.late > 0,
            },
            Direction::Down => self.wait_into(port.node, scope).unwrap_or_default(),
        }
    }

    /// Returns the same for the port down to a node; None if no host below `scope` is outside the
    /// node.
    pub(crate) fn wait_into(&self, node: NodeId, scope: NodeId) -> Option<Wait> {
        let is_late = self.nodes[scope.index()].late > self.nodes[node.index()].late;
        let mut at = &self.nodes[node.index()];
        let mut longest = at.beside;
        let mut down = Nanos::ZERO;
        // From each turning point above: up to it from another of its branches, and down again.
        while at.parent != scope.0 && at.parent != NodeId::TOP.0 {
            at = &self.nodes[at.parent as usize];
            down += at.down.capacity;
            longest = longest.max(at.beside.map(|beside| beside + down));
        }
        longest.map(|time| Wait {
            time,
            late: is_late,
        })
    }

    /// Returns the sums of queue capacities from a host up to `scope`, with its lateness, and from
    /// there down to it.
    pub(crate) fn delays(&self, host: NodeId, scope: NodeId) -> (Nanos, Nanos) {
        if host == scope {
            return (Nanos::ZERO, Nanos::ZERO);
        }
        let (mut up, mut down) = (self.nodes[host.index()].below, Nanos::ZERO);
        let mut at = host;
        while at != scope {
            let node = &self.nodes[at.index()];
            up += node.up.capacity;
            down += node.down.capacity;
            at = NodeId(node.parent);
        }
        (up, down)
    }

    /// Returns the longest and the least delay between hosts below a node: bounds on the delay of
    /// every pair.
    pub(crate) fn delays_within(&self, scope: NodeId) -> (Nanos, Nanos) {
        let node = &self.nodes[scope.index()];
        if node.height == 0 {
            return (Nanos::ZERO, Nanos::ZERO);
        }
        (
            node.below + node.below_down,
            node.nearest.0 + node.nearest.1,
        )
    }

    /// Returns the sum of queue capacities from one host to the other, and the lateness of the
    /// first: the longest that a frame may wait. Propagation and links are not in it.
    pub fn delay(&self, one: NodeId, other: NodeId) -> Nanos {
        let scope = self.meeting(one, other);
        self.delays(one, scope).0 + self.delays(other, scope).1
    }
}

/// Returns the most bits that may wait in a queue of `rate`, so that no frame waits longer than
/// `capacity`.
pub(crate) fn backlog_limit(rate: Rate, capacity: Nanos, frame: Bytes) -> u64 {
    let bits = u128::from(rate.0) * u128::from(capacity.0) / 1_000_000_000;
    (bits as u64).saturating_sub(frame.0 * 8)
}

//! Sums of curves for each guaranteed class of a port, and its checks.
//!
//! A frame of a class waits for all frames of its class that came before it, for all frames of
//! higher classes that come until it leaves, and for one frame of a lower class that is on the wire
//! already. So it waits at most `c` if, for all `t`,
//! `A(t) + H(t + c) + frame <= R (t + c)`: A is the sum of the curves of its class, H of the higher
//! ones, R the port's rate. `H(t + c)` is H behind a queue of `c`, which is affine if H is: each
//! class has the sum of `A` and the shifted `H`, and the check is that of a port with one class.
//!
//! A class with number `rank` in the order of priority changes the sums of itself and all lower
//! ones. The sum of the ordinary class is [`Datacentre::load`], so a tree without delay classes has
//! nothing else.

use super::Datacentre;
use super::best::BestPorts;
use crate::load::{AffineCurve, Load};
use crate::topology::{Port, PortId, Topology};

/// The sums of all classes at all ports.
#[derive(Debug, Clone)]
pub(super) struct PortLoads {
    /// The sums of the ordinary class, by node, up and down.
    pub(super) ordinary: Vec<[Load; 2]>,
    /// The sums of the delay classes, in order of priority.
    pub(super) urgent: Vec<ClassSums>,
}

impl PortLoads {
    /// Returns empty sums for a tree.
    pub(super) fn new(topology: &Topology, rank: &[u32]) -> Self {
        Self {
            ordinary: vec![[Load::NONE; 2]; topology.len()],
            urgent: ClassSums::of_all(topology, rank),
        }
    }

    /// Adds or subtracts the load of a tenant with `rank` classes above its own, at one port.
    pub(super) fn put(
        &mut self,
        topology: &Topology,
        rank: usize,
        port: PortId,
        load: &Load,
        add: bool,
    ) {
        let put = |had: &mut Load, load: &Load| {
            *had = if add { had.plus(load) } else { had.minus(load) };
        };
        for (class, sums) in self.urgent.iter_mut().enumerate().skip(rank) {
            let shifted = counted(topology, port, rank, class, load);
            put(sums.at_mut(port), &shifted);
        }
        let shifted = counted(topology, port, rank, usize::MAX, load);
        let had = &mut self.ordinary[port.node.index()][port.direction as usize];
        put(had, &shifted);
    }
}

/// The sums of one delay class at all ports.
#[derive(Debug, Clone)]
pub(super) struct ClassSums {
    /// By node, up and down.
    pub(super) loads: Vec<[Load; 2]>,
    /// The upper limits of its queues and the waits before them.
    pub(super) best: BestPorts,
}

impl ClassSums {
    /// Returns empty sums for all delay classes of a tree.
    pub(super) fn of_all(topology: &Topology, rank: &[u32]) -> Vec<Self> {
        let classes = 0..topology.delay_classes().len();
        let of = |class: usize| Self {
            loads: vec![[Load::NONE; 2]; topology.len()],
            best: BestPorts::new(topology.of_rank(class), rank),
        };
        classes.map(of).collect()
    }

    pub(super) fn at(&self, port: PortId) -> &Load {
        &self.loads[port.node.index()][port.direction as usize]
    }

    pub(super) fn at_mut(&mut self, port: PortId) -> &mut Load {
        &mut self.loads[port.node.index()][port.direction as usize]
    }
}

/// Returns the load of a tenant with `rank` classes above it as the check of a class counts it, of
/// its own or of a lower one.
pub(super) fn counted(
    topology: &Topology,
    port: PortId,
    rank: usize,
    class: usize,
    load: &Load,
) -> Load {
    let lowest = topology.delay_classes().len();
    if class.min(lowest) == rank {
        *load
    } else {
        load.delayed(topology.of_rank(class).port(port).capacity)
    }
}

/// Rates of hosts' links that a check uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Links {
    /// The rates of the topology.
    Built,
    /// The lower of the topology's and the host's report.
    Reported,
}

/// A change of the tenants at a port.
#[derive(Debug, Clone, Copy)]
pub(super) struct Addition<'a> {
    /// The number of classes above the tenant's.
    pub(super) rank: usize,
    /// The tenant's present load, which ends; none of a new tenant.
    pub(super) removed: Option<&'a Load>,
    /// Its new load.
    pub(super) added: &'a Load,
}

/// The check of one class.
pub(super) struct Check {
    pub(super) class: usize,
    pub(super) carried: Load,
    pub(super) added: Load,
    pub(super) port: Port,
}

/// The classes of a data centre's ports: sums and checks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Classes<'a>(pub(super) &'a Datacentre);

impl<'a> Classes<'a> {
    /// Returns the number of delay classes: the place of the ordinary class.
    pub(super) fn lowest(self) -> usize {
        self.0.loads.urgent.len()
    }

    /// Returns the bounds on hosts' ports for the tenants of a class.
    pub(super) fn best(self, rank: usize) -> &'a BestPorts {
        let of_class = self.0.loads.urgent.get(rank);
        of_class.map_or(&self.0.best, |sums| &sums.best)
    }

    /// Returns the sum of a class at a port.
    pub(super) fn sum(self, class: usize, id: PortId) -> &'a Load {
        let of_class = self.0.loads.urgent.get(class);
        of_class.map_or_else(|| self.0.load(id), |sums| sums.at(id))
    }

    /// Returns whether a port may carry a further load of the tenants with `rank` classes above
    /// theirs.
    #[inline]
    pub(super) fn may_carry(self, rank: usize, added: &Load, id: PortId, links: Links) -> bool {
        if self.lowest() == 0 {
            let sum = self.0.load(id).plus(added);
            return match links {
                Links::Built => self.0.policy.allows(&sum, self.0.topology.port(id)),
                Links::Reported => self.0.allows(&sum, id),
            };
        }
        let addition = Addition {
            rank,
            removed: None,
            added,
        };
        self.first_over(addition, id, links).is_none()
    }

    /// Returns whether a port may carry what it carries.
    pub(super) fn carries(self, id: PortId, links: Links) -> bool {
        self.may_carry(0, &Load::NONE, id, links)
    }

    /// Returns the first class, in order of priority, whose queue may grow over its capacity.
    pub(super) fn first_over(
        self,
        addition: Addition<'_>,
        id: PortId,
        links: Links,
    ) -> Option<Check> {
        let Addition {
            rank,
            removed,
            added,
        } = addition;
        let above = rank.checked_sub(1);
        let mut above = above.map(|above| *self.sum(above, id));
        for class in rank..=self.lowest() {
            let count = |load: &Load| counted(&self.0.topology, id, rank, class, load);
            let sum = self.sum(class, id);
            let carried = removed.map_or(*sum, |removed| sum.minus(&count(removed)));
            let added = count(added);
            let sum = carried.plus(&added);
            let port = self.port(class, above.as_ref(), id, links);
            if !self.0.policy.allows(&sum, &port) {
                return Some(Check {
                    class,
                    carried,
                    added,
                    port,
                });
            }
            above = Some(sum);
        }
        None
    }

    /// Returns the port with the queue of a class. The links before it bring no more of the class
    /// than they carry, and after that the higher classes' frames that come during the wait: `above`
    /// is no less than theirs.
    pub(super) fn port(self, class: usize, above: Option<&Load>, id: PortId, links: Links) -> Port {
        let built = self.0.topology.of_rank(class).port(id);
        let mut port = match links {
            Links::Built => *built,
            Links::Reported => self.0.offered(id, built),
        };
        if let (Some(above), Some(feed)) = (above.filter(|above| !above.is_none()), port.feed) {
            let later = AffineCurve {
                rate: feed.rate,
                burst: feed.burst + above.within(port.capacity),
            };
            port.feed = Some(later.lower(feed.delayed(port.capacity)));
        }
        port
    }

    /// Returns whether tenants of delay classes, or one with `rank` classes above its own, are at a
    /// port.
    pub(super) fn are_several_at(self, rank: usize, id: PortId) -> bool {
        rank < self.lowest()
            || self
                .0
                .loads
                .urgent
                .iter()
                .any(|sums| !sums.at(id).is_none())
    }
}

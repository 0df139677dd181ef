//! Bounds from summaries, with which the search skips nodes that cannot accept a request.
//!
//! The bounds exclude only placements that a check of every port would exclude. Without them
//! decisions are the same, and slower.

use super::Datacentre;
use super::best::BestPort;
use super::classes::Classes;
use super::known::{HostState, Hosts};
use super::loads::Key;
use super::ports::BOTH;
use super::search::Search;
use super::summary::{STEPS, Summary};
use crate::load::{Interval, Load, Wait, Waits};
use crate::request::Policy;
use crate::topology::{Direction, NodeId, Port, PortId};
use tailbound_units::Nanos;

/// Rounding error in bits: the six integer curves of a tenant may be this much above its exact
/// ones, and a limit this much too low.
const ROUNDED: u64 = 4;

/// Before this port, which is no port, all hosts are.
const UP_OF_TOP: PortId = PortId {
    node: NodeId::TOP,
    direction: Direction::Up,
};

/// Returns how many machines are on the sending side of a node's port, with `below` of `vms` below
/// the node.
fn senders(direction: Direction, below: Interval<u32>, vms: u32) -> Interval<u32> {
    match direction {
        Direction::Up => below,
        Direction::Down => Interval {
            least: vms - below.most,
            most: vms - below.least,
        },
    }
}

impl Search<'_> {
    /// Returns how many of up to `most` machines the ports of a host may carry:
    /// [`Self::most_through`], computed once for hosts in a row that are in the same state. With delay
    /// classes each host is computed, as all of its classes matter.
    pub(super) fn most_on(&mut self, host: NodeId, most: u32) -> u32 {
        let has_classes = Classes(self.dc).lowest() > 0;
        if self.loads.is_none() || self.policy == Policy::Locality || has_classes {
            return self.most_through(host, most);
        }
        let ids = BOTH.map(|direction| PortId {
            node: host,
            direction,
        });
        let state = HostState {
            most,
            loads: ids.map(|id| *self.dc.load(id)),
            ports: ids.map(|id| self.dc.offered(id, self.dc.topology.port(id))),
            waits: ids.map(|id| self.dc.topology.wait_before(id, self.scope)),
        };
        if let Some((known, count)) = &self.seen.host
            && *known == state
        {
            return *count;
        }
        let count = self.most_through(host, most);
        self.seen.host = Some((state, count));
        count
    }

    /// Returns whether no host anywhere may take any number of the machines, if all of them are
    /// below one node of the scope's height and not all on one host.
    pub(super) fn is_hopeless(&mut self) -> bool {
        let height = self.dc.topology.height(self.scope);
        if let Some((known, is_hopeless)) = self.seen.hopeless
            && known == height
        {
            return is_hopeless;
        }
        let waits = Classes(self.dc).best(self.rank).waits_at(height);
        let is_hopeless = self.range_below(NodeId::TOP, waits).is_none();
        self.seen.hopeless = Some((height, is_hopeless));
        is_hopeless
    }

    /// Returns whether no host anywhere may take any number of the machines if they are not all on
    /// one host, wherever those are and as if nothing had waited before, beside what the tenants
    /// there send in the long run at least: so there is no place.
    pub(super) fn is_impossible(&mut self) -> bool {
        let Some(summary) = self.dc.summary(NodeId::TOP) else {
            return false;
        };
        let lightest = summary
            .lightest
            .map(|loads| loads.map(|it| it.in_the_long_run()));
        let lowest = Classes(self.dc).lowest();
        let ports = self.dc.best_port(lowest, NodeId::TOP).map(|best| Port {
            backlog_limit: best.port().backlog_limit + ROUNDED,
            ..best.port()
        });
        // Of a tenant on any hosts.
        let at_once = [Waits {
            times: Interval::point(Nanos::ZERO),
            late: Interval {
                least: false,
                most: self.dc.topology.wait_before(UP_OF_TOP, NodeId::TOP).late,
            },
        }; 2];
        self.range_of(summary, lightest, ports, at_once).is_none()
    }

    /// Returns an upper bound on the machines that fit below a node, by its summary alone: the
    /// slots of all hosts that have enough of them, as far as the ports of one carry them.
    pub(super) fn most_below(&mut self, node: NodeId) -> u32 {
        let range = self.range_below(node, self.waits_below(node));
        match (range, self.dc.summary(node)) {
            (Some(range), Some(summary)) => summary.most_with(range),
            _ => 0,
        }
    }

    /// Returns how long traffic may have waited before it comes to the ports of the hosts below a
    /// node, up and down.
    fn waits_below(&self, node: NodeId) -> [Waits; 2] {
        let best = |node: NodeId| self.dc.best_port(self.rank, node).map(|port| port.waits);
        let mut waits = best(node);
        if node != self.scope {
            let topology = self.dc.topology.of_rank(self.rank);
            let direction = Direction::Down;
            let port = PortId { node, direction };
            // What comes from outside has come through the node's own port.
            let outside = topology
                .wait_into(node, self.scope)
                .map_or(Wait::default(), |wait| {
                    wait.after(topology.port(port).capacity)
                });
            let of_all = best(self.scope)[direction as usize];
            let down = &mut waits[direction as usize];
            *down = Waits {
                times: Interval {
                    least: down.times.least.max(outside.time),
                    most: down.times.most.max(of_all.times.most),
                },
                late: Interval {
                    least: down.late.least.max(outside.late),
                    most: down.late.most.max(of_all.late.most),
                },
            };
        }
        waits
    }

    /// Returns bounds on the machines that a host below gets: with fewer, the bursts of all the others
    /// meet at its port, and its ports cannot carry more. None if no host can take any number.
    ///
    /// Looks at one summary: the most slots, and the lightest load of any port.
    fn range_below(&mut self, node: NodeId, waits: [Waits; 2]) -> Option<Interval<u32>> {
        let summary = self.dc.summary(node)?;
        let ports = self.dc.best_port(Classes(self.dc).lowest(), node);
        let ports = ports.map(|best| best.port());
        self.range_of(summary, summary.lightest, ports, waits)
    }

    /// Does the same by a summary, with these loads and ports in place of those of its hosts.
    fn range_of(
        &mut self,
        summary: &Summary,
        lightest: Option<[Load; 2]>,
        ports: [Port; 2],
        waits: [Waits; 2],
    ) -> Option<Interval<u32>> {
        let lightest = lightest?;
        if summary.largest.cpu < self.request.cpu || summary.largest.memory < self.request.memory {
            return None;
        }
        let slots = summary.largest.slots.min(self.request.vms);
        if self.loads.is_none() {
            return Some(Interval {
                least: 1,
                most: slots,
            });
        }
        let hosts = Hosts {
            slots,
            lightest,
            ports,
            waits,
        };
        if let Some((known, range)) = &self.seen.range
            && *known == hosts
        {
            return *range;
        }
        let range = self.range_on(&hosts);
        self.seen.range = Some((hosts, range));
        range
    }

    /// Returns the least and the most machines on one of these hosts.
    fn range_on(&mut self, hosts: &Hosts) -> Option<Interval<u32>> {
        let slots = hosts.slots;
        // The summary does not tell higher numbers of slots apart.
        let told_apart = slots.min(STEPS as u32);
        let least = (1..=told_apart).find(|count| self.may_carry(hosts, *count));
        let least = least.or((slots > told_apart).then_some(told_apart))?;
        let most = if slots > told_apart {
            slots
        } else {
            let mut counts = (least..=slots).rev();
            counts.find(|count| self.may_carry(hosts, *count))?
        };
        Some(Interval { least, most })
    }

    /// Returns whether the ports of one of these hosts may carry the traffic of `count` machines.
    fn may_carry(&mut self, hosts: &Hosts, count: u32) -> bool {
        let own = self.dc.best_port(self.rank, NodeId::TOP).map(|best| Port {
            backlog_limit: best.port().backlog_limit + ROUNDED,
            ..best.port()
        });
        let is_ordinary = self.rank == Classes(self.dc).lowest();
        let Some(loads) = &mut self.loads else {
            return true;
        };
        self.checks += 2;
        let vms = self.request.vms;
        BOTH.into_iter().all(|direction| {
            let end = direction as usize;
            let load = loads.at_least(Key {
                senders: senders(direction, Interval::point(count), vms),
                waits: hosts.waits[end],
                parts: 1,
            });
            let sum = hosts.lightest[end].plus(load);
            self.policy.allows(&sum, &hosts.ports[end])
                && (is_ordinary || self.policy.allows(load, &own[end]))
        })
    }

    /// Returns whether certainly fewer than `want` machines fit below a node, by the summaries of
    /// the racks and by the ports above them.
    pub(super) fn is_too_small(&mut self, node: NodeId, want: u32) -> bool {
        self.most_of_children(node, want) < want && self.checks <= self.effort
    }

    /// Returns the sum of the upper bounds of all children, each by itself; no more than `want`.
    fn most_of_children(&mut self, node: NodeId, want: u32) -> u32 {
        let mut sum = 0;
        for child in self.dc.topology.children(node) {
            sum += self.at_most(child, want);
            if sum >= want || self.checks > self.effort {
                return want;
            }
        }
        sum
    }

    /// Returns an upper bound on how many of `want` machines fit below a node.
    fn at_most(&mut self, node: NodeId, want: u32) -> u32 {
        let mut most = self.allowed_at(node, want);
        if most == 0 || self.dc.topology.is_host(node) {
            return most;
        }
        most = most.min(self.most_below(node));
        most = self.most_passing(node, most);
        if self.dc.topology.height(node) > 1 && most > 0 {
            most = self.most_of_children(node, most);
        }
        most
    }

    /// Returns an upper bound on the number among `want` machines that the ports of a node may
    /// carry, found by bisection: each step excludes a whole range of numbers.
    fn most_passing(&mut self, node: NodeId, want: u32) -> u32 {
        if want == 0
            || !self.may_any_pass(
                node,
                Interval {
                    least: 1,
                    most: want,
                },
            )
        {
            return 0;
        }
        let (mut low, mut high) = (1, want);
        while low < high {
            let middle = low + (high - low).div_ceil(2);
            let upper_half = Interval {
                least: middle,
                most: high,
            };
            if self.may_any_pass(node, upper_half) {
                low = middle;
            } else {
                high = middle - 1;
            }
        }
        high
    }

    /// Returns false if both ports of a node cannot carry the traffic of any number of machines
    /// within an interval below it, by a load that is below all of theirs.
    pub(super) fn may_any_pass(&mut self, node: NodeId, below: Interval<u32>) -> bool {
        let Some(loads) = &mut self.loads else {
            return true;
        };
        BOTH.into_iter().rev().all(|direction| {
            self.checks += 1;
            let id = PortId { node, direction };
            let port = self.dc.topology.of_rank(self.rank).port(id);
            let wait = self
                .dc
                .topology
                .of_rank(self.rank)
                .wait_before(id, self.scope);
            let vms = self.request.vms;
            let load = loads.at_least(Key {
                senders: senders(direction, below, vms),
                waits: Waits::point(wait),
                parts: port.parts,
            });
            // The sums and the links' limit of a check are no lower.
            let has_room = |class: usize| {
                let port = self.dc.topology.of_rank(class).port(id);
                let sum = Classes(self.dc).sum(class, id).plus(load);
                self.policy.allows(&sum, port)
            };
            let lowest = Classes(self.dc).lowest();
            has_room(lowest) && (self.rank == lowest || has_room(self.rank))
        })
    }
}

impl Datacentre {
    /// Returns the bounds of a node's hosts for the tenants of a class.
    fn best_port(&self, rank: usize, node: NodeId) -> [BestPort; 2] {
        let topology = self.topology.of_rank(rank);
        Classes(self).best(rank).of(topology, &self.rank, node)
    }
}

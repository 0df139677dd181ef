//! The traffic that may come to each port, from the paths between all hosts of each tenant.

use super::Finding;
use std::collections::HashMap;
use tailbound_netcalc::{ArrivalCurve, Guarantee as Curve, Overflow, Ratio, TokenBucket, hose};
use tailbound_placement::{Direction, Guarantee, NodeId, Policy, PortId, Request, Topology};
use tailbound_units::{Bytes, Nanos, Rate};

/// Capacities are whole nanoseconds, rounded down. A bound may exceed them by what was cut off.
const ROUNDED: Nanos = Nanos(1);

/// The sums of all tenants' curves.
pub(super) struct Traffic<'a> {
    topology: &'a Topology,
    policy: Policy,
    /// The sums of each delay class, in order of priority, and of the ordinary class.
    ports: HashMap<PortId, Vec<Sum>>,
}

/// The traffic of one tenant at a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Crossing {
    pub(super) port: PortId,
    /// The number of machines that send through the port.
    pub(super) senders: u64,
    /// Longest delay of their frames before the port, if every queue holds its capacity and every
    /// host is as late as it may be.
    pub(super) waited: Nanos,
    /// True if some of the hosts of the senders have departure times.
    pub(super) late: bool,
}

impl<'a> Traffic<'a> {
    pub(super) fn new(topology: &'a Topology, policy: Policy) -> Self {
        Self {
            topology,
            policy,
            ports: HashMap::new(),
        }
    }

    /// Adds a tenant's curves; an error if the tenant's own delay is not kept.
    pub(super) fn add(&mut self, request: &Request, hosts: &[(NodeId, u32)]) -> Result<(), String> {
        let Some(guarantee) = request.guarantee else {
            return Ok(());
        };
        if self.policy == Policy::Locality {
            return Ok(());
        }
        let class = guarantee.class;
        let topology = self.topology.of_class(class);
        let topology = topology.ok_or_else(|| "its delay class does not exist".to_owned())?;
        let lowest = self.topology.delay_classes().len();
        let rank = class.map_or(lowest, |class| usize::from(class) - 1);
        let (crossings, longest) = follow(topology, hosts);
        for crossing in crossings {
            let curve = self.curve(&guarantee, u64::from(request.vms), crossing);
            let sums = self.ports.entry(crossing.port);
            let sums = sums.or_insert_with(|| (0..=lowest).map(|_| Sum::default()).collect());
            let sum = &mut sums[rank];
            curve
                .and_then(|curve| sum.add(curve))
                .map_err(|error| error.to_string())?;
        }
        match guarantee.delay {
            Some(delay) if self.policy == Policy::Silo && longest > delay => Err(format!(
                "a delay of {delay} was promised, and a frame may take {longest}"
            )),
            _ => Ok(()),
        }
    }

    /// Returns the curve of the hose model's cut at a port, delayed by the queues before it.
    fn curve(
        &self,
        guarantee: &Guarantee,
        vms: u64,
        crossing: Crossing,
    ) -> Result<ArrivalCurve, Overflow> {
        let frame = self.topology.frame();
        // The frames of a packet of segmentation offload leave together.
        let (released, together) = if crossing.late {
            (self.topology.packet(), self.topology.packet())
        } else {
            (Bytes::ZERO, frame)
        };
        let burst = Bytes(guarantee.burst.max(frame).0 + released.0);
        let bursts = guarantee.counted_bursts();
        let burst_in = guarantee.burst_in;
        let senders = crossing.senders;
        // No rates of receivers are negotiated with hosts that have departure times: as if there
        // were a receiver for each sender.
        let vms = if crossing.late { 2 * senders } else { vms };
        let curve = match guarantee.burst_rate {
            _ if self.policy != Policy::Silo => {
                ArrivalCurve::token_bucket(guarantee.bandwidth, Bytes::ZERO)
                    .times(senders.min(vms - senders))?
            }
            Some(burst_rate) => Curve {
                bandwidth: guarantee.bandwidth,
                burst,
                burst_rate,
                bursts,
                burst_in,
            }
            .across(senders, vms, together)?,
            // All of the burst at once.
            None => hose(guarantee.bandwidth, burst, bursts, burst_in, senders, vms)?,
        };
        // Of links that take turns frame by frame, one may be two frames ahead.
        let parts = u64::from(self.topology.port(crossing.port).parts);
        let ahead = Bytes(2 * (parts - 1) * frame.0);
        let ahead = ArrivalCurve::token_bucket(Rate(0), ahead).times(senders)?;
        curve.sum(&ahead)?.delayed(crossing.waited.into())
    }

    /// Checks every port, and returns how many carry something.
    pub(super) fn ports(self, findings: &mut Vec<Finding>) -> usize {
        let count = self.ports.len();
        let mut ports: Vec<(PortId, Vec<Sum>)> = self.ports.into_iter().collect();
        ports.sort_by_key(|(port, _)| *port);
        for (id, sums) in ports {
            let over = over(self.topology, self.policy, id, sums);
            let is_over = matches!(over, Ok(Some(_)));
            let problem = match over {
                Ok(None) => continue,
                Ok(Some(capacity)) if self.policy == Policy::Silo => {
                    format!("a frame may wait longer than {capacity}, or more comes than leaves")
                }
                Ok(Some(_)) => "more comes than leaves".to_owned(),
                Err(error) => error.to_string(),
            };
            let subject = format!("port {:?}", self.topology.port_name(id));
            findings.push(Finding {
                is_over,
                ..Finding::new(subject, problem)
            });
        }
        count
    }
}

/// Returns the capacity of the first class whose frames may wait longer than that, in order of
/// priority; `None` if all are served in time.
fn over(
    topology: &Topology,
    policy: Policy,
    id: PortId,
    sums: Vec<Sum>,
) -> Result<Option<Nanos>, Overflow> {
    let frame = topology.frame();
    let mut higher = ArrivalCurve::none();
    for (class, sum) in (1_u8..).zip(sums) {
        let of_class = topology.of_class(Some(class)).unwrap_or(topology);
        let port = of_class.port(id);
        let own = sum.total()?;
        let fits = if policy == Policy::Silo {
            let links = port.feed.map(|feed| TokenBucket {
                rate: Ratio::whole(i128::from(feed.rate)),
                burst: Ratio::whole(i128::from(feed.burst) * 1_000_000_000),
            });
            let sum = own.behind(&higher, port.capacity, links)?;
            // A frame of a lower class that is on the wire is finished first.
            let blocked = Rate(port.rate / u64::from(port.parts)).time_for(frame);
            sum.is_served_within(Rate(port.rate), blocked, port.capacity + ROUNDED)?
        } else {
            let all = own.sum(&higher)?;
            all.long_run().rate <= Rate(port.rate).into()
        };
        if !fits {
            return Ok(Some(port.capacity));
        }
        higher = higher.sum(&own)?;
    }
    Ok(None)
}

/// Adds curves up in pairs of equal size, so that long ones are not copied for each short one.
#[derive(Default)]
struct Sum {
    /// The partial sums, and of how many curves each is the sum: falling powers of two.
    sums: Vec<(u64, ArrivalCurve)>,
}

impl Sum {
    fn add(&mut self, curve: ArrivalCurve) -> Result<(), Overflow> {
        let mut next = (1, curve);
        while let Some((count, sum)) = self.sums.pop_if(|last| last.0 == next.0) {
            next = (count + next.0, sum.sum(&next.1)?);
        }
        self.sums.push(next);
        Ok(())
    }

    fn total(self) -> Result<ArrivalCurve, Overflow> {
        ArrivalCurve::total(self.sums.iter().map(|(_, curve)| curve))
    }
}

/// A node of the tree that has some of a tenant's machines below it.
struct Branch {
    node: NodeId,
    /// Index of its parent; None at the top.
    above: Option<usize>,
    machines: u64,
    /// The longest wait from a machine below up to this node.
    up: Nanos,
    /// The machines below on hosts with departure times.
    late: u64,
    /// The longest wait from this node down to a machine below.
    down: Nanos,
    /// The longest wait, from any machine that is not below this node, up to the
    /// port that leads down to it.
    before: Nanos,
}

/// Returns the ports that a tenant's traffic uses, and the longest wait between two of its machines
/// by the capacities of the queues and the lateness of hosts.
pub(super) fn follow(topology: &Topology, hosts: &[(NodeId, u32)]) -> (Vec<Crossing>, Nanos) {
    let mut tree = branches(topology, hosts);
    let capacity = |node, direction| topology.port(PortId { node, direction }).capacity;
    // The two longest ways that come up to a node from different sides, and the
    // two that lead down from it.
    let mut ups = vec![[(Nanos::ZERO, usize::MAX); 2]; tree.len()];
    let mut downs = ups.clone();
    for index in (0..tree.len()).rev() {
        let Branch {
            node,
            above,
            up,
            down,
            ..
        } = tree[index];
        let Some(above) = above else { continue };
        let up = up + capacity(node, Direction::Up);
        let down = down + capacity(node, Direction::Down);
        let parent = &mut tree[above];
        parent.up = parent.up.max(up);
        parent.down = parent.down.max(down);
        enter(&mut ups[above], (up, index));
        enter(&mut downs[above], (down, index));
    }
    let (all, all_late) = tree.first().map_or((0, 0), |top| (top.machines, top.late));
    let mut crossings = Vec::with_capacity(2 * tree.len());
    let mut longest = Nanos::ZERO;
    for index in 0..tree.len() {
        for (up, from) in ups[index] {
            for (down, to) in downs[index] {
                if from != to && from != usize::MAX && to != usize::MAX {
                    longest = longest.max(up + down);
                }
            }
        }
        let Branch {
            node,
            above,
            machines,
            up,
            late,
            ..
        } = tree[index];
        let Some(above) = above.filter(|_| machines < all) else {
            continue;
        };
        let beside = ups[above].iter().find(|(_, from)| *from != index);
        let beside = beside.map_or(Nanos::ZERO, |(up, _)| *up);
        let parent = &tree[above];
        let through = if parent.machines < all {
            parent.before + capacity(parent.node, Direction::Down)
        } else {
            Nanos::ZERO
        };
        let before = beside.max(through);
        tree[index].before = before;
        for (direction, senders, waited, late) in [
            (Direction::Up, machines, up, late),
            (Direction::Down, all - machines, before, all_late - late),
        ] {
            crossings.push(Crossing {
                port: PortId { node, direction },
                senders,
                waited,
                late: late > 0,
            });
        }
    }
    (crossings, longest)
}

/// Keeps the two longest paths.
fn enter(longest: &mut [(Nanos, usize); 2], path: (Nanos, usize)) {
    let [first, second] = longest;
    if first.1 == usize::MAX || path.0 > first.0 {
        *second = *first;
        *first = path;
    } else if second.1 == usize::MAX || path.0 > second.0 {
        *second = path;
    }
}

/// Returns the part of the tree above a tenant's hosts, parents before their children.
fn branches(topology: &Topology, hosts: &[(NodeId, u32)]) -> Vec<Branch> {
    let mut places: HashMap<NodeId, usize> = HashMap::new();
    let mut tree: Vec<Branch> = Vec::new();
    for (host, count) in hosts {
        let mut path: Vec<NodeId> =
            std::iter::successors(Some(*host), |node| topology.parent(*node)).collect();
        path.reverse();
        let mut above = None;
        for node in path {
            let place = *places.entry(node).or_insert_with(|| {
                tree.push(Branch {
                    node,
                    above,
                    machines: 0,
                    up: topology.lateness(node).unwrap_or_default(),
                    late: 0,
                    down: Nanos::ZERO,
                    before: Nanos::ZERO,
                });
                tree.len() - 1
            });
            tree[place].machines += u64::from(*count);
            tree[place].late += topology.lateness(*host).map_or(0, |_| u64::from(*count));
            above = Some(place);
        }
    }
    tree
}

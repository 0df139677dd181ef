//! Total flow analysis: at each port the traffic of all flows together.
//!
//! A port's delay is a bound for each frame, so a flow's delay is the sum along its path. The
//! quality depends on the bound of the traffic at each port. Several bounds hold simultaneously:
//!
//! - each flow for itself: arrivals of `t + d` may leave in `t`, if `d` bounds the delay; and the
//!   exact output behind the FIFO queue's remaining service;
//! - all flows that leave over one link together, in the same two ways, which is tighter, because
//!   their bursts cannot all be delayed by each other;
//! - the rate of the link (Mifdaoui and Leydier, CRTS 2017; TFA++ in Thomas, Le Boudec and
//!   Mifdaoui, RTSS 2019).

use super::{ClassBounds, FlowId, Network, NetworkError, PortBounds, PortId};
use crate::arrival::{ArrivalCurve, TokenBucket};
use crate::bound::Bound;
use crate::ratio::{Overflow, Ratio};
use crate::service::{RateLatency, ServiceCurve};
use std::collections::BTreeMap;
use tailbound_units::Bytes;

/// Results for a port on a flow's path that separated flow analysis needs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hop {
    /// The port's delay, rounded up to picoseconds.
    pub(super) delay: Ratio,
    /// The port's service for the flow's priority in the long run.
    pub(super) service: RateLatency,
    /// The other flows of its priority.
    pub(super) cross: TokenBucket,
    /// The flow's own burst at the arrival at the port.
    pub(super) burst: Ratio,
}

/// Results of total flow analysis.
#[derive(Debug)]
pub(super) struct Total {
    /// One for each port, in the network's order.
    pub(super) ports: Vec<PortBounds>,
    /// For each flow, one for each port of its path.
    pub(super) hops: Vec<Vec<Hop>>,
}

/// Parts of a nanosecond that delays are rounded up to before they are summed:
/// picoseconds.
pub(super) const PARTS: i128 = 1_000;

/// A flow at a port.
#[derive(Debug, Clone, Copy)]
pub(super) struct Visit {
    pub(super) flow: FlowId,
    /// Index of the port in the flow's path.
    pub(super) hop: usize,
}

impl Visit {
    /// Returns the flow at the previous port, which must exist.
    pub(super) fn back(self) -> Self {
        Self {
            hop: self.hop - 1,
            ..self
        }
    }
}

/// Traffic to a port from one other port, or from the senders.
struct Group {
    members: Vec<Visit>,
    /// A bound on all flows together.
    curve: ArrivalCurve,
}

struct Analysis<'n> {
    network: &'n Network,
    /// Each flow at the arrival at the next port of its path.
    curves: Vec<ArrivalCurve>,
    /// Traffic of a link, by its port, the port it feeds, and priority.
    links: BTreeMap<(PortId, PortId, u8), ArrivalCurve>,
    total: Total,
}

/// The bounds of all ports, computed in this order.
pub(super) fn analyse(network: &Network, order: &[PortId]) -> Result<Total, NetworkError> {
    let mut visits = vec![BTreeMap::<u8, Vec<Visit>>::new(); network.ports.len()];
    let mut curves = Vec::with_capacity(network.flows.len());
    for (index, flow) in network.flows.iter().enumerate() {
        for (hop, port) in flow.path.iter().enumerate() {
            let class = visits[port.0].entry(flow.priority).or_default();
            class.push(Visit {
                flow: FlowId(index),
                hop,
            });
        }
        let curve = flow.curve(network.frame);
        curves.push(curve.map_err(|source| network.overflow(flow.path[0], source))?);
    }
    let mut analysis = Analysis {
        network,
        curves,
        links: BTreeMap::new(),
        total: Total {
            ports: vec![PortBounds::default(); network.ports.len()],
            hops: vec![Vec::new(); network.flows.len()],
        },
    };
    for &port in order {
        analysis
            .port(port, &visits[port.0])
            .map_err(|source| network.overflow(port, source))?;
    }
    Ok(analysis.total)
}

impl Analysis<'_> {
    fn port(&mut self, id: PortId, classes: &BTreeMap<u8, Vec<Visit>>) -> Result<(), Overflow> {
        let port = self.network.port(id);
        let link = ServiceCurve::rate_latency(port.rate, port.latency);
        let mut higher = ArrivalCurve::none();
        for (priority, visits) in classes {
            let lowest = classes.keys().next_back() == Some(priority);
            let blocking = if lowest { Bytes(0) } else { self.network.frame };
            let service = link.left_over_priority(&higher, blocking)?;
            let groups = self.groups(id, visits)?;
            let all = ArrivalCurve::total(groups.iter().map(|group| &group.curve))?;
            higher = higher.sum(&all)?;
            self.class(id, *priority, &service, &groups, &all)?;
        }
        self.total.ports[id.0].backlog = finite(higher.backlog(&link)?);
        Ok(())
    }

    /// Returns the flows of one priority at a port by their previous port.
    fn groups(&mut self, id: PortId, visits: &[Visit]) -> Result<Vec<Group>, Overflow> {
        let mut members = BTreeMap::<Option<PortId>, Vec<Visit>>::new();
        for visit in visits {
            let path = &self.network.flows[visit.flow.0].path;
            let from = visit.hop.checked_sub(1).map(|before| path[before]);
            members.entry(from).or_default().push(*visit);
        }
        let mut groups = Vec::with_capacity(members.len());
        for (from, members) in members {
            let mut curve = ArrivalCurve::total(self.curves_of(&members))?;
            let priority = self.network.flows[members[0].flow.0].priority;
            if let Some(from) = from
                && let Some(link) = self.links.remove(&(from, id, priority))
            {
                curve = curve.min(&link)?;
            }
            groups.push(Group { members, curve });
        }
        Ok(groups)
    }

    fn curves_of(&self, members: &[Visit]) -> impl Iterator<Item = &ArrivalCurve> {
        members.iter().map(|visit| &self.curves[visit.flow.0])
    }

    /// Bounds one priority at a port, and its output.
    fn class(
        &mut self,
        id: PortId,
        priority: u8,
        service: &ServiceCurve,
        groups: &[Group],
        all: &ArrivalCurve,
    ) -> Result<(), Overflow> {
        let delay = finite(all.delay(service)?);
        let mut load = Ratio::ZERO;
        // All together, in the long run.
        let mut together = TokenBucket::NONE;
        for group in groups {
            together = together.sum(group.curve.long_run())?;
            for visit in &group.members {
                load = load.plus(self.network.flows[visit.flow.0].rate.into())?;
            }
        }
        self.total.ports[id.0].classes.push(ClassBounds {
            priority,
            load,
            delay,
            backlog: finite(all.backlog(service)?),
        });
        // The next port counts a frame once all of it is there.
        let frames = service.after(self.network.frame)?;
        let links = self.output_of_links(id, &frames, delay, groups)?;
        let mut outputs = Vec::new();
        for group in groups {
            let sum = self.long_run_of(&group.members)?;
            // The others are the other groups and the rest of this one.
            let others = together.without(group.curve.long_run())?;
            for visit in &group.members {
                let curve = &self.curves[visit.flow.0];
                let cross = others.sum(sum.without(curve.long_run())?)?;
                let last = self.next(*visit).is_none();
                self.total.hops[visit.flow.0].push(Hop {
                    delay: delay.round_up(PARTS)?,
                    service: long_run(if last { service } else { &frames }),
                    cross,
                    burst: curve.long_run().burst,
                });
                if !last {
                    let output = output(curve, delay, &frames.left_over_fifo(cross)?)?;
                    outputs.push((visit.flow, output));
                }
            }
        }
        for (flow, output) in outputs {
            self.curves[flow.0] = output;
        }
        for (to, curve) in links {
            self.links.insert((id, to, priority), curve);
        }
        Ok(())
    }

    /// Returns the traffic of each link behind a port, all flows together.
    fn output_of_links(
        &self,
        id: PortId,
        frames: &ServiceCurve,
        delay: Ratio,
        groups: &[Group],
    ) -> Result<BTreeMap<PortId, ArrivalCurve>, Overflow> {
        let all = groups.iter().flat_map(|group| &group.members);
        let mut links: BTreeMap<_, _> = all
            .filter_map(|visit| self.next(*visit))
            .map(|to| (to, ArrivalCurve::none()))
            .collect();
        for (to, curve) in &mut links {
            let (mut ours, mut theirs) = (Vec::new(), Vec::new());
            for group in groups {
                let members = group.members.iter().copied();
                let (stay, leave): (Vec<_>, Vec<_>) =
                    members.partition(|visit| self.next(*visit) == Some(*to));
                // A group's bound is known for all of it only.
                if leave.is_empty() {
                    ours.push(&group.curve);
                } else if stay.is_empty() {
                    theirs.push(&group.curve);
                } else {
                    ours.extend(self.curves_of(&stay));
                    theirs.extend(self.curves_of(&leave));
                }
            }
            let cross = ArrivalCurve::total(theirs)?.long_run();
            let left_over = frames.left_over_fifo(cross)?;
            *curve = output(&ArrivalCurve::total(ours)?, delay, &left_over)?;
            if self.network.line_limit {
                let rate = self.network.port(id).rate;
                *curve = curve.over_links(rate.into(), 1, self.network.frame)?;
            }
        }
        Ok(links)
    }

    fn long_run_of(&self, members: &[Visit]) -> Result<TokenBucket, Overflow> {
        self.curves_of(members)
            .try_fold(TokenBucket::NONE, |sum, curve| sum.sum(curve.long_run()))
    }

    fn next(&self, visit: Visit) -> Option<PortId> {
        let path = &self.network.flows[visit.flow.0].path;
        path.get(visit.hop + 1).copied()
    }
}

/// Returns the traffic behind a FIFO queue with this delay and this remaining service.
fn output(
    curve: &ArrivalCurve,
    delay: Ratio,
    left_over: &ServiceCurve,
) -> Result<ArrivalCurve, Overflow> {
    let delayed = curve.delayed(delay.round_up(PARTS)?)?;
    let output = match curve.output(&left_over.rounded_up()?)? {
        Some(exact) => delayed.min(&exact)?,
        None => delayed,
    };
    output.rounded_up()
}

fn finite(bound: Bound) -> Ratio {
    bound
        .finite()
        .expect("each port's load is at most its rate, which was checked")
}

fn long_run(service: &ServiceCurve) -> RateLatency {
    service
        .long_run()
        .expect("higher priorities leave the rate that this one's flows have")
}

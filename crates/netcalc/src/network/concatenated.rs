//! Servers behind each other as one server, for a flow and for its cross traffic.
//!
//! Total and separated flow analysis bound the traffic at a port queue by queue, each flow for
//! itself. This module bounds flows that arrive over the same link and leave over the same link
//! together, over all their common ports. Their mutual delay does not count, and cross traffic is
//! counted once, at the port where it joins ("pay multiplexing only once": Schmitt, Zdarsky,
//! Martinovic, "Improving Performance Bounds in Feed-Forward Networks by Paying Multiplexing Only
//! Once", MMB 2008; the search for cross traffic: Bondorf and Schmitt, "Boosting sensor network
//! calculus by thoroughly bounding cross-traffic", INFOCOM 2015).
//!
//! The bound needs no order of service, so it holds for FIFO as well. Consider several ports in a
//! row. At each the flows have the rate R less the offset O (higher priorities, one frame of lower
//! ones, one incomplete frame, and R times the latency T), and cross traffic has the rate r. All
//! ports together serve at least at the rate ρ = min (R - r), less
//!
//! `Σ O - Σ (R - r - ρ)·T + Σ b`, with the burst b of each cross flow at the port where it joins.
//!
//! Proof: go back from the moment of interest to the start of the last port's busy period (of all
//! priorities up to this one), from there by the latency to the port before, and so on. In each of
//! these periods of length τ the port served R·τ - O. The cross traffic's part is at most b + r·τ
//! over all its ports. A port's period is no shorter than its latency, so the slowest port gets the
//! rest.

use super::total::{Hop, PARTS, Total, Visit};
use super::{FlowBounds, FlowId, Network, PortId, separated};
use crate::arrival::ArrivalCurve;
use crate::bound::Bound;
use crate::ratio::{Overflow, Ratio};
use crate::service::{RateLatency, ServiceCurve};
use std::collections::{BTreeMap, HashMap};

/// Longest path that is analysed as a whole, in ports.
const HOPS: usize = 16;
/// Number of ports over which the traffic at a port is traced back.
const DEPTH: usize = 64;
/// Limit of the analysis in flows at ports, some seconds of work. Beyond the limit, the bounds of
/// total flow analysis are used.
const EFFORT: usize = 4_000_000;

/// Flows at a port, by number.
type Flows = Vec<Visit>;

/// A port that flows pass together.
struct Step {
    port: PortId,
    /// The flows of interest.
    ours: Flows,
    /// The port's service for the flows' priority.
    service: RateLatency,
    latency: Ratio,
    /// The rate of the cross traffic.
    rate: Ratio,
    /// The burst of the cross traffic.
    burst: Ratio,
    /// The burst of the cross traffic that joins at this port.
    joining: Ratio,
}

/// Service of a path for flows: a rate after a latency.
struct Promise {
    rate: Ratio,
    latency: Ratio,
}

pub(super) struct Concatenation<'n> {
    network: &'n Network,
    hops: &'n [Vec<Hop>],
    /// The flows at each port, by priority.
    at: HashMap<(PortId, u8), Flows>,
    /// The bursts of flows at the arrival at a port.
    known: HashMap<(PortId, Vec<FlowId>), Ratio>,
    effort: usize,
}

impl<'n> Concatenation<'n> {
    pub(super) fn new(network: &'n Network, total: &'n Total) -> Self {
        let mut at: HashMap<(PortId, u8), Flows> = HashMap::new();
        for (index, flow) in network.flows.iter().enumerate() {
            for (hop, port) in flow.path.iter().enumerate() {
                let flows = at.entry((*port, flow.priority)).or_default();
                flows.push(Visit {
                    flow: FlowId(index),
                    hop,
                });
            }
        }
        Self {
            network,
            hops: &total.hops,
            at,
            known: HashMap::new(),
            effort: EFFORT,
        }
    }

    /// Improves a flow's bounds if possible.
    ///
    /// # Errors
    /// The numbers overflow; the previous bounds still hold.
    pub(super) fn improve(
        &mut self,
        flow: FlowId,
        bounds: &FlowBounds,
    ) -> Result<FlowBounds, Overflow> {
        let network = self.network;
        let of = &network.flows[flow.0];
        if of.path.len() > HOPS {
            return Ok(*bounds);
        }
        let alone = vec![Visit {
            flow,
            hop: of.path.len() - 1,
        }];
        let steps = self.steps(&alone, 0)?;
        let source = of.curve(network.frame)?;
        let mut delay = bounds.concatenated_delay;
        for promise in [pay_once(&steps)?, in_any_order(&steps)?] {
            delay = delay.min(source_delay(&source, &promise)?);
        }
        // By the analyses before, with what is known better of the others.
        let mut hops = Vec::with_capacity(steps.len());
        for (step, hop) in steps.iter().zip(&self.hops[flow.0]) {
            let burst = step.burst.plus(hop.burst)?.plus(step.service.offset)?;
            let waits = burst.over(step.service.rate)?.round_up(PARTS)?;
            let mut better = *hop;
            better.delay = hop.delay.min(waits);
            better.cross.burst = hop.cross.burst.min(step.burst);
            hops.push(better);
        }
        let again = separated::bounds(network, of, &hops)?;
        let delay = delay.min(again.total_delay).min(again.separated_delay);
        Ok(FlowBounds {
            concatenated_delay: delay,
            concatenated_backlog: bounds
                .concatenated_backlog
                .min(again.separated_backlog)
                .min(source.at(delay)?),
            ..*bounds
        })
    }

    /// Returns the common ports of flows up to the given one, as far back as all flows arrive from
    /// the same port.
    fn steps(&mut self, flows: &[Visit], depth: usize) -> Result<Vec<Step>, Overflow> {
        let mut ways = vec![flows.to_vec()];
        while let Some(first) = ways.last().filter(|_| ways.len() < HOPS) {
            let mut from = first.iter().map(|visit| self.before(*visit));
            let same = from.next().flatten();
            if same.is_none() || from.any(|other| other != same) {
                break;
            }
            ways.push(first.iter().map(|visit| visit.back()).collect());
        }
        let mut steps: Vec<Step> = Vec::with_capacity(ways.len());
        for ours in ways.into_iter().rev() {
            let step = self.step(ours, steps.last().map(|step| step.port), depth)?;
            steps.push(step);
        }
        Ok(steps)
    }

    fn step(
        &mut self,
        ours: Flows,
        before: Option<PortId>,
        depth: usize,
    ) -> Result<Step, Overflow> {
        let visit = ours[0];
        let of = &self.network.flows[visit.flow.0];
        let port = of.path[visit.hop];
        let all = &self.at[&(port, of.priority)];
        self.effort = self.effort.saturating_sub(all.len());
        let is_ours = |visit: &&Visit| ours.binary_search_by_key(&visit.flow, |it| it.flow).is_ok();
        let others: Flows = all.iter().filter(|it| !is_ours(it)).copied().collect();
        let joining: Flows = others
            .iter()
            .filter(|visit| before.is_none() || self.before(**visit) != before)
            .copied()
            .collect();
        let mut rate = Ratio::ZERO;
        for visit in &others {
            rate = rate.plus(self.network.flows[visit.flow.0].rate.into())?;
        }
        Ok(Step {
            port,
            service: self.hops[visit.flow.0][visit.hop].service,
            latency: self.network.port(port).latency.into(),
            rate,
            burst: self.arriving(port, &others, depth)?,
            joining: self.arriving(port, &joining, depth)?,
            ours,
        })
    }

    fn before(&self, visit: Visit) -> Option<PortId> {
        let before = visit.hop.checked_sub(1)?;
        Some(self.network.flows[visit.flow.0].path[before])
    }

    /// Returns the burst of flows together at the arrival at a port.
    fn arriving(&mut self, port: PortId, flows: &[Visit], depth: usize) -> Result<Ratio, Overflow> {
        if flows.is_empty() {
            return Ok(Ratio::ZERO);
        }
        let key = (port, flows.iter().map(|visit| visit.flow).collect());
        if let Some(known) = self.known.get(&key) {
            return Ok(*known);
        }
        let mut from: BTreeMap<Option<PortId>, Flows> = BTreeMap::new();
        for visit in flows {
            from.entry(self.before(*visit)).or_default().push(*visit);
        }
        let mut sum = Ratio::ZERO;
        let followed = depth < DEPTH && self.effort > 0;
        for (from, flows) in from {
            // Each flow for itself, by total flow analysis; at its source that is what it sends.
            let mut burst = Ratio::ZERO;
            for visit in &flows {
                burst = burst.plus(self.hops[visit.flow.0][visit.hop].burst)?;
            }
            if from.is_some() && followed {
                let left: Flows = flows.iter().map(|visit| visit.back()).collect();
                burst = burst.min(self.leaving(&left, depth + 1)?);
            }
            sum = sum.plus(burst)?;
        }
        if followed {
            self.known.insert(key, sum);
        }
        Ok(sum)
    }

    /// Returns the burst of flows together behind the given port.
    fn leaving(&mut self, flows: &[Visit], depth: usize) -> Result<Ratio, Overflow> {
        let steps = self.steps(flows, depth)?;
        let mut rate = Ratio::ZERO;
        for visit in flows {
            rate = rate.plus(self.network.flows[visit.flow.0].rate.into())?;
        }
        let mut least: Option<Ratio> = None;
        for first in 0..steps.len() {
            let way = &steps[first..];
            let came = self.arriving(way[0].port, &way[0].ours, depth)?;
            let latency = pay_once(way)?.latency;
            let latency = latency.min(in_any_order(way)?.latency).min(in_turn(way)?);
            let burst = came.plus(rate.times(latency)?)?;
            // Whole nanobits, so that denominators do not grow along a path.
            let burst = Ratio::whole(burst.ceil());
            least = Some(least.map_or(burst, |least| least.min(burst)));
        }
        least.ok_or(Overflow)
    }
}

/// Returns the service of a path with each cross flow counted once.
fn pay_once(way: &[Step]) -> Result<Promise, Overflow> {
    let rate = slowest(way)?;
    let mut offset = Ratio::ZERO;
    for (index, step) in way.iter().enumerate() {
        let spare = step.service.rate.minus(step.rate)?.minus(rate)?;
        let joining = if index == 0 { step.burst } else { step.joining };
        offset = offset
            .plus(step.service.offset)?
            .plus(joining)?
            .minus(spare.times(step.latency)?)?;
    }
    let latency = offset.max(Ratio::ZERO).over(rate)?.round_up(PARTS)?;
    Ok(Promise { rate, latency })
}

/// Returns the service of a path whose ports serve cross traffic first.
fn in_any_order(way: &[Step]) -> Result<Promise, Overflow> {
    let mut latency = Ratio::ZERO;
    for step in way {
        let left = step.service.rate.minus(step.rate)?;
        let behind = step.service.offset.plus(step.burst)?;
        latency = latency.plus(behind.over(left)?.round_up(PARTS)?)?;
    }
    let rate = slowest(way)?;
    Ok(Promise { rate, latency })
}

/// Returns the latency of a path of FIFO ports.
fn in_turn(way: &[Step]) -> Result<Ratio, Overflow> {
    let mut latency = Ratio::ZERO;
    for step in way {
        let behind = step.service.offset.plus(step.burst)?;
        latency = latency.plus(behind.over(step.service.rate)?.round_up(PARTS)?)?;
    }
    Ok(latency)
}

fn slowest(way: &[Step]) -> Result<Ratio, Overflow> {
    let mut slowest: Option<Ratio> = None;
    for step in way {
        let left = step.service.rate.minus(step.rate)?;
        slowest = Some(slowest.map_or(left, |slowest| slowest.min(left)));
    }
    slowest.ok_or(Overflow)
}

fn source_delay(source: &ArrivalCurve, promise: &Promise) -> Result<Ratio, Overflow> {
    let server = RateLatency {
        rate: promise.rate,
        offset: promise.rate.times(promise.latency)?,
    };
    match source.delay(&ServiceCurve::greatest(vec![server])?)? {
        Bound::Finite(delay) => delay.round_up(PARTS),
        Bound::Unbounded => Err(Overflow),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Flow, Port, order, total};
    use super::*;
    use tailbound_units::{Bytes, Nanos, Rate};

    /// Beyond the limits of effort and of depth, the bursts are those of total flow analysis: each
    /// flow's own, which the other one delays.
    #[test]
    fn traffic_is_traced_back_within_the_limits() {
        let mut network = Network::new(Bytes(0), false);
        let ports = ["a", "b"].map(|name| {
            network.add_port(Port {
                name: name.to_owned(),
                rate: Rate::from_mbit(1),
                latency: Nanos(0),
                buffer: None,
            })
        });
        for bytes in [125, 250] {
            network.add_flow(Flow {
                name: bytes.to_string(),
                path: ports.to_vec(),
                rate: Rate(1_000),
                burst: Bytes(bytes),
                burst_rate: None,
                priority: 0,
                deadline: None,
            });
        }
        let order = order::feed_forward(&network).unwrap();
        let total = total::analyse(&network, &order).unwrap();
        let flows = [0, 1].map(|index| Visit {
            flow: FlowId(index),
            hop: 1,
        });
        let burst = |effort, depth| {
            let mut analysis = Concatenation::new(&network, &total);
            analysis.effort = effort;
            analysis.arriving(ports[1], &flows, depth).unwrap()
        };
        let together = Ratio::from(Bytes(375));
        assert_eq!(burst(EFFORT, DEPTH - 1), together);
        assert!(burst(0, 0) > together && burst(EFFORT, DEPTH) > together);
    }
}

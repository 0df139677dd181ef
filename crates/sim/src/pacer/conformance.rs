//! Many guests through the pacers of several hosts into one port of a switch, compared with the
//! bounds that the calculus derives from their guarantees.

mod draw;

use super::FRAME;
use super::host::{Excess, Host};
use crate::distribution::{distribution, percentile, sorted};
use crate::net::{
    CLASSES, Frame, Node as _, Port, PortConfig, Time, as_f64, data, delay, exact, tightness,
};
use crate::scenario::Scenario;
use crate::{Threads, parallel};
use draw::{Guest, GuestsByHost};
use serde::Deserialize;
use serde_json::json;
use tailbound_dataplane::pacer::{Guarantee, PacerConfig, PacerError, void};
use tailbound_experiment::{ExperimentError, Run, RunOutput, Section};
use tailbound_netcalc::{Flow, Network, NetworkError, Overflow, Ratio};
use tailbound_report::{Chart, ChartAxis, Line, LineStyle, Variant};
use tailbound_units::{Bytes, Nanos, Rate};

/// Random networks.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Conformance {
    /// Networks, each with simultaneous bursts and with random arrivals.
    pub networks: u32,
    /// Rate of a host's wire.
    pub link: Rate,
    /// Rate of the link behind the common port.
    pub port: Rate,
    /// Fewest and most hosts.
    pub hosts: (u32, u32),
    /// Fewest and most guests per host.
    pub guests: (u32, u32),
    /// Longest burst, in full frames.
    pub burst_frames: u64,
    /// Sum of the guarantees, in percent of the port.
    pub load: u64,
}

/// Arrivals of guests' frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Arrivals {
    /// All frames arrive at the start.
    Together,
    /// Frames arrive in random groups at random times.
    Random,
}

/// Measurements of one flow.
#[derive(Debug, Clone, Copy)]
struct FlowSeen {
    longest: Ratio,
    bound: Ratio,
    /// The bound without the latency that the pacer adds.
    plain: Ratio,
}

/// Measurements of one network.
#[derive(Debug, Clone, Default)]
struct Outcome {
    flows: Vec<FlowSeen>,
    frames: u64,
    /// Largest backlog of the port, as a part of its bound.
    queue: f64,
    /// Largest backlog of the port, as a part of the bound without the latency that the pacer adds.
    queue_of_plain: f64,
    /// Numbers of violations: departures, arrivals at the port, delays, backlogs.
    departures: u64,
    arrivals: u64,
    delays: u64,
    backlogs: u64,
    /// Delays above the bound without the latency that the pacer adds.
    over_plain: u64,
    /// Largest excess of departures over the guarantee, in bytes.
    departure_excess: i128,
}

/// A frame that arrives at the port.
#[derive(Debug, Clone, Copy)]
struct Arrival {
    /// Arrival of its last bit, and its departure.
    at: Time,
    departure: Time,
    flow: usize,
    wire: u64,
}

/// Rounding of departures, in bytes: one for each bucket.
const ROUNDING: u64 = 2;

impl Scenario for Conformance {
    fn check(&self, section: &mut Section<'_>) {
        section.range("networks", self.networks, 1..=1_000_000);
        section.range("hosts", self.hosts.0, 1..=self.hosts.1);
        section.range("hosts", self.hosts.1, 1..=100);
        section.range("guests", self.guests.0, 1..=self.guests.1);
        section.range("guests", self.guests.1, 1..=100);
        section.range("burst_frames", self.burst_frames, 1..=1_000);
        section.range("load", self.load, 1..=100);
        section.range("port", self.port, Rate(1)..=self.link);
        for (key, rate) in [("link", self.link), ("port", self.port)] {
            section.hold(key, exact(rate, Rate::from_mbit(100)));
        }
    }

    fn outline(&self) -> Vec<Variant> {
        vec![summary(&[])]
    }

    fn run(&self, run: &mut Run<'_, Threads>) -> Result<RunOutput, ExperimentError> {
        let seed = run.seed;
        let numbers: Vec<u32> = (0..self.networks).collect();
        let name = |number: &u32| format!("network {number}");
        let outcomes = parallel::map(run, &numbers, name, |number| {
            self.judge(&self.draw(seed, *number))
        })?;
        let mut found = RunOutput {
            variants: vec![summary(&outcomes)],
            charts: charts(&outcomes),
            ..RunOutput::default()
        };
        found.condition("networks", self.networks);
        found.condition("hosts", json!(self.hosts));
        found.condition("guests", json!(self.guests));
        found.condition("burst_frames", self.burst_frames);
        found.condition("load_percent", self.load);
        found.condition("link", self.link.to_string());
        found.condition("port", self.port.to_string());
        found.condition("added_latency", self.added().to_string());
        Ok(found)
    }
}

impl Conformance {
    /// Returns the latency that the pacer adds to its guarantee: rounded departures, and a gap that
    /// is shorter than the shortest void.
    fn added(&self) -> Nanos {
        self.link.time_for(Bytes(ROUNDING + void::SHORTEST.0 - 1))
    }

    /// Returns the network of the calculus: each host's wire with the added latency, and the port
    /// behind all of them.
    fn network(&self, drawn: &GuestsByHost, latency: Nanos) -> Network {
        let mut network = Network::new(Bytes(FRAME), true);
        let port = |name: String, rate, latency| tailbound_netcalc::Port {
            name,
            rate,
            latency,
            buffer: None,
        };
        let down = network.add_port(port("port".to_owned(), self.port, Nanos::ZERO));
        for (host, guests) in drawn.hosts.iter().enumerate() {
            let up = network.add_port(port(format!("host{host}"), self.link, latency));
            for (number, guest) in guests.iter().enumerate() {
                network.add_flow(Flow {
                    name: format!("host{host}.{number}"),
                    path: vec![up, down],
                    rate: guest.guarantee.bandwidth,
                    burst: guest.guarantee.burst,
                    burst_rate: Some(guest.guarantee.burst_rate),
                    priority: 0,
                    deadline: None,
                });
            }
        }
        network
    }

    fn judge(&self, drawn: &GuestsByHost) -> Result<Outcome, NotSimulated> {
        let network = self.network(drawn, self.added());
        let bounds = network.bounds()?;
        let plain = self.network(drawn, Nanos::ZERO).bounds()?;
        let mut outcome = Outcome::default();
        let mut longest = vec![Time::ZERO; network.flows().len()];
        let mut peak = 0;
        for arrivals in [Arrivals::Together, Arrivals::Random] {
            let mut all = Vec::new();
            let mut flow = 0;
            for (host, guests) in drawn.hosts.iter().enumerate() {
                // The first port is the switch's.
                let waits = bounds.ports[host + 1].classes[0].delay;
                let came = self.host(guests, arrivals, flow, waits, &mut outcome)?;
                all.extend(came);
                flow += guests.len();
            }
            // Of two frames at the same instant either may be first.
            all.sort_by_key(|arrival| (arrival.at, arrival.flow));
            outcome.frames += all.len() as u64;
            peak = self.through_port(&all, &mut longest).max(peak);
        }
        for (index, longest) in longest.into_iter().enumerate() {
            let seen = FlowSeen {
                longest: delay(longest)?,
                bound: bounds.flows[index].delay(),
                plain: plain.flows[index].delay(),
            };
            outcome.delays += u64::from(seen.longest > seen.bound);
            outcome.over_plain += u64::from(seen.longest > seen.plain);
            outcome.flows.push(seen);
        }
        let peak = data(peak)?;
        outcome.backlogs += u64::from(peak > bounds.ports[0].backlog);
        outcome.queue = tightness(peak, bounds.ports[0].backlog);
        outcome.queue_of_plain = tightness(peak, plain.ports[0].backlog);
        Ok(outcome)
    }

    /// Runs one host and compares its frames with the guests' guarantees. No frame waits longer
    /// than `waits` on its wire.
    fn host(
        &self,
        guests: &[Guest],
        arrivals: Arrivals,
        first: usize,
        waits: Ratio,
        outcome: &mut Outcome,
    ) -> Result<Vec<Arrival>, NotSimulated> {
        let mut host = Host::new(&PacerConfig::strict(self.link))?;
        let curves = |guarantee: &Guarantee| {
            [
                (guarantee.bandwidth, guarantee.burst),
                (guarantee.burst_rate, Bytes(FRAME)),
            ]
            .map(|(rate, burst)| Excess::new(self.link, rate, burst))
        };
        let mut scheduled = Vec::new();
        for guest in guests {
            host.add(Some(&guest.guarantee), guest.traffic(arrivals))?;
            scheduled.push(curves(&guest.guarantee));
        }
        let mut arrived = scheduled.clone();
        // A byte of the wire in picoseconds: an integer.
        let byte = 8_000_000_000_000 / self.link.0;
        let mut all = Vec::new();
        host.run(Nanos::MAX, |frame, departure, at| {
            let (guest, wire) = (frame.guest as usize, frame.wire());
            for curve in &mut scheduled[guest] {
                curve.add(departure, wire);
            }
            for curve in &mut arrived[guest] {
                curve.add(at + wire, wire);
            }
            all.push(Arrival {
                at: Time((at + wire).0 * byte),
                departure: Time(departure.0 * byte),
                flow: first + guest,
                wire: wire.0,
            });
        });
        for (guest, (scheduled, arrived)) in guests.iter().zip(scheduled.iter().zip(&arrived)) {
            let rates = [guest.guarantee.bandwidth, guest.guarantee.burst_rate];
            for ((rate, scheduled), arrived) in rates.into_iter().zip(scheduled).zip(arrived) {
                outcome.departure_excess = outcome.departure_excess.max(scheduled.bytes());
                outcome.departures += u64::from(scheduled.bytes() > ROUNDING.into());
                // The curve after a queue with a delay of at most `waits`: shifted by it, so a
                // larger burst. Nanobits in a byte: 8 · 10^9.
                let more = waits.times(rate.into())?;
                let more = more.over(Ratio::whole(8_000_000_000))?.ceil();
                outcome.arrivals += u64::from(arrived.bytes() > more);
            }
        }
        Ok(all)
    }

    /// Sends all frames through the port. Returns its largest backlog in picobits.
    fn through_port(&self, all: &[Arrival], longest: &mut [Time]) -> u128 {
        let mut port = Port::new(PortConfig {
            rate: self.port,
            latency: Nanos::ZERO,
            propagation: Nanos::ZERO,
            buffer: [None; CLASSES],
        });
        let mut out = Vec::new();
        let mut until = |port: &mut Port, end: Time| {
            while port.poll_at() <= end && port.poll_at() < Time::NEVER {
                let now = port.poll_at();
                port.poll(now, &mut out);
                for frame in out.drain(..) {
                    let longest = &mut longest[frame.flow as usize];
                    *longest = (*longest).max(now.since(frame.sent));
                }
            }
        };
        for arrival in all {
            until(&mut port, arrival.at);
            let frame = Frame {
                flow: arrival.flow as u32,
                number: 0,
                size: Bytes(arrival.wire),
                class: 0,
                sent: arrival.departure,
                next: 0,
            };
            // A port does not forward a frame immediately.
            port.receive(arrival.at, frame, &mut Vec::new());
        }
        until(&mut port, Time::NEVER);
        port.stats().peak_of_all
    }
}

/// Reason for which a network was not simulated.
#[derive(Debug, thiserror::Error)]
enum NotSimulated {
    #[error(transparent)]
    Refused(#[from] PacerError),
    #[error(transparent)]
    Network(#[from] NetworkError),
    #[error(transparent)]
    Overflow(#[from] Overflow),
}

fn summary(outcomes: &[Outcome]) -> Variant {
    let sum = |figure: fn(&Outcome) -> u64| outcomes.iter().map(figure).sum::<u64>() as f64;
    let flows = || outcomes.iter().flat_map(|it| &it.flows);
    let delays = sorted(flows().map(|it| tightness(it.longest, it.bound)));
    let plain = flows().map(|it| tightness(it.longest, it.plain));
    let queues = sorted(outcomes.iter().map(|it| it.queue));
    let queue_of_plain = outcomes.iter().map(|it| it.queue_of_plain);
    let added = flows().map(|it| as_f64(it.bound) - as_f64(it.plain));
    let excess = outcomes.iter().map(|it| it.departure_excess).max();
    let percent = |figures: &[f64], at: f64| 100.0 * percentile(figures, at);
    Variant::of_values(
        "networks",
        [
            ("networks", outcomes.len() as f64, ""),
            ("flows", delays.len() as f64, ""),
            ("frames", sum(|it| it.frames), ""),
            ("stamps_over_guarantee", sum(|it| it.departures), ""),
            ("stamp_excess_max", excess.unwrap_or(0) as f64, "B"),
            ("arrivals_over_curve", sum(|it| it.arrivals), ""),
            ("delays_over_bound", sum(|it| it.delays), ""),
            ("queues_over_bound", sum(|it| it.backlogs), ""),
            ("delay_of_bound_p50", percent(&delays, 50.0), "%"),
            ("delay_of_bound_max", percent(&delays, 100.0), "%"),
            ("queue_of_bound_p50", percent(&queues, 50.0), "%"),
            ("queue_of_bound_max", percent(&queues, 100.0), "%"),
            (
                "delays_over_bound_without_added",
                sum(|it| it.over_plain),
                "",
            ),
            (
                "delay_of_bound_without_added_max",
                100.0 * plain.fold(0.0, f64::max),
                "%",
            ),
            (
                "queue_of_bound_without_added_max",
                100.0 * queue_of_plain.fold(0.0, f64::max),
                "%",
            ),
            ("bound_added_max", added.fold(0.0, f64::max), "ns"),
        ],
    )
}

/// Returns the flows of the first networks in the order of their bounds, with the longest delay of
/// each below; and the distribution of the ratios.
fn charts(outcomes: &[Outcome]) -> Vec<Chart> {
    const DRAWN: usize = 300;
    let mut flows: Vec<&FlowSeen> = outcomes.iter().flat_map(|it| &it.flows).collect();
    let all = sorted(flows.iter().map(|it| tightness(it.longest, it.bound)));
    flows.truncate(DRAWN);
    flows.sort_by_key(|it| it.bound);
    let line = |name: &str, style, figure: fn(&FlowSeen) -> Ratio| {
        let flows = (1..).zip(&flows);
        let points = flows.map(|(x, flow)| (f64::from(x), as_f64(figure(flow))));
        Line::new(name, style, points)
    };
    vec![
        Chart {
            name: "bound-and-delay".to_owned(),
            title: "Longest delay of each flow from its departure on, below its bound".to_owned(),
            x: ChartAxis::linear("flows, by their bounds", ""),
            y: ChartAxis::linear("delay", "ns"),
            lines: vec![
                line("longest delay", LineStyle::Measured, |it| it.longest),
                line("bound", LineStyle::Bound, |it| it.bound),
            ],
            note: None,
        },
        Chart {
            name: "tightness".to_owned(),
            title: "Longest delay of a flow, as a part of its bound".to_owned(),
            x: ChartAxis::linear("longest delay seen, of the bound", "%"),
            y: ChartAxis::linear("flows with at most this", "%"),
            lines: vec![distribution("flows", &all)],
            note: Some("A bound that is exceeded would be right of 100 %.".to_owned()),
        },
    ]
}

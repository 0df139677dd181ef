//! Random networks compared with their bounds.

mod summary;

pub(crate) use summary::{LONGEST_FRAME, exact};

use super::Fabric;
use super::calc::{Calc, CalcError, Violation, data, delay, tightness};
use super::search::{Effort, Search};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde::Deserialize;
use std::fmt::Write as _;
use tailbound_netcalc::{Flow, Network, Port};
use tailbound_units::{Bytes, Nanos, Rate};

/// Random networks.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomNetworks {
    /// Networks.
    pub networks: u32,
    /// Fewest and most ports.
    pub ports: (u32, u32),
    /// Fewest and most flows.
    pub flows: (u32, u32),
    /// Longest burst, in frames.
    pub burst_frames: u64,
    /// Lengths of frames, one per network.
    pub frames: Vec<Bytes>,
    /// Rates of links, one per port.
    pub rates: Vec<Rate>,
    /// Highest load of the fullest port, in percent.
    pub load: u32,
    /// Percentage of networks with two priorities.
    pub two_priorities: u32,
    /// Search for the worst timing.
    pub effort: Effort,
}

/// One random network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RandomNetwork {
    frame: Bytes,
    ports: Vec<Port>,
    /// Flows, with the positions of their ports.
    flows: Vec<(Flow, Vec<usize>)>,
}

/// Outcome of one network.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Outcome {
    /// Measurements above their bounds.
    pub violations: Vec<Violation>,
    /// Ratio of each flow's delay to its bounds.
    pub delays: Vec<DelayTightness>,
    /// Ratio of each port's backlog to its bound, for ports with flows.
    pub backlogs: Vec<f64>,
    /// Events in all runs.
    pub events: u64,
}

/// Ratios of a flow's longest delay to its bounds, 1 being all.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DelayTightness {
    /// Ratio to the bound by total flow analysis.
    pub total: f64,
    /// Ratio to the bound by separated flow analysis.
    pub separated: f64,
    /// Ports that the flow passes.
    pub hops: usize,
}

impl DelayTightness {
    /// Ratio to the smaller bound.
    pub fn best(&self) -> f64 {
        self.total.max(self.separated)
    }
}

/// Returns the random numbers of network `number`.
fn generator(seed: u64, number: u32) -> Pcg64Mcg {
    // Consecutive networks have different streams.
    Pcg64Mcg::seed_from_u64(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(number))
}

impl RandomNetworks {
    /// Returns network `number` of this seed.
    pub fn draw(&self, seed: u64, number: u32) -> RandomNetwork {
        let random = &mut generator(seed, number);
        let frame = *pick(random, &self.frames);
        let count = random.random_range(self.ports.0..=self.ports.1);
        let port = |random: &mut Pcg64Mcg, index: u32| Port {
            name: format!("p{index}"),
            rate: *pick(random, &self.rates),
            latency: if random.random_bool(0.7) {
                Nanos::ZERO
            } else {
                Nanos(random.random_range(0..5_000))
            },
            buffer: None,
        };
        let ports: Vec<_> = (0..count).map(|index| port(random, index)).collect();
        let count = random.random_range(self.flows.0..=self.flows.1);
        // Ports of a path have increasing numbers, so that there is no cycle.
        let paths: Vec<Vec<usize>> = (0..count).map(|_| path(random, ports.len())).collect();
        let shares: Vec<u64> = paths.iter().map(|_| random.random_range(1..=20)).collect();
        let mut through = vec![0; ports.len()];
        for (path, share) in paths.iter().zip(&shares) {
            for port in path {
                through[*port] += share;
            }
        }
        let load = u64::from(random.random_range(self.load.div_ceil(2)..=self.load));
        let two = random.random_range(0..100) < self.two_priorities;
        let mut flows = Vec::new();
        for (index, (path, share)) in paths.into_iter().zip(shares).enumerate() {
            let slice = |port: &usize| {
                let rate = u128::from(ports[*port].rate.0) * u128::from(share * load);
                (rate / u128::from(100 * through[*port])) as u64
            };
            let rate = path.iter().map(slice).min().unwrap_or(1).max(1);
            let frames = random.random_range(1..=self.burst_frames);
            let rest = if random.random_bool(0.5) {
                0
            } else {
                random.random_range(0..frame.0)
            };
            let first = ports[path[0]].rate.0;
            let burst_rate = match random.random_range(0..3) {
                0 => None,
                // The rate of the link, as in Silo; or slower.
                1 => Some(Rate(first.max(rate))),
                _ => Some(Rate(random.random_range(rate..=first.max(rate)))),
            };
            let flow = Flow {
                name: format!("f{index}"),
                path: Vec::new(),
                rate: Rate(rate),
                burst: Bytes(frames * frame.0 + rest),
                burst_rate,
                priority: if two { random.random_range(0..2) } else { 0 },
                deadline: None,
            };
            flows.push((flow, path));
        }
        RandomNetwork {
            frame,
            ports,
            flows,
        }
    }

    /// Searches network `number` for its worst timing. `change` is applied to it before each run.
    ///
    /// # Errors
    /// The network has no bounds: the distribution of networks is wrong.
    pub fn judge(
        &self,
        drawn: &RandomNetwork,
        seed: u64,
        number: u32,
        change: &dyn Fn(&mut Fabric),
    ) -> Result<Outcome, CalcError> {
        let network = drawn.network();
        let calc = Calc::new(&network)?;
        let mut random = generator(!seed, number);
        let observed = Search::new(&calc, change, &mut random).all(self.effort);
        let bounds = calc.bounds();
        let mut outcome = Outcome {
            violations: calc.violations(&observed)?,
            events: observed.events,
            ..Outcome::default()
        };
        for (index, flow) in network.flows().iter().enumerate() {
            let longest = delay(observed.delays[index])?;
            let bounds = &bounds.flows[index];
            outcome.delays.push(DelayTightness {
                total: tightness(longest, bounds.total_delay),
                separated: tightness(longest, bounds.separated_delay),
                hops: flow.path.len(),
            });
        }
        for (port, most) in bounds.ports.iter().zip(&observed.backlogs) {
            if !port.classes.is_empty() {
                outcome.backlogs.push(tightness(data(*most)?, port.backlog));
            }
        }
        Ok(outcome)
    }

    /// Returns the smallest part of a network that still shows a violation: flows are removed one
    /// after the other as long as a violation remains.
    pub fn shrink(
        &self,
        drawn: &RandomNetwork,
        seed: u64,
        number: u32,
        change: &dyn Fn(&mut Fabric),
    ) -> RandomNetwork {
        let mut small = drawn.clone();
        let mut index = 0;
        while index < small.flows.len() && small.flows.len() > 1 {
            let mut smaller = small.clone();
            smaller.flows.remove(index);
            let outcome = self.judge(&smaller, seed, number, change);
            if outcome.is_ok_and(|it| !it.violations.is_empty()) {
                small = smaller;
            } else {
                index += 1;
            }
        }
        small
    }
}

fn pick<'i, T>(random: &mut Pcg64Mcg, items: &'i [T]) -> &'i T {
    &items[random.random_range(0..items.len())]
}

/// Returns some of the ports, in order.
fn path(random: &mut Pcg64Mcg, ports: usize) -> Vec<usize> {
    let path: Vec<_> = (0..ports).filter(|_| random.random_bool(0.5)).collect();
    if path.is_empty() {
        return vec![random.random_range(0..ports)];
    }
    path
}

impl RandomNetwork {
    /// Returns the network.
    pub fn network(&self) -> Network {
        let mut network = Network::new(self.frame, true);
        let ports = self.ports.iter().map(|port| network.add_port(port.clone()));
        let ports: Vec<_> = ports.collect();
        for (flow, path) in &self.flows {
            network.add_flow(Flow {
                path: path.iter().map(|port| ports[*port]).collect(),
                ..flow.clone()
            });
        }
        network
    }

    /// Number of its flows.
    pub fn flows(&self) -> usize {
        self.flows.len()
    }

    /// Returns the network as a file for `tailbound calc`.
    pub fn to_toml(&self) -> String {
        let mut text = format!("frame = \"{}\"\n", self.frame);
        // Writing to a String does not fail.
        for port in &self.ports {
            let (name, rate, latency) = (&port.name, port.rate, port.latency);
            let _ = write!(
                text,
                "\n[[port]]\nname = \"{name}\"\nrate = \"{rate}\"\nlatency = \"{latency}\"\n"
            );
        }
        for (flow, path) in &self.flows {
            let (name, rate, burst) = (&flow.name, flow.rate, flow.burst);
            let priority = flow.priority;
            let path: Vec<_> = path.iter().map(|port| &self.ports[*port].name).collect();
            let _ = write!(
                text,
                "\n[[flow]]\nname = \"{name}\"\npath = {path:?}\nrate = \"{rate}\"\nburst = \
                 \"{burst}\"\npriority = {priority}\n"
            );
            if let Some(fast) = flow.burst_rate {
                let _ = writeln!(text, "burst_rate = \"{fast}\"");
            }
        }
        text
    }
}

#[cfg(test)]
mod tests;

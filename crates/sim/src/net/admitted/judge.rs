//! Comparison of measurements with guarantees and bounds.

use super::Admitted;
use super::traffic::{self, Timing, Traffic};
use crate::net::{FabricRun, Time};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use tailbound_placement::{Datacentre, Policy, PortId, SpecError, Topology};
use tailbound_units::Nanos;

/// Largest ratio of a measurement to its limit.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Worst {
    /// Number of measurements above the limit.
    pub over: u64,
    /// Largest part of the limit, 1 being all.
    pub part: f64,
}

impl Worst {
    fn add(&mut self, seen: u128, allowed: u128) {
        self.over += u64::from(seen > allowed);
        let part = if seen == 0 {
            0.0
        } else {
            seen as f64 / allowed as f64
        };
        self.part = self.part.max(part);
    }
}

/// Outcome of one data centre under one policy.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CentreOutcome {
    /// Number of taken slots.
    pub slots: u32,
    /// Number of admitted tenants.
    pub tenants: u32,
    /// Number of simulated runs.
    pub runs: u32,
    /// Number of events in all runs.
    pub events: u64,
    /// Number of frames with a guarantee that arrived.
    pub frames: u64,
    /// Number of frames with a guarantee that were dropped.
    pub dropped: u64,
    /// Queues compared with their buffers: ports in runs. With best-effort traffic below, one of
    /// its frames may be on the wire, and the buffer is larger by that.
    pub rooms: Worst,
    /// Queues compared with the bound for the placed tenants, if there is one.
    pub bounds: Worst,
    /// Longest delay of each flow compared with its tenant's guarantee.
    pub promises: Worst,
    /// Longest delay of each flow compared with the sum of the queues' capacities on its path.
    pub paths: Worst,
    /// Longest delay of each flow compared with the sum of their bounds.
    pub path_bounds: Worst,
    /// Largest part of its bound that each port reached in any run, for ports with a bound.
    pub ports: Vec<f64>,
}

/// Largest delay of senders that do not begin together.
const SHIFT: Nanos = Nanos(200_000);

impl Admitted {
    /// Fills data centre `number` and simulates it.
    ///
    /// # Errors
    /// The data centre cannot be built.
    pub fn judge(
        &self,
        policy: Policy,
        seed: u64,
        number: u32,
    ) -> Result<CentreOutcome, SpecError> {
        let topology = self.topology()?;
        let seed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(number);
        let dc = self.fill(&topology, policy, seed);
        let random = &mut Pcg64Mcg::seed_from_u64(!seed);
        let mut outcome = CentreOutcome {
            slots: super::used(&dc),
            tenants: dc.tenants().count() as u32,
            ..CentreOutcome::default()
        };
        let mut peaks = vec![0_u128; traffic::ports(&topology).count()];
        let targets = self.targets(&dc).into_iter().map(Traffic::Target);
        let shuffles = (0..self.shuffles).flat_map(|_| [Traffic::ToOne, Traffic::Shuffle]);
        for traffic in targets.chain(shuffles) {
            let timings = [
                (Timing::Together, false),
                (Timing::Together, true),
                (Timing::Shifted(SHIFT), false),
                (Timing::Again, true),
                (Timing::Random, true),
            ];
            for (timing, below) in timings {
                let pairs = traffic::pairs(&dc, traffic, random);
                let fabric = self.fabric(&topology, &pairs, timing, below, random);
                let mut run = fabric.start(random.random());
                run.run(Time::NEVER, &mut ());
                outcome.take(&dc, &run, &pairs, below);
                for (peak, port) in peaks.iter_mut().zip(run.ports()) {
                    if !below {
                        *peak = (*peak).max(port.peak[0]);
                    }
                }
            }
        }
        for (peak, port) in peaks.into_iter().zip(traffic::ports(&topology)) {
            if let Some(bound) = dc.bound(port).filter(|bound| bound.backlog > 0) {
                outcome
                    .ports
                    .push(peak as f64 / (bound.backlog as f64 * PICOBITS_PER_BIT as f64));
            }
        }
        Ok(outcome)
    }

    /// Returns the ports whose queues may be the fullest, relative to their buffers.
    fn targets(&self, dc: &Datacentre) -> Vec<PortId> {
        let mut ports: Vec<(u16, PortId)> = traffic::ports(dc.topology())
            .filter(|port| !dc.load(*port).is_none())
            .map(|port| (dc.headroom(port), port))
            .collect();
        ports.sort_unstable();
        ports.truncate(self.targeted_runs as usize);
        ports.into_iter().map(|(_, port)| port).collect()
    }
}

const PICOBITS_PER_BIT: u128 = 1_000_000_000_000;

/// Returns the sum of a value over the ports from one host to another.
fn sum(
    topology: &Topology,
    pair: &traffic::Pair,
    of: impl Fn(PortId) -> Option<Nanos>,
) -> Option<u128> {
    let ports = topology.path(pair.from, pair.to).into_iter();
    ports
        .map(|port| of(port).map(|time| u128::from(time.0)))
        .sum()
}

impl CentreOutcome {
    fn take(&mut self, dc: &Datacentre, run: &FabricRun, pairs: &[traffic::Pair], below: bool) {
        let topology = dc.topology();
        self.runs += 1;
        self.events += run.events();
        for (port, stats) in traffic::ports(topology).zip(run.ports()) {
            self.dropped += stats.dropped[0].frames;
            // Data that is queued while a best-effort frame is finished.
            let more = if below { topology.frame().0 * 8 } else { 0 };
            let bits = |bits: u64| u128::from(bits + more) * PICOBITS_PER_BIT;
            self.rooms
                .add(stats.peak[0], bits(topology.port(port).backlog_limit));
            if let Some(bound) = dc.bound(port).filter(|_| stats.peak[0] > 0) {
                self.bounds.add(stats.peak[0], bits(bound.backlog));
            }
        }
        for (pair, flow) in pairs.iter().zip(run.flows()) {
            self.frames += flow.frames;
            let seen = u128::from(flow.longest.0);
            let picos = |nanos: u128| nanos * 1_000;
            if let Some(promised) = pair.promised {
                self.promises.add(seen, picos(promised.0.into()));
            }
            let capacity = sum(topology, pair, |port| Some(topology.port(port).capacity));
            self.paths.add(seen, picos(capacity.unwrap_or(0)));
            let bound = sum(topology, pair, |port| {
                dc.bound(port).map(|bound| bound.delay)
            });
            if let Some(bound) = bound {
                self.path_bounds.add(seen, picos(bound));
            }
        }
    }
}

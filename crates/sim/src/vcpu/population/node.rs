//! One node: its guests, and its results in the two tests.

use super::{Neighbour, Population, Rules, WARMUP};
use crate::distribution::drawn;
use crate::scheduler::AnyScheduler;
use crate::vcpu::recorder::record;
use hdrhistogram::Histogram;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use tailbound_hypervisor::{
    Arrivals, Costs, Credit, DEFAULT_WEIGHT, Domain, Host, Load, Machine, Simulation,
    SimulationConfig, Task, VcpuId, Workload,
};
use tailbound_probe::network::{Calls, LATE_CALL, RATES, judge};
use tailbound_probe::select::Candidate;
use tailbound_probe::{NodeVerdict, Rule};
use tailbound_report::empty_histogram;
use tailbound_units::Nanos;

/// The tested guest.
pub(super) const TESTED: VcpuId = VcpuId(0);

/// Interval of the check whether a probe is complete.
const STEP: Nanos = Nanos::from_millis(100);

/// The neighbours of the tested guest on a node.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    /// Workload of each neighbour, and its cap.
    pub(super) neighbours: Vec<(Workload, u32)>,
    pub(super) seed: u64,
}

/// Task of the tested guest.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Test {
    /// Sleeps for this time and reads the clock when it wakes.
    Probe(Nanos),
    /// Answers calls with these arrivals.
    Network(Arrivals),
    /// Runs work that the caller adds.
    Asked,
}

/// Verdicts on a node.
#[derive(Debug, Clone)]
pub(crate) struct ProbedNode {
    /// Verdict of the network test.
    pub(crate) truth: NodeVerdict,
    /// Result of the probe.
    pub(crate) fine: ProbeResult,
    /// Result of the coarse probe.
    pub(crate) coarse: ProbeResult,
}

/// Result of a whole run of a probe.
#[derive(Debug, Clone)]
pub(crate) struct ProbeResult {
    /// Number of late sleeps.
    pub(crate) late: u64,
    /// Duration of the run.
    pub(crate) time: Nanos,
    /// Result of the early-stopping rule.
    pub(crate) early: Early,
}

/// Result of the early-stopping rule.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Early {
    pub(crate) outcome: NodeVerdict,
    /// Time, number of sleeps, and number of late ones at its decision.
    pub(crate) time: Nanos,
    pub(crate) samples: u64,
    pub(crate) late: u64,
}

impl ProbedNode {
    pub(crate) fn is_bad(&self) -> bool {
        self.truth == NodeVerdict::Bad
    }

    /// Returns the node as a candidate of `tailbound select`. The network is tested only if the
    /// sleeps are inconclusive.
    pub(crate) fn candidate(&self, place: usize) -> Candidate {
        let Early {
            outcome,
            samples,
            late,
            ..
        } = self.fine.early;
        Candidate {
            name: format!("{place:06}"),
            outcome,
            network: (outcome == NodeVerdict::Unsure).then_some(self.truth),
            samples,
            late,
            p99_9: Nanos::ZERO,
        }
    }
}

impl Node {
    /// Returns the `index`th node of a population.
    pub(crate) fn draw(population: &Population, index: u32, seed: u64) -> Self {
        // Random streams of consecutive nodes must differ.
        let seed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (u64::from(index) << 32);
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let (fewest, most) = population.population.neighbours;
        let count = random.random_range(fewest..=most);
        let neighbours = (0..count).filter_map(|_| neighbour(population, &mut random));
        Self {
            neighbours: neighbours.collect(),
            seed: seed.wrapping_add(1),
        }
    }

    /// Returns the node at time 0 with the tested guest ready.
    pub(crate) fn prepare(
        &self,
        population: &Population,
        test: Test,
        salt: u64,
    ) -> Result<Simulation<AnyScheduler>, String> {
        let nodes = &population.population;
        let tested = Workload::task(match test {
            Test::Probe(sleep) => Task::SleepLoop {
                sleep,
                work: nodes.probe_work,
                jitter: nodes.probe_jitter,
            },
            Test::Network(arrivals) => Task::Server {
                arrivals,
                service: nodes.service,
                via: None,
            },
            Test::Asked => Task::None,
        });
        let neighbours = self.neighbours.iter().map(|(workload, _)| *workload);
        let workloads: Vec<_> = std::iter::once(tested).chain(neighbours).collect();
        let (machine, config) = self.machine(population, salt)?;
        Simulation::new(machine, &workloads, config).map_err(|error| error.to_string())
    }

    /// Returns its CPUs at time 0, of the tested guest and of its neighbours in their order.
    pub(super) fn machine(
        &self,
        population: &Population,
        salt: u64,
    ) -> Result<(Machine<AnyScheduler>, SimulationConfig), String> {
        let nodes = &population.population;
        let mut host = Host::new(nodes.pcpus).map_err(|error| error.to_string())?;
        let neighbours = self.neighbours.iter().map(|&(_, cap)| cap);
        for cap in std::iter::once(nodes.cap).chain(neighbours) {
            let weight = DEFAULT_WEIGHT;
            let domain = Domain { weight, cap };
            let domain = host.add_domain(domain).map_err(|error| error.to_string())?;
            host.add_vcpu(domain).map_err(|error| error.to_string())?;
        }
        let scheduler: AnyScheduler = Box::new(Credit::new(nodes.credit.config()?, &host));
        let config = SimulationConfig {
            seed: self.seed.wrapping_add(salt),
            timer_slop: nodes.timer_slop,
        };
        Ok((Machine::new(&host, scheduler, Costs::default()), config))
    }

    /// Runs all tests. `hears` receives the times of the calls, at each rate in turn.
    pub(crate) fn judge(
        &self,
        population: &Population,
        rules: &Rules,
        hears: &mut impl FnMut(&[Nanos]),
    ) -> Result<ProbedNode, String> {
        let end = WARMUP.saturating_add(population.population.network_test);
        let mut rates = Vec::new();
        for (salt, rate) in (1..).zip(RATES) {
            let mean = Nanos(1_000_000_000 / u64::from(rate));
            let took = self.answers(population, Arrivals::Poisson { mean }, salt, end)?;
            let late = took.iter().filter(|took| **took >= LATE_CALL).count();
            let calls = Calls {
                calls: took.len() as u64,
                late: late as u64,
                ..Calls::default()
            };
            rates.push((rate, calls));
            hears(&took);
        }
        let (truth, _) = judge(&rates);
        Ok(ProbedNode {
            truth,
            fine: self.probe(population, &rules.fine, 0, false)?,
            coarse: self.probe(population, &rules.coarse, 0, false)?,
        })
    }

    /// Returns the times of calls with these arrivals, until `end`.
    pub(crate) fn answers(
        &self,
        population: &Population,
        arrivals: Arrivals,
        salt: u64,
        end: Nanos,
    ) -> Result<Vec<Nanos>, String> {
        let mut simulation = self.prepare(population, Test::Network(arrivals), salt)?;
        simulation.run(WARMUP, &mut |_| {});
        let mut took = Vec::new();
        simulation.run(end, &mut |sample| {
            if sample.vcpu == TESTED {
                took.push(sample.took);
            }
        });
        Ok(took)
    }

    /// Runs the probe: completely, or until it has its answer.
    pub(super) fn probe(
        &self,
        population: &Population,
        rule: &Rule,
        salt: u64,
        stops_early: bool,
    ) -> Result<ProbeResult, String> {
        let config = rule.config();
        let mut simulation = self.prepare(population, Test::Probe(config.sleep), salt)?;
        simulation.run(WARMUP, &mut |_| {});
        let (mut samples, mut late, mut time) = (0, 0, Nanos::ZERO);
        let (mut early, mut is_whole) = (None, false);
        let mut end = WARMUP;
        while !is_whole {
            end = end.saturating_add(STEP);
            simulation.run(end, &mut |sample| {
                if sample.vcpu != TESTED || is_whole {
                    return;
                }
                samples += 1;
                late += u64::from(sample.took >= config.late);
                time = sample.at - WARMUP;
                let progress = rule.progress(samples, time);
                is_whole = progress == config.samples;
                if early.is_none() {
                    early = rule.decide(progress, late).map(|outcome| Early {
                        outcome,
                        time,
                        samples,
                        late,
                    });
                    is_whole |= stops_early && early.is_some();
                }
            });
            if end
                > WARMUP
                    .saturating_add(config.span)
                    .saturating_add(config.span)
            {
                return Err(format!("nothing sleeps: {samples} times in {end}"));
            }
        }
        let early = early.unwrap_or(Early {
            outcome: rule.answer(late),
            time,
            samples,
            late,
        });
        Ok(ProbeResult { late, time, early })
    }
}

/// Returns a random neighbour, by the kinds' weights.
pub(super) fn neighbour(population: &Population, random: &mut Pcg64Mcg) -> Option<(Workload, u32)> {
    let kinds = &population.neighbour;
    let weights: u64 = kinds.iter().map(|kind| u64::from(kind.weight)).sum();
    let ticket = random.random_range(0..weights);
    let kind = &kinds[drawn(ticket, kinds.iter().map(|kind| kind.weight))?];
    Some((kind.draw(random), kind.cap))
}

impl Neighbour {
    /// Returns a neighbour of this kind.
    fn draw(&self, random: &mut Pcg64Mcg) -> Workload {
        let mut workload = Workload {
            task: self.task,
            load: self.load,
        };
        if let (Some((short, long)), Some((least, most))) = (self.burst, self.share) {
            let work = random.random_range(short.0..=long.0);
            let share = u64::from(random.random_range(least..=most));
            // Sleeps vary by a tenth around the time for the share, so that guests do not run in
            // step.
            let sleep = work * (100 - share) / share;
            workload.load = Load::Bursts {
                work: Nanos(work),
                sleep: Nanos(sleep - sleep / 20),
                jitter: Nanos(sleep / 10),
            };
        }
        workload
    }
}

/// Returns a histogram of times of many nodes.
pub(crate) fn times(judged: &[ProbedNode], time: impl Fn(&ProbedNode) -> Nanos) -> Histogram<u64> {
    let mut histogram = empty_histogram();
    for node in judged {
        record(&mut histogram, time(node));
    }
    histogram
}

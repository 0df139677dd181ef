//! One node: who lives there, and what the two tests say of it.

use super::{Neighbour, Population, WARMUP};
use crate::distribution::drawn;
use crate::vcpu::recorder::record;
use crate::vcpu::sweep::AnyScheduler;
use hdrhistogram::Histogram;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use tailbound_hypervisor::{
    Arrivals, Costs, Credit, DEFAULT_WEIGHT, Domain, Host, Load, Machine, Simulation,
    SimulationConfig, Task, VcpuId, Workload,
};
use tailbound_probe::network::{Calls, LATE, RATES, judge};
use tailbound_probe::{Config, Outcome, Rule};
use tailbound_report::empty_histogram;
use tailbound_units::Nanos;

/// The tested guest.
const TESTED: VcpuId = VcpuId(0);

/// How far a probe runs before it is asked whether it is done.
const STEP: Nanos = Nanos::from_millis(100);
/// No probe takes longer than this, whatever the neighbours.
const LONGEST: Nanos = Nanos::from_secs(3600);

/// Who shares a node with the tested guest.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    /// What each does, and its cap.
    neighbours: Vec<(Workload, u32)>,
    seed: u64,
}

/// What the tested guest does.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Test {
    /// Sleeps and looks when it wakes.
    Probe,
    /// Answers so many calls a second.
    Network(u32),
}

/// What was found out about a node.
#[derive(Debug, Clone)]
pub(crate) struct Judged {
    /// By the network test.
    pub(crate) truth: Outcome,
    /// Late sleeps of the whole run.
    pub(crate) late: u64,
    /// How long the whole run took.
    pub(crate) time: Nanos,
    /// What the early-stopping rule says, and after how long.
    pub(crate) early: (Outcome, Nanos),
}

impl Node {
    /// The `index`th node of a population.
    pub(crate) fn draw(population: &Population, index: u32, seed: u64) -> Self {
        // Streams of nodes next to each other must not resemble each other.
        let seed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (u64::from(index) << 32);
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let (fewest, most) = population.population.neighbours;
        let count = random.random_range(fewest..=most);
        let kinds = &population.neighbour;
        let weights: u64 = kinds.iter().map(|kind| u64::from(kind.weight)).sum();
        let neighbours = (0..count).filter_map(|_| {
            let ticket = random.random_range(0..weights);
            let kind = &kinds[drawn(ticket, kinds.iter().map(|kind| kind.weight))?];
            Some((kind.draw(&mut random), kind.cap))
        });
        Self {
            neighbours: neighbours.collect(),
            seed: seed.wrapping_add(1),
        }
    }

    /// The node at time 0 with the tested guest ready.
    pub(crate) fn prepare(
        &self,
        population: &Population,
        test: Test,
        salt: u64,
    ) -> Result<Simulation<AnyScheduler>, String> {
        let nodes = &population.population;
        let tested = Workload::task(match test {
            Test::Probe => Task::SleepLoop {
                sleep: Config::default().sleep,
                work: nodes.probe_work,
                jitter: nodes.probe_jitter,
            },
            Test::Network(rate) => Task::Server {
                arrivals: Arrivals::Poisson {
                    mean: Nanos(1_000_000_000 / u64::from(rate.max(1))),
                },
                service: nodes.service,
                via: None,
            },
        });
        let tested = (tested, nodes.cap);
        let guests = || [&tested].into_iter().chain(&self.neighbours);
        let mut host = Host::new(nodes.pcpus).map_err(|error| error.to_string())?;
        for &(_, cap) in guests() {
            let weight = DEFAULT_WEIGHT;
            let domain = Domain { weight, cap };
            let domain = host.add_domain(domain).map_err(|error| error.to_string())?;
            host.add_vcpu(domain).map_err(|error| error.to_string())?;
        }
        let scheduler: AnyScheduler = Box::new(Credit::new(nodes.credit.config()?, &host));
        let machine = Machine::new(&host, scheduler, Costs::default());
        let config = SimulationConfig {
            seed: self.seed.wrapping_add(salt),
            timer_slop: nodes.timer_slop,
        };
        let workloads: Vec<_> = guests().map(|(workload, _)| *workload).collect();
        Simulation::new(machine, &workloads, config).map_err(|error| error.to_string())
    }

    /// Both tests.
    pub(crate) fn judge(&self, population: &Population, rule: &Rule) -> Result<Judged, String> {
        let mut rates = Vec::new();
        for (salt, rate) in (1..).zip(RATES) {
            rates.push((rate, self.network(population, rate, salt)?));
        }
        let (truth, _) = judge(&rates);
        let (late, time, early) = self.probe(population, rule)?;
        Ok(Judged {
            truth,
            late,
            time,
            early,
        })
    }

    /// The calls of the network test at one rate.
    fn network(&self, population: &Population, rate: u32, salt: u64) -> Result<Calls, String> {
        let mut simulation = self.prepare(population, Test::Network(rate), salt)?;
        let mut calls = Calls::default();
        simulation.run(WARMUP, &mut |_| {});
        let end = WARMUP.saturating_add(population.population.network_test);
        simulation.run(end, &mut |sample| {
            if sample.vcpu == TESTED {
                calls.calls += 1;
                calls.late += u64::from(sample.took >= LATE);
            }
        });
        Ok(calls)
    }

    /// The late sleeps of a whole run of the probe, how long it took, and what
    /// the early-stopping rule says when.
    fn probe(
        &self,
        population: &Population,
        rule: &Rule,
    ) -> Result<(u64, Nanos, (Outcome, Nanos)), String> {
        let config = rule.config();
        let mut simulation = self.prepare(population, Test::Probe, 0)?;
        simulation.run(WARMUP, &mut |_| {});
        let (mut samples, mut late, mut time) = (0, 0, Nanos::ZERO);
        let mut early = None;
        let mut end = WARMUP;
        while samples < config.samples {
            if end > LONGEST {
                return Err(format!("the probe slept only {samples} times in {LONGEST}"));
            }
            end = end.saturating_add(STEP);
            simulation.run(end, &mut |sample| {
                if sample.vcpu != TESTED || samples == config.samples {
                    return;
                }
                samples += 1;
                late += u64::from(sample.took >= config.late);
                time = sample.at - WARMUP;
                if early.is_none() {
                    early = rule.decide(samples, late).map(|outcome| (outcome, time));
                }
            });
        }
        Ok((late, time, early.unwrap_or((rule.answer(late), time))))
    }
}

impl Neighbour {
    /// One of this kind.
    fn draw(&self, random: &mut Pcg64Mcg) -> Workload {
        let mut workload = Workload {
            task: self.task,
            load: self.load,
        };
        if let (Some((short, long)), Some((least, most))) = (self.burst, self.share) {
            let work = random.random_range(short.0..=long.0);
            let share = u64::from(random.random_range(least..=most));
            // Sleeps vary by a tenth around what makes the share, so that no two
            // guests stay in step.
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

/// Times of many nodes.
pub(crate) fn times(judged: &[Judged], time: impl Fn(&Judged) -> Nanos) -> Histogram<u64> {
    let mut histogram = empty_histogram();
    for node in judged {
        record(&mut histogram, time(node));
    }
    histogram
}

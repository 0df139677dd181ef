//! Many nodes with neighbours of every kind, each judged by the network test and by Bobtail's
//! algorithm, and the error rates of the sleep probe.
//!
//! Read [`Population`] first, then [`node`]. A *positive* is a node that is called good, as in the
//! paper: a false positive is a bad node called GOOD, a false negative a good node not called GOOD.

mod drift;
mod mixtures;
mod node;
mod pairs;
mod summary;
mod workflows;

use crate::scheduler::CreditSpec;
use crate::{Threads, parallel};
pub use drift::Drift;
use node::{Node, Test};
pub use pairs::Pairs;
use serde::Deserialize;
use tailbound_experiment::{ExperimentError, Mistakes, Name, Run, RunOutput, Section};
use tailbound_hypervisor::{Load, Task};
use tailbound_probe::{Config, ConfigError, Rule};
use tailbound_report::Variant;
use tailbound_units::Nanos;
pub use workflows::Workflows;

/// A population of nodes.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Population {
    /// Nodes and their tests.
    pub population: Nodes,
    /// Kinds of neighbours.
    pub neighbour: Vec<Neighbour>,
    /// Benefit of selecting nodes.
    pub workflows: Option<Workflows>,
    /// Calls between all pairs of nodes.
    pub pairs: Option<Pairs>,
    /// Changes of neighbours over weeks.
    pub drift: Option<Drift>,
}

/// Nodes and their tests.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nodes {
    /// Nodes.
    pub nodes: u32,
    /// Physical CPUs per node.
    pub pcpus: u32,
    /// Fewest and most neighbours of the tested guest.
    pub neighbours: (u32, u32),
    /// Cap of the tested guest, in percent of one pCPU; 0: no cap.
    pub cap: u32,
    /// The scheduler.
    pub credit: CreditSpec,
    /// Shortest expiry of a guest's timer.
    pub timer_slop: Nanos,
    /// M: the probe's sleeps. The marks do not depend on it.
    #[serde(default = "default_samples")]
    pub samples: u64,
    /// CPU time of the probe between sleeps.
    pub probe_work: Nanos,
    /// Largest delay of the probe's timers.
    pub probe_jitter: Nanos,
    /// CPU time of an RPC in the network test.
    pub service: Nanos,
    /// Duration of each rate in the network test.
    pub network_test: Nanos,
}

fn default_samples() -> u64 {
    Config::default().samples
}

/// A kind of neighbour.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Neighbour {
    /// Its name.
    pub name: Name,
    /// Relative frequency.
    pub weight: u32,
    /// Largest CPU time, in percent of one pCPU; 0: no cap.
    #[serde(default)]
    pub cap: u32,
    /// Task for others.
    #[serde(default)]
    pub task: Task,
    /// Load besides the task; or `burst` and `share`.
    #[serde(default)]
    pub load: Load,
    /// Shortest and longest burst (uniform).
    pub burst: Option<(Nanos, Nanos)>,
    /// Smallest and largest share of a pCPU (uniform), in percent.
    pub share: Option<(u32, u32)>,
}

const WARMUP: Nanos = Nanos::from_secs(1);

impl Population {
    /// Checks the population.
    pub(super) fn check(&self, mistakes: &mut Mistakes) {
        mistakes.names("neighbour", self.neighbour.iter().map(|kind| &kind.name));
        let mut top = mistakes.top();
        for (index, kind) in self.neighbour.iter().enumerate() {
            kind.check(&mut top.item("neighbour", index));
        }
        if self.neighbour.iter().all(|kind| kind.weight == 0) {
            top.at(
                "neighbour",
                "no [[neighbour]] has a weight: add a weight to one of them",
            );
        }
        let nodes = &self.population;
        let mut section = top.table("population");
        section.range("nodes", nodes.nodes, 1..=100_000);
        let (fewest, most) = nodes.neighbours;
        section.range("neighbours", fewest, 0..=most);
        section.range("neighbours", most, fewest..=32);
        // 1000 calls at the lowest rate.
        let times = Nanos::from_secs(10)..=Nanos::from_secs(1_000_000);
        section.range("network_test", nodes.network_test, times);
        section.hold("samples", self.rules().map(drop));
        if let Some(workflows) = &self.workflows {
            workflows.check(&mut top.table("workflows"), nodes.nodes);
        }
        if let Some(pairs) = &self.pairs {
            pairs.check(&mut top.table("pairs"), nodes.nodes);
        }
        if let Some(drift) = &self.drift {
            drift.check(&mut top.table("drift"));
        }
        if mistakes.is_empty() {
            // Scheduler and workloads check themselves when they are created.
            let node =
                Node::draw(self, 0, 0).prepare(self, Test::Probe(Config::default().sleep), 0);
            let mut top = mistakes.top();
            top.hold("population", node.map(drop));
        }
    }

    /// Returns the variants, with the names of all values.
    pub(super) fn outline(&self) -> Vec<Variant> {
        let rule = Rule::new(Config::default());
        let nodes = rule.map(|rule| summary::variant(&[], &rule));
        let workflows = self.workflows.iter().flat_map(|it| {
            let chosen = [Workflows::outline()];
            chosen.into_iter().chain(mixtures::outline(it))
        });
        let pairs = self.pairs.iter().map(|_| Pairs::outline());
        let drift = self.drift.iter().flat_map(Drift::outline);
        let all = nodes.into_iter().chain(workflows).chain(pairs);
        all.chain(drift).collect()
    }

    /// Judges all nodes, and compares selected ones with others.
    pub(super) fn run(&self, run: &mut Run<'_, Threads>) -> Result<RunOutput, ExperimentError> {
        let seed = run.seed;
        let rules = self.rules();
        let rules = rules.map_err(|error| ExperimentError::run("nodes", error))?;
        let rule = &rules.fine;
        let nodes: Vec<u32> = (0..self.population.nodes).collect();
        let name = |index: &u32| format!("node {index}");
        let (judged, compared): (Vec<_>, Vec<_>) = match &self.workflows {
            None => {
                let judge =
                    |index: &u32| Node::draw(self, *index, seed).judge(self, &rules, &mut |_| {});
                (parallel::map(run, &nodes, name, judge)?, Vec::new())
            }
            Some(workflows) => {
                let measure =
                    |index: &u32| workflows.measure(&Node::draw(self, *index, seed), self, &rules);
                let measured = parallel::map(run, &nodes, name, measure)?;
                let mut compared = vec![workflows.compare(&measured, seed)];
                compared.extend(mixtures::measure(workflows, &measured, seed));
                let judged = measured.into_iter().map(|node| node.judged);
                (judged.collect(), compared)
            }
        };
        let variants = std::iter::once(summary::variant(&judged, rule)).chain(compared);
        let mut found = RunOutput {
            variants: variants.collect(),
            charts: summary::charts(&judged, rule),
            ..RunOutput::default()
        };
        if let Some(pairs) = &self.pairs {
            let (variant, chart) = pairs.run(self, &judged, run)?;
            found.variants.push(variant);
            found.charts.push(chart);
        }
        if let Some(drift) = &self.drift {
            let (variants, chart) = drift.run(self, &rules, run)?;
            found.variants.extend(variants);
            found.charts.push(chart);
        }
        let settings = &self.population;
        let config = rule.config();
        found.condition("nodes", settings.nodes);
        found.condition("pcpus", settings.pcpus);
        found.condition("cap_percent", settings.cap);
        found.condition("network_test_ns", settings.network_test.as_nanos());
        found.condition("samples", config.samples);
        found.condition("low_mark", config.low_mark);
        found.condition("high_mark", config.high_mark);
        Ok(found)
    }

    /// Returns the probe's rules, early stopping included: the defaults except for
    /// [`Nodes::samples`].
    pub(crate) fn rules(&self) -> Result<Rules, ConfigError> {
        let (fine, coarse) = (Config::default(), Config::coarse());
        let samples = self.population.samples;
        // The same part of a coarse run.
        let part = u128::from(coarse.samples) * u128::from(samples) / u128::from(fine.samples);
        Ok(Rules {
            fine: Rule::new(Config { samples, ..fine })?,
            coarse: Rule::new(Config {
                samples: u64::try_from(part).unwrap_or(u64::MAX),
                ..coarse
            })?,
        })
    }
}

/// Rules for judging sleeps.
#[derive(Debug)]
pub(crate) struct Rules {
    fine: Rule,
    coarse: Rule,
}

impl Neighbour {
    fn check(&self, section: &mut Section<'_>) {
        match (self.burst, self.share) {
            (None, None) => {}
            (Some((short, long)), Some((least, most))) => {
                if self.load != Load::None {
                    section.at("load", "has both a load and bursts: leave one of them out");
                }
                if short < Nanos::from_micros(10) || short > long {
                    section.at("burst", "bursts: choose 10us or more, the shortest first");
                }
                if least == 0 || least > most || most > 99 {
                    section.at("share", "share: choose 1 to 99 percent, the least first");
                }
            }
            _ => section.at("name", "needs burst and share together, or neither"),
        }
        if matches!(self.task, Task::SleepLoop { .. } | Task::Driver) {
            let message = "a neighbour answers, sends or computes: use another task";
            section.at("task", message);
        }
    }
}

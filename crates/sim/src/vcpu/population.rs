//! Many nodes with neighbours of every kind, each judged by the network test and
//! by Bobtail's algorithm: how often the sleeps are wrong.
//!
//! Read [`Population`] first, then [`node`]. A *positive* is a node that is
//! called good, as in the paper: a false positive is a bad node called GOOD, a
//! false negative a good node not called so.

pub(crate) mod node;
mod summary;

pub(crate) use summary::summarise;

use super::experiment::{
    Check, CheckKind, CreditSpec, ExperimentError, Name, Problem, invalid, plain, problem, unique,
};
use serde::Deserialize;
use std::collections::BTreeSet;
use tailbound_hypervisor::{Load, Task};
use tailbound_probe::{Config, ConfigError, Rule};
use tailbound_units::Nanos;

/// A population of nodes.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Population {
    /// Names the result files.
    pub name: Name,
    /// What it shows, in one line.
    pub title: String,
    /// Paper and section.
    pub source: String,
    /// The nodes and how they are judged.
    pub population: Nodes,
    /// The kinds of neighbours.
    pub neighbour: Vec<Neighbour>,
    /// What is expected.
    #[serde(default)]
    pub check: Vec<Check>,
}

/// What all nodes have in common, and how they are judged.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nodes {
    /// How many there are.
    pub nodes: u32,
    /// The physical CPUs for guests of each.
    pub pcpus: u32,
    /// The fewest and the most neighbours the tested guest has.
    pub neighbours: (u32, u32),
    /// The cap of the tested guest, in percent of one pCPU; 0 is no cap.
    pub cap: u32,
    /// The scheduler.
    pub credit: CreditSpec,
    /// No timer of a guest fires sooner than this after it is set.
    pub timer_slop: Nanos,
    /// M: how often the probe sleeps. The marks stay as they are.
    #[serde(default = "default_samples")]
    pub samples: u64,
    /// What the probe's guest computes between two sleeps.
    pub probe_work: Nanos,
    /// How late timers of the probe's guest may be.
    pub probe_jitter: Nanos,
    /// CPU time of an RPC in the network test.
    pub service: Nanos,
    /// How long each rate of the network test takes.
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
    /// How often it comes, against the others.
    pub weight: u32,
    /// The most CPU time it may use, in percent of one pCPU; 0 is no cap.
    #[serde(default)]
    pub cap: u32,
    /// What it does for others.
    #[serde(default)]
    pub task: Task,
    /// What uses its CPU time beside that; or
    #[serde(default)]
    pub load: Load,
    /// bursts whose length lies between these, evenly,
    pub burst: Option<(Nanos, Nanos)>,
    /// with sleeps between them so that it asks for a share of a pCPU between
    /// these, in percent, evenly.
    pub share: Option<(u32, u32)>,
}

const WARMUP: Nanos = Nanos::from_secs(1);

impl Population {
    /// Whether a file describes a population and not an experiment over points.
    pub(crate) fn is_in(text: &str) -> bool {
        toml::from_str::<toml::Table>(text).is_ok_and(|table| table.contains_key("population"))
    }

    /// Reads and checks a population. `file` is for messages.
    ///
    /// # Errors
    /// The first thing that is wrong, with its place.
    pub fn parse(text: &str, file: &str) -> Result<Self, ExperimentError> {
        let population: Self =
            toml::from_str(text).map_err(|error| ExperimentError::from_toml(text, file, &error))?;
        population
            .validate()
            .map_err(|problem| invalid(text, file, problem))?;
        Ok(population)
    }

    fn validate(&self) -> Result<(), Problem> {
        plain(&self.name)?;
        let at = |message: String| Err(problem(&self.name, message));
        let nodes = &self.population;
        let (fewest, most) = nodes.neighbours;
        if !(1..=100_000).contains(&nodes.nodes) {
            return at(format!("{} nodes: choose 1 to 100000", nodes.nodes));
        }
        if fewest > most || most > 32 {
            return at(format!(
                "{fewest} to {most} neighbours: choose 0 to 32, the fewest first"
            ));
        }
        let shortest = Nanos::from_secs(10);
        if nodes.network_test < shortest {
            return at(format!(
                "a network test of {}: choose {shortest} or more, 1000 calls at the lowest rate",
                nodes.network_test
            ));
        }
        if self.neighbour.iter().all(|kind| kind.weight == 0) {
            return at("no [[neighbour]] has a weight: give one of them a weight".to_owned());
        }
        let mut seen = BTreeSet::new();
        for kind in &self.neighbour {
            plain(&kind.name)?;
            unique(&mut seen, &kind.name, "neighbour")?;
            kind.validate()?;
        }
        let mut seen = BTreeSet::new();
        for check in &self.check {
            plain(&check.name)?;
            unique(&mut seen, &check.name, "check")?;
            check_check(check)?;
        }
        if let Err(error) = self.rule() {
            return at(error.to_string());
        }
        // What the scheduler and the workloads refuse, they say when they are made.
        node::Node::draw(self, 0, 0)
            .prepare(self, node::Test::Probe, 0)
            .map_err(|message| problem(&self.name, message))?;
        Ok(())
    }

    /// The probe's rule, early stopping included: the paper's parameters except
    /// for [`Nodes::samples`].
    pub(crate) fn rule(&self) -> Result<Rule, ConfigError> {
        Rule::new(Config {
            samples: self.population.samples,
            ..Config::default()
        })
    }
}

fn check_check(check: &Check) -> Result<(), Problem> {
    if check.kind != CheckKind::Value || check.from.is_some() {
        return Err(problem(
            &check.name,
            "a population has one variant: leave `kind` and `from` out",
        ));
    }
    if check.at_least.is_none() && check.at_most.is_none() {
        return Err(problem(&check.name, "needs at_least or at_most, or both"));
    }
    for at in &check.at {
        if at.get_ref() != summary::VARIANT {
            return Err(problem(
                at,
                format!("the variant of a population is {:?}", summary::VARIANT),
            ));
        }
    }
    let of = check.of.get_ref();
    if check.at.is_empty() || !summary::FIGURES.contains(&of.as_str()) {
        return Err(problem(
            &check.of,
            format!(
                "judge one of {} in `of` at = [{:?}]",
                summary::FIGURES.join(", "),
                summary::VARIANT
            ),
        ));
    }
    Ok(())
}

impl Neighbour {
    fn validate(&self) -> Result<(), Problem> {
        let at = |message: &str| Err(problem(&self.name, message));
        match (self.burst, self.share) {
            (None, None) => {}
            (Some((short, long)), Some((least, most))) => {
                if self.load != Load::None {
                    return at("has both a load and bursts: leave one of them out");
                }
                if short < Nanos::from_micros(10) || short > long {
                    return at("bursts: choose 10us or more, the shortest first");
                }
                if least == 0 || least > most || most > 99 {
                    return at("share: choose 1 to 99 percent, the least first");
                }
            }
            _ => return at("needs burst and share together, or neither"),
        }
        if matches!(self.task, Task::SleepLoop { .. } | Task::Driver) {
            return at("a neighbour answers, sends or computes: give it another task");
        }
        Ok(())
    }
}

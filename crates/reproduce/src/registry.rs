//! The items of the papers, and their experiments: `items.toml`.

use crate::ReproduceError;
use crate::seeds::Seeds;
use serde::Deserialize;
use std::collections::BTreeMap;
use tailbound_report::{CheckResult, Results};
use tailbound_units::Nanos;

/// Longest experiment of a quick run.
const QUICK: Nanos = Nanos(10_000_000_000);

/// All items.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Registry {
    /// All experiments of the items.
    pub(crate) run: Vec<Run>,
    pub(crate) paper: Vec<Paper>,
    /// Spreads of figures over five seeds.
    #[serde(skip)]
    pub(crate) seeds: Seeds,
}

/// Size of an experiment.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Run {
    /// Kind and name of the experiment, `KIND/NAME`.
    pub experiment: String,
    pub size: String,
    /// Parameters that were fitted to a paper's figure, or assumed; "nothing" if there are none.
    pub fitted: String,
    /// Run time on one CPU; in the lab on the whole computer.
    pub takes: Nanos,
    /// The paper's size, if it is larger.
    full: Option<Full>,
}

/// The paper's size.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Full {
    size: String,
    /// Run time on one CPU, as far as known.
    takes: Nanos,
    /// Changed keys of the experiment, with their values.
    set: toml::Table,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Paper {
    /// Prefix of the items' names: KEY-1 is the first.
    pub key: String,
    pub name: String,
    pub item: Vec<Item>,
}

/// A table, a figure, a mechanism or a claim.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Item {
    /// Subject.
    pub what: String,
    /// Section of the paper.
    pub section: String,
    /// Value in the paper, if it is a figure.
    pub value: Option<String>,
    /// Reproduction.
    pub by: By,
    /// Checks of a lab's experiment for the same item.
    pub beside: Option<Checks>,
}

/// Reproduction of an item.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum By {
    /// Checks of an experiment: in virtual time, or on this computer (`lab/NAME`).
    Checks(Checks),
    /// A command that tests the mechanism.
    Test(String),
    /// The item is not reproduced, for this reason.
    Not(String),
    /// The item cannot be reproduced here, for this reason.
    Elsewhere(String),
}

/// Checks of an experiment.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Checks {
    /// Kind and name of the experiment, `KIND/NAME`.
    pub(crate) experiment: String,
    pub(crate) checks: Vec<String>,
}

/// Size of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    /// Experiments of seconds.
    Quick,
    /// Experiments of minutes.
    Usual,
    /// The papers' sizes.
    Full,
}

/// An experiment at a size.
#[derive(Debug, Clone, Copy)]
pub struct PlannedRun<'r> {
    /// KIND/NAME.
    pub experiment: &'r str,
    /// Its size, in words.
    pub size: &'r str,
    /// Run time on one CPU; in the lab on the whole computer.
    pub takes: Nanos,
    /// Changed values of the experiment.
    pub(crate) set: Option<&'r toml::Table>,
}

/// Results, by experiment.
pub type ResultsByExperiment = BTreeMap<String, Results>;

impl Registry {
    /// Reads the registry of the program.
    ///
    /// # Errors
    /// The registry has errors.
    pub fn read() -> Result<Self, ReproduceError> {
        let mut registry: Self = toml::from_str(include_str!("items.toml"))?;
        registry.seeds = Seeds::read()?;
        Ok(registry)
    }

    /// Returns the items that these words name, each with its own name.
    ///
    /// # Errors
    /// [`ReproduceError::UnknownItem`].
    pub fn chosen(&self, words: &[String]) -> Result<Vec<(String, &Item)>, ReproduceError> {
        let mut chosen = Vec::new();
        for word in words {
            let before = chosen.len();
            for (name, paper, item) in self.items() {
                if word == "all" || *word == paper.key || *word == name {
                    chosen.push((name, item));
                }
            }
            if chosen.len() == before {
                let papers: Vec<_> = self.paper.iter().map(|paper| paper.key.as_str()).collect();
                return Err(ReproduceError::UnknownItem {
                    word: word.clone(),
                    papers: papers.join(", "),
                });
            }
        }
        Ok(chosen)
    }

    pub(crate) fn items(&self) -> impl Iterator<Item = (String, &Paper, &Item)> {
        self.paper.iter().flat_map(|paper| {
            (1..)
                .zip(&paper.item)
                .map(move |(at, item)| (format!("{}-{at}", paper.key), paper, item))
        })
    }

    fn run_of(&self, experiment: &str) -> &Run {
        let mut all = self.run.iter();
        let run = all.find(|run| run.experiment == experiment);
        run.expect("a test looks that every experiment has a size")
    }

    /// Returns true if the paper's size of an experiment differs from the usual one.
    pub(crate) fn is_larger(&self, experiment: &str) -> bool {
        self.run_of(experiment).full.is_some()
    }

    /// Returns the fitted and assumed parameters of an item's experiments, each text once.
    pub(crate) fn fitted(&self, item: &Item) -> String {
        let mut all: Vec<&str> = Vec::new();
        for checks in item.checks() {
            let fitted = self.run_of(&checks.experiment).fitted.as_str();
            if !all.contains(&fitted) {
                all.push(fitted);
            }
        }
        all.join("<br>")
    }

    /// Returns an experiment at a size.
    pub(crate) fn planned(&self, experiment: &str, size: Size) -> PlannedRun<'_> {
        let run = self.run_of(experiment);
        match &run.full {
            Some(full) if size == Size::Full => PlannedRun {
                experiment: &run.experiment,
                size: &full.size,
                takes: full.takes,
                set: Some(&full.set),
            },
            _ => PlannedRun {
                experiment: &run.experiment,
                size: &run.size,
                takes: run.takes,
                set: None,
            },
        }
    }

    /// Returns the experiments of these items, each once.
    pub fn plan(&self, chosen: &[(String, &Item)], size: Size) -> Vec<PlannedRun<'_>> {
        let mut plan: BTreeMap<&str, PlannedRun<'_>> = BTreeMap::new();
        for checks in chosen.iter().flat_map(|(_, item)| item.checks()) {
            let planned = self.planned(&checks.experiment, size);
            if size != Size::Quick || planned.takes <= QUICK {
                plan.insert(planned.experiment, planned);
            }
        }
        plan.into_values().collect()
    }
}

impl PlannedRun<'_> {
    /// Returns true if it runs on this computer, and not in virtual time.
    pub fn is_of_lab(&self) -> bool {
        self.experiment.starts_with("lab/")
    }
}

impl Item {
    /// Returns the checks of the item.
    pub fn checks(&self) -> impl Iterator<Item = &Checks> {
        let by = match &self.by {
            By::Checks(checks) => Some(checks),
            By::Test(_) | By::Not(_) | By::Elsewhere(_) => None,
        };
        by.into_iter().chain(&self.beside)
    }

    /// Returns true if one of its experiments has a larger size in the paper.
    pub(crate) fn has_larger(&self, registry: &Registry) -> bool {
        self.checks()
            .any(|checks| registry.is_larger(&checks.experiment))
    }

    /// Returns the command that shows it, if there is one.
    pub fn command(&self) -> Option<String> {
        match &self.by {
            By::Checks(checks) => Some(command(&checks.experiment)),
            By::Test(command) => Some(command.clone()),
            By::Not(_) | By::Elsewhere(_) => None,
        }
    }
}

impl Checks {
    /// Returns the results of the checks.
    pub fn results<'r>(&self, ran: &'r ResultsByExperiment) -> Vec<&'r CheckResult> {
        let results = ran
            .get(&self.experiment)
            .map_or(&[][..], |results| &results.checks);
        let named = |name: &String| results.iter().find(|result| result.name == *name);
        self.checks.iter().filter_map(named).collect()
    }
}

/// Returns the command that runs KIND/NAME.
pub(crate) fn command(experiment: &str) -> String {
    match experiment.split_once('/') {
        Some(("lab", name)) => format!("tailbound lab run {name}"),
        _ => format!("tailbound sim {}", experiment.replacen('/', " run ", 1)),
    }
}

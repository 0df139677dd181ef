//! The items of the papers, and their experiments: `items.toml`.

use crate::command::sim;
use crate::exit::Failure;
use serde::Deserialize;
use std::collections::BTreeMap;
use tailbound_report::{CheckResult, Results};
use tailbound_units::Nanos;

/// Longest experiment of a quick run.
const QUICK: Nanos = Nanos(10_000_000_000);

/// All items.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Registry {
    /// All experiments of the items.
    pub(super) run: Vec<Run>,
    pub(super) paper: Vec<Paper>,
}

/// Size of an experiment.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Run {
    /// Kind and name of the experiment, `KIND/NAME`.
    pub(super) experiment: String,
    pub(super) size: String,
    /// Run time on one CPU; in the lab on the whole computer.
    pub(super) takes: Nanos,
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
pub(super) struct Paper {
    /// Prefix of the items' names: KEY-1 is the first.
    pub(super) key: String,
    pub(super) name: String,
    pub(super) item: Vec<Item>,
}

/// A table, a figure, a mechanism or a claim.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Item {
    pub(super) what: String,
    /// Section of the paper.
    pub(super) section: String,
    /// Value in the paper, if it is a figure.
    pub(super) value: Option<String>,
    pub(super) by: By,
    /// Checks of a lab's experiment for the same item.
    pub(super) beside: Option<Checks>,
}

/// Reproduction of an item.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum By {
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
pub(super) struct Checks {
    /// Kind and name of the experiment, `KIND/NAME`.
    pub(super) experiment: String,
    pub(super) checks: Vec<String>,
}

/// Size of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Size {
    /// Experiments of seconds.
    Quick,
    /// Experiments of minutes.
    Usual,
    /// The papers' sizes.
    Full,
}

/// An experiment at a size.
#[derive(Debug, Clone, Copy)]
pub(super) struct Planned<'r> {
    pub(super) experiment: &'r str,
    pub(super) size: &'r str,
    pub(super) takes: Nanos,
    /// Changed values of the experiment.
    pub(super) set: Option<&'r toml::Table>,
}

/// Results, by experiment.
pub(super) type Ran = BTreeMap<String, Results>;

impl Registry {
    pub(super) fn read() -> Result<Self, Failure> {
        toml::from_str(include_str!("items.toml")).map_err(Failure::new)
    }

    /// Returns the items that these words name, each with its own name.
    pub(super) fn chosen(&self, words: &[String]) -> Result<Vec<(String, &Item)>, Failure> {
        let mut chosen = Vec::new();
        for word in words {
            let before = chosen.len();
            for (name, paper, item) in self.items() {
                if word == "all" || *word == paper.key || *word == name {
                    chosen.push((name, item));
                }
            }
            if chosen.len() == before {
                let message = format!(
                    "there is no item {word:?}: name a paper ({}), an item such as vsnoop-12, or \
                     all; --list shows them",
                    self.paper
                        .iter()
                        .map(|paper| paper.key.as_str())
                        .collect::<Vec<_>>()
                        .join(", ")
                );
                return Err(Failure::wrong_arguments(message));
            }
        }
        Ok(chosen)
    }

    pub(super) fn items(&self) -> impl Iterator<Item = (String, &Paper, &Item)> {
        self.paper.iter().flat_map(|paper| {
            (1..)
                .zip(&paper.item)
                .map(move |(at, item)| (format!("{}-{at}", paper.key), paper, item))
        })
    }

    /// Returns an experiment at a size.
    pub(super) fn planned(&self, experiment: &str, size: Size) -> Planned<'_> {
        let mut all = self.run.iter();
        let run = all.find(|run| run.experiment == experiment);
        let run = run.expect("a test looks that every experiment has a size");
        match &run.full {
            Some(full) if size == Size::Full => Planned {
                experiment: &run.experiment,
                size: &full.size,
                takes: full.takes,
                set: Some(&full.set),
            },
            _ => Planned {
                experiment: &run.experiment,
                size: &run.size,
                takes: run.takes,
                set: None,
            },
        }
    }

    /// Returns the experiments of these items, each once.
    pub(super) fn plan(&self, chosen: &[(String, &Item)], size: Size) -> Vec<Planned<'_>> {
        let mut plan: BTreeMap<&str, Planned<'_>> = BTreeMap::new();
        for checks in chosen.iter().flat_map(|(_, item)| item.checks()) {
            let planned = self.planned(&checks.experiment, size);
            if size != Size::Quick || planned.takes <= QUICK {
                plan.insert(planned.experiment, planned);
            }
        }
        plan.into_values().collect()
    }
}

impl Planned<'_> {
    /// Returns true if it runs on this computer, and not in virtual time.
    pub(super) fn is_of_lab(&self) -> bool {
        self.experiment.starts_with("lab/")
    }

    /// Reads its experiment and the text.
    ///
    /// # Errors
    /// The experiment has errors with the values of this size.
    pub(super) fn read(&self) -> Result<(Box<dyn sim::AnyNamed>, String), Failure> {
        let none = toml::Table::new();
        sim::named(self.experiment, self.set.unwrap_or(&none))
    }
}

impl Item {
    /// Returns the checks of the item.
    pub(super) fn checks(&self) -> impl Iterator<Item = &Checks> {
        let by = match &self.by {
            By::Checks(checks) => Some(checks),
            By::Test(_) | By::Not(_) | By::Elsewhere(_) => None,
        };
        by.into_iter().chain(&self.beside)
    }

    /// Returns the command that shows it, if there is one.
    pub(super) fn command(&self) -> Option<String> {
        match &self.by {
            By::Checks(checks) => Some(command(&checks.experiment)),
            By::Test(command) => Some(command.clone()),
            By::Not(_) | By::Elsewhere(_) => None,
        }
    }
}

impl Checks {
    /// Returns the results of the checks.
    pub(super) fn results<'r>(&self, ran: &'r Ran) -> Vec<&'r CheckResult> {
        let results = ran
            .get(&self.experiment)
            .map_or(&[][..], |results| &results.checks);
        let named = |name: &String| results.iter().find(|result| result.name == *name);
        self.checks.iter().filter_map(named).collect()
    }
}

/// Returns the command that runs KIND/NAME.
pub(super) fn command(experiment: &str) -> String {
    match experiment.split_once('/') {
        Some(("lab", name)) => format!("tailbound lab run {name}"),
        _ => format!("tailbound sim {}", experiment.replacen('/', " run ", 1)),
    }
}

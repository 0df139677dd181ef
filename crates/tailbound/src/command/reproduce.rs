//! `tailbound reproduce`: every table and figure of the papers, what they say and what comes out
//! here.
//!
//! Read [`Registry`] first, and `reproduce/items.toml`, which it is read from. An item that has
//! an experiment in virtual time is judged by that experiment's own checks; any other says which
//! command holds it, or why nothing does.

mod page;

use super::experiment::Line;
use super::output::{self, Output};
use super::sim::{self, AnyNamed};
use crate::exit::{Exit, Failure};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use tailbound_report::{CheckResult, Results, Verdict};

/// Arguments of `tailbound reproduce`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "An item that has an experiment in virtual time is run; of any other is said \
    which command holds it, or why nothing does. What is known not to hold is told, and decides \
    nothing. Exit code: 0 all that ran holds, but for what is known; 1 something does not; 2 an \
    experiment could not run."
)]
pub(crate) struct Args {
    /// Papers (small, bobtail, vsnoop, qos, silo), items (vsnoop-12), or `all`
    #[arg(required_unless_present = "list", value_name = "ITEM")]
    items: Vec<String>,
    /// Run nothing; say what there is, and by which command
    #[arg(long)]
    list: bool,
    /// Leave out experiments of more than a few seconds
    #[arg(long)]
    quick: bool,
    /// Everything random follows from this number
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// What to print
    #[arg(long, value_enum, default_value_t)]
    output: Output,
    /// Write a page of all items, with what came out of those that ran, as Markdown
    #[arg(long, value_name = "FILE", conflicts_with = "list")]
    page: Option<PathBuf>,
}

/// All items.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Registry {
    /// Experiments that take more than a few seconds.
    long: Vec<String>,
    paper: Vec<Paper>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Paper {
    /// What items are called after: KEY-1 is the first.
    key: String,
    name: String,
    item: Vec<Item>,
}

/// A table, a figure, a mechanism or a claim.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Item {
    what: String,
    /// Of the paper.
    section: String,
    /// What the paper says, where that is a figure.
    value: Option<String>,
    by: By,
}

/// What reproduces an item.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum By {
    /// Checks of an experiment in virtual time.
    Sim(Checks),
    /// An experiment on this machine.
    Lab(String),
    /// A command that holds the mechanism.
    Test(String),
    /// Nothing does, for this reason.
    Not(String),
    /// Nothing can, for this reason.
    Elsewhere(String),
}

/// Checks of an experiment.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Checks {
    /// KIND/NAME.
    experiment: String,
    checks: Vec<String>,
}

/// What `--output json` prints.
#[derive(Debug, Serialize)]
struct Document<'r> {
    schema: u32,
    kind: &'static str,
    version: &'static str,
    items: Vec<Told<'r>>,
}

/// An item, and what came out of it.
#[derive(Debug, Serialize)]
struct Told<'r> {
    name: &'r str,
    what: &'r str,
    section: &'r str,
    value: Option<&'r str>,
    command: Option<String>,
    /// None where nothing of it ran.
    verdict: Option<Verdict>,
    checks: Vec<&'r CheckResult>,
}

impl<'r> Document<'r> {
    fn new(chosen: &'r [(String, &'r Item)], ran: &'r Ran) -> Self {
        let items = chosen.iter().map(|(name, item)| {
            let checks = match &item.by {
                By::Sim(checks) if !ran.is_empty() => checks.results(ran),
                _ => Vec::new(),
            };
            Told {
                name,
                what: &item.what,
                section: &item.section,
                value: item.value.as_deref(),
                command: item.by.command(),
                verdict: (!checks.is_empty()).then(|| outcome(&checks).1),
                checks,
            }
        });
        Self {
            schema: 1,
            kind: "reproduce",
            version: env!("CARGO_PKG_VERSION"),
            items: items.collect(),
        }
    }
}

/// What came out, by experiment.
type Ran = BTreeMap<String, Results>;

impl Registry {
    fn read() -> Result<Self, Failure> {
        toml::from_str(include_str!("reproduce/items.toml")).map_err(Failure::new)
    }

    /// The items that these words name, each with its own name.
    fn chosen(&self, words: &[String]) -> Result<Vec<(String, &Item)>, Failure> {
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

    fn items(&self) -> impl Iterator<Item = (String, &Paper, &Item)> {
        let of = |paper: &'_ Paper| {
            (1..=paper.item.len())
                .map(|at| format!("{}-{at}", paper.key))
                .collect::<Vec<_>>()
        };
        self.paper.iter().flat_map(move |paper| {
            of(paper)
                .into_iter()
                .zip(&paper.item)
                .map(move |(name, item)| (name, paper, item))
        })
    }
}

impl By {
    /// The command to look at it with, if there is one.
    fn command(&self) -> Option<String> {
        match self {
            Self::Sim(checks) => Some(command(&checks.experiment)),
            Self::Lab(experiment) => Some(format!("tailbound lab run {experiment}")),
            Self::Test(command) => Some(command.clone()),
            Self::Not(_) | Self::Elsewhere(_) => None,
        }
    }
}

/// The command that runs KIND/NAME.
fn command(experiment: &str) -> String {
    let experiment = experiment.replacen('/', " run ", 1);
    format!("tailbound sim {experiment}")
}

impl Checks {
    /// What came out of its checks.
    fn results<'r>(&self, ran: &'r Ran) -> Vec<&'r CheckResult> {
        let results = ran
            .get(&self.experiment)
            .map_or(&[][..], |results| &results.checks);
        let named = |name: &String| results.iter().find(|result| result.name == *name);
        self.checks.iter().filter_map(named).collect()
    }
}

impl Args {
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        let registry = Registry::read()?;
        let all = ["all".to_owned()];
        let words = if self.items.is_empty() {
            &all[..]
        } else {
            &self.items
        };
        let chosen = registry.chosen(words)?;
        let ran = if self.list {
            Ran::new()
        } else {
            self.experiments(&registry, &chosen)?
        };
        if self.output == Output::Json {
            output::print(&output::json(&Document::new(&chosen, &ran)));
        }
        if self.list {
            if self.output == Output::Text {
                for (name, item) in &chosen {
                    output::print(&line("", name, item));
                }
            }
            return Ok(Exit::Holds);
        }
        let mut exit = Exit::Holds;
        for (name, item) in &chosen {
            let told = tell(name, item, &ran);
            if self.output == Output::Text {
                output::print(&told.0);
            }
            exit = exit.max(told.1);
        }
        if let Some(page) = &self.page {
            fs::write(page, page::page(&registry, &ran))
                .map_err(|error| Failure::new(format!("{}: {error}", page.display())))?;
        }
        Ok(exit)
    }

    /// Runs what the items rest on, each experiment once.
    fn experiments(&self, registry: &Registry, chosen: &[(String, &Item)]) -> Result<Ran, Failure> {
        let mut named: BTreeMap<&str, Box<dyn AnyNamed>> = BTreeMap::new();
        for (_, item) in chosen {
            if let By::Sim(Checks { experiment, .. }) = &item.by
                && !(self.quick && registry.long.contains(experiment))
                && !named.contains_key(experiment.as_str())
            {
                named.insert(experiment, sim::named(experiment)?);
            }
        }
        let mut ran = Ran::new();
        for (name, experiment) in named {
            let line = Line::new();
            let mut progress = |done: &str| line.show(&format!("{name}: {done}"));
            ran.insert(name.to_owned(), experiment.run(self.seed, &mut progress)?);
        }
        Ok(ran)
    }
}

/// An item in a line.
fn line(verdict: &str, name: &str, item: &Item) -> String {
    let held = match &item.by {
        By::Not(why) => format!("not reproduced: {why}"),
        By::Elsewhere(why) => format!("cannot be reproduced: {why}"),
        by => by.command().unwrap_or_default(),
    };
    let (what, section) = (&item.what, &item.section);
    format!("{verdict}{name:<11} {what} ({section}): {held}\n")
}

/// How the checks of an item came out, in a word; the worst counts.
fn outcome(results: &[&CheckResult]) -> (&'static str, Verdict) {
    let is = |outcome: &str| results.iter().any(|result| result.outcome() == outcome);
    if results.is_empty() {
        ("not run", Verdict::Pass)
    } else if is("FAIL") {
        ("FAIL", Verdict::Fail)
    } else if is("not judged") {
        ("NOISY", Verdict::Noisy)
    } else if is("misses") {
        ("misses", Verdict::Pass)
    } else {
        ("PASS", Verdict::Pass)
    }
}

/// Returns what came out of an item, and how the command ends for it.
fn tell(name: &str, item: &Item, ran: &Ran) -> (String, Exit) {
    let By::Sim(checks) = &item.by else {
        return (line("-       ", name, item), Exit::Holds);
    };
    let results = checks.results(ran);
    let (word, verdict) = outcome(&results);
    let mut text = line(&format!("{word:<8}"), name, item);
    for result in results {
        let check = page::check(result);
        // Writing to a String does not fail.
        let _ = writeln!(text, "        {:<11} {check}", "");
    }
    (text, verdict.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
    }

    #[test]
    fn every_item_names_what_there_is() {
        let registry = Registry::read().unwrap();
        let counts: Vec<usize> = registry
            .paper
            .iter()
            .map(|paper| paper.item.len())
            .collect();
        assert_eq!(counts, [32, 23, 15, 24, 37]);
        for (name, _, item) in registry.items() {
            match &item.by {
                By::Sim(checks) => {
                    let experiment = sim::named(&checks.experiment)
                        .unwrap_or_else(|error| panic!("{name}: {error}"));
                    let known = experiment.checks();
                    assert!(!checks.checks.is_empty(), "{name}");
                    for check in &checks.checks {
                        assert!(known.contains(&check.as_str()), "{name}: {check}");
                    }
                }
                By::Lab(experiment) => {
                    let file = root().join(format!("experiments/{experiment}.toml"));
                    assert!(file.exists(), "{name}: {experiment}");
                }
                By::Test(text) | By::Not(text) | By::Elsewhere(text) => {
                    assert!(!text.trim().is_empty(), "{name}");
                }
            }
        }
        for long in &registry.long {
            assert!(sim::named(long).is_ok(), "{long}");
        }
    }

    #[test]
    fn the_page_is_that_of_the_table_but_for_what_came_out() {
        let text = fs::read_to_string(root().join("docs/reproduction.md")).unwrap();
        let registry = Registry::read().unwrap();
        let known = page::page(&registry, &Ran::new());
        assert_eq!(text.lines().count(), known.lines().count());
        for (line, known) in text.lines().zip(known.lines()) {
            assert_eq!(page::without_outcome(line), page::without_outcome(known));
        }
        let left_out = |line: &&str| line.contains(page::NOT_RUN) && line.contains("`tailbound");
        for line in text.lines().filter(left_out) {
            let mut long = registry.long.iter();
            let is_long = long.any(|it| line.contains(&format!("`{}`", command(it))));
            assert!(is_long, "run `make reproduce`: {line}");
        }
    }

    #[test]
    fn of_the_checks_of_an_item_the_worst_counts() {
        let check = |pass: bool, misses: bool, not_judged: bool| CheckResult {
            name: String::new(),
            want: String::new(),
            got: None,
            pass,
            source: String::new(),
            note: None,
            misses: misses.then(String::new),
            not_judged: not_judged.then(String::new),
        };
        let held = check(true, false, false);
        let known = check(false, true, false);
        let noisy = check(false, false, true);
        let failed = check(false, false, false);
        let of = |checks: &[&CheckResult]| outcome(checks);
        assert_eq!(of(&[]), ("not run", Verdict::Pass));
        assert_eq!(of(&[&held, &held]), ("PASS", Verdict::Pass));
        assert_eq!(of(&[&held, &known]), ("misses", Verdict::Pass));
        assert_eq!(of(&[&noisy, &known]), ("NOISY", Verdict::Noisy));
        assert_eq!(of(&[&noisy, &failed]), ("FAIL", Verdict::Fail));
    }

    #[test]
    fn a_word_that_names_nothing_is_refused_with_those_that_do() {
        let registry = Registry::read().unwrap();
        assert_eq!(registry.chosen(&["all".to_owned()]).unwrap().len(), 131);
        assert_eq!(
            registry
                .chosen(&["vsnoop".to_owned(), "silo-3".to_owned()])
                .unwrap()
                .len(),
            16
        );
        let refused = registry.chosen(&["vsnoop-99".to_owned()]).unwrap_err();
        assert!(
            format!("{refused:?}").contains("name a paper (small, bobtail, vsnoop, qos, silo)")
        );
    }
}

//! `tailbound reproduce`: every table and figure of the papers, with the papers' values and the
//! results from this computer.
//!
//! Read [`registry::Registry`] first, and `reproduce/items.toml`, which it is read from. An item
//! that has an experiment is judged by that experiment's own checks; any other item names the
//! command that tests it, or the reason why there is none. Experiments in virtual time are run
//! here. Results of the lab are read from a directory ([`kept`]), which also stores the results of
//! runs.

mod kept;
mod page;
mod registry;

use super::experiment::Line;
use super::output::{self, Output};
use crate::exit::{Exit, Failure, print_error};
use kept::Kept;
use registry::{By, Item, Planned, Ran, Registry, Size};
use serde::Serialize;
use std::fmt::Write as _;
use std::path::PathBuf;
use tailbound_report::{CheckResult, Made, Outcome, Results, Verdict, write_file};
use tailbound_sim::grid::{Shard, key};
use tailbound_units::Nanos;

/// Arguments of `tailbound reproduce`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "An item that has an experiment in virtual time is run; of one on this machine is \
    said what `tailbound lab run NAME --out DIR/lab` found, where --results names DIR; of any other \
    which command holds it, or why nothing does. What is known not to hold is told, and decides \
    nothing. Exit code: 0 all that ran holds, but for what is known; 1 something does not; 2 an \
    experiment could not run."
)]
pub(crate) struct Args {
    /// Papers (small, bobtail, vsnoop, qos, silo), items (vsnoop-12), or `all`
    #[arg(required_unless_present_any = ["list", "price"], value_name = "ITEM")]
    items: Vec<String>,
    #[command(flatten)]
    only: Only,
    /// Leave out experiments of more than ten seconds
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// Run at the papers' sizes where these are larger: hours; says first how many
    #[arg(long)]
    full: bool,
    /// Keep here what comes out of each experiment, and run none again that is here
    #[arg(long, value_name = "DIR")]
    results: Option<PathBuf>,
    /// Run each N-th experiment alone, from the I-th on; all results together are those of one run
    #[arg(
        long,
        value_name = "I/N",
        default_value = "1/1",
        hide_default_value = true,
        requires = "results"
    )]
    shard: Shard,
    /// Everything random follows from this number
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// What to print
    #[arg(long, value_enum, default_value_t)]
    output: Output,
    /// Write a page of all items as Markdown, with what came out now or is in --results
    #[arg(long, value_name = "FILE", conflicts_with = "list")]
    page: Option<PathBuf>,
}

/// Actions instead of a run.
#[derive(Debug, clap::Args)]
struct Only {
    /// Run nothing; say what there is, and by which command
    #[arg(long)]
    list: bool,
    /// Run nothing; say what would be run, at which size, and how long that takes on one CPU
    #[arg(long, conflicts_with_all = ["list", "page"])]
    price: bool,
}

/// JSON document of `--output json`.
#[derive(Debug, Serialize)]
struct Document<'r> {
    items: Vec<Told<'r>>,
}

/// An item, and its results.
#[derive(Debug, Serialize)]
struct Told<'r> {
    name: &'r str,
    what: &'r str,
    section: &'r str,
    value: Option<&'r str>,
    command: Option<String>,
    /// Verdict; `None` if no part of the item ran.
    verdict: Option<Verdict>,
    checks: Vec<&'r CheckResult>,
}

impl<'r> Document<'r> {
    fn new(chosen: &'r [(String, &'r Item)], ran: &'r Ran) -> Self {
        let items = chosen.iter().map(|(name, item)| {
            let checks: Vec<_> = item.checks().flat_map(|it| it.results(ran)).collect();
            Told {
                name,
                what: &item.what,
                section: &item.section,
                value: item.value.as_deref(),
                command: item.command(),
                verdict: (!checks.is_empty()).then(|| outcome(&checks).1),
                checks,
            }
        });
        Self {
            items: items.collect(),
        }
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
        let plan = registry.plan(&chosen, self.size());
        if self.only.price {
            output::print(&price(&plan));
            return Ok(Exit::Holds);
        }
        if self.only.list {
            self.say(&chosen, &Ran::new());
            return Ok(Exit::Holds);
        }
        if self.full {
            print_error(price(&plan).trim_end());
        }
        // A page that cannot be written is reported before hours of work.
        if let Some(page) = &self.page
            && let Some(directory) = page.parent().filter(|it| !it.as_os_str().is_empty())
            && !directory.is_dir()
        {
            let message = format!(
                "--page {}: {} is no directory",
                page.display(),
                directory.display()
            );
            return Err(Failure::new(message));
        }
        let mut ran = self.experiments(&plan)?;
        self.say(&chosen, &ran);
        if let Some(page) = &self.page {
            self.add_kept(
                &registry.plan(&registry.chosen(&all)?, self.size()),
                &mut ran,
            )?;
            let made = Made::now(super::commit());
            write_file(page, page::page(&registry, self.size(), &made, &ran))?;
        }
        let ends = chosen.iter().map(|(name, item)| tell(name, item, &ran).1);
        Ok(ends.max().unwrap_or(Exit::Holds))
    }

    const fn size(&self) -> Size {
        match (self.quick, self.full) {
            (true, _) => Size::Quick,
            (false, true) => Size::Full,
            (false, false) => Size::Usual,
        }
    }

    /// Prints items, with their results unless they are only listed.
    fn say(&self, chosen: &[(String, &Item)], ran: &Ran) {
        if self.output == Output::Json {
            output::print(&output::json("reproduce", 1, &Document::new(chosen, ran)));
            return;
        }
        for (name, item) in chosen {
            output::print(&if self.only.list {
                line("", name, item)
            } else {
                tell(name, item, ran).0
            });
        }
    }

    /// Runs the experiments without stored results, each once.
    fn experiments(&self, plan: &[Planned<'_>]) -> Result<Ran, Failure> {
        let kept = self.results.clone().map(Kept::new);
        let mut ran = Ran::new();
        let mut number = 0;
        for planned in plan {
            let found = if planned.is_of_lab() {
                kept.as_ref()
                    .map_or(Ok(None), |kept| kept.of_lab(planned))?
            } else {
                number += 1;
                self.experiment(planned, kept.as_ref(), self.shard.has(number - 1))?
            };
            if let Some(results) = found {
                ran.insert(planned.experiment.to_owned(), results);
            }
        }
        Ok(ran)
    }

    /// Adds stored results of other items, for a page of all.
    fn add_kept(&self, plan: &[Planned<'_>], ran: &mut Ran) -> Result<(), Failure> {
        let Some(kept) = self.results.clone().map(Kept::new) else {
            return Ok(());
        };
        for planned in plan {
            if ran.contains_key(planned.experiment) {
                continue;
            }
            let found = if planned.is_of_lab() {
                kept.of_lab(planned)?
            } else {
                self.experiment(planned, Some(&kept), false)?
            };
            if let Some(results) = found {
                ran.insert(planned.experiment.to_owned(), results);
            }
        }
        Ok(())
    }

    /// Returns the stored results of an experiment, or runs it if requested.
    fn experiment(
        &self,
        planned: &Planned<'_>,
        kept: Option<&Kept>,
        is_asked: bool,
    ) -> Result<Option<Results>, Failure> {
        let (experiment, text) = planned.read()?;
        let (version, seed) = (super::version(), self.seed.to_string());
        let key = key(&[&version, &seed, &text, &experiment.inputs()]);
        if let Some(kept) = kept
            && let Some(found) = kept.read(planned, self.size(), &key)?
        {
            return Ok(Some(found));
        }
        if !is_asked {
            return Ok(None);
        }
        let line = Line::new();
        let mut progress = |done: &str| line.show(&format!("{}: {done}", planned.experiment));
        let results = experiment.run(self.seed, &mut progress)?;
        drop(line);
        if let Some(kept) = kept {
            kept.write(planned, self.size(), &key, &results)?;
        }
        Ok(Some(results))
    }
}

/// Returns the run times of a plan.
fn price(plan: &[Planned<'_>]) -> String {
    let mut text = String::new();
    let (mut virtual_time, mut lab) = (Nanos::ZERO, Nanos::ZERO);
    for planned in plan {
        let sum = if planned.is_of_lab() {
            &mut lab
        } else {
            &mut virtual_time
        };
        *sum += planned.takes;
        let takes = planned.takes.to_string();
        // Writing to a String does not fail.
        let _ = writeln!(
            text,
            "{:<32} {takes:>8}  {}",
            planned.experiment, planned.size
        );
    }
    let minutes = |time: Nanos| time.0.div_ceil(60_000_000_000);
    let _ = writeln!(
        text,
        "{} minutes of one CPU in virtual time; in the lab, which --results has, {} minutes",
        minutes(virtual_time),
        minutes(lab),
    );
    text
}

/// Returns an item in a line.
fn line(verdict: &str, name: &str, item: &Item) -> String {
    let held = match &item.by {
        By::Not(why) => format!("not reproduced: {why}"),
        By::Elsewhere(why) => format!("cannot be reproduced: {why}"),
        By::Checks(_) | By::Test(_) => item.command().unwrap_or_default(),
    };
    let (what, section) = (&item.what, &item.section);
    format!("{verdict}{name:<11} {what} ({section}): {held}\n")
}

/// Returns the worst outcome of an item's checks, in a word.
fn outcome(results: &[&CheckResult]) -> (&'static str, Verdict) {
    let is = |outcome: Outcome| results.iter().any(|result| result.outcome() == outcome);
    if results.is_empty() {
        ("not run", Verdict::Pass)
    } else if is(Outcome::Fail) {
        ("FAIL", Verdict::Fail)
    } else if is(Outcome::Noisy) {
        ("NOISY", Verdict::Noisy)
    } else if is(Outcome::NotTested) {
        ("NOT TESTED", Verdict::NotTested)
    } else if is(Outcome::Misses) {
        ("misses", Verdict::Pass)
    } else {
        ("PASS", Verdict::Pass)
    }
}

/// Returns the results of an item as text, and its exit code.
fn tell(name: &str, item: &Item, ran: &Ran) -> (String, Exit) {
    let results: Vec<_> = item.checks().flat_map(|it| it.results(ran)).collect();
    let By::Checks(_) = &item.by else {
        return (line("-          ", name, item), Exit::Holds);
    };
    let (word, verdict) = outcome(&results);
    let mut text = line(&format!("{word:<11}"), name, item);
    for result in results {
        let check = page::check(result);
        // Writing to a String does not fail.
        let _ = writeln!(text, "           {:<11} {check}", "");
    }
    (text, verdict.into())
}

#[cfg(test)]
mod tests {
    use super::registry::{Checks, Run};
    use super::*;
    use std::fs;
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
        let lab: Vec<String> = registry.run.iter().flat_map(of_lab).collect();
        for (name, _, item) in registry.items() {
            if let By::Test(text) | By::Not(text) | By::Elsewhere(text) = &item.by {
                assert!(!text.trim().is_empty(), "{name}");
            }
            for checks in item.checks() {
                let planned = registry.planned(&checks.experiment, Size::Full);
                let known = if planned.is_of_lab() {
                    lab.clone()
                } else {
                    let (experiment, _) = planned.read().map_err(|_| name.clone()).unwrap();
                    let known = experiment.checks().into_iter();
                    let of_it = |check| format!("{}/{check}", planned.experiment);
                    known.map(of_it).collect()
                };
                assert!(!checks.checks.is_empty(), "{name}");
                for check in &checks.checks {
                    let check = format!("{}/{check}", planned.experiment);
                    assert!(known.contains(&check), "{name}: {check}");
                }
            }
        }
        for run in &registry.run {
            let is_it = |checks: &Checks| checks.experiment == run.experiment;
            let mut items = registry.items();
            let is_used = items.any(|(_, _, item)| item.checks().any(is_it));
            assert!(is_used, "no item rests on {}", run.experiment);
        }
    }

    /// Returns the checks of a lab's experiment: `lab/NAME/CHECK`.
    fn of_lab(run: &Run) -> Vec<String> {
        let Some(("lab", name)) = run.experiment.split_once('/') else {
            return Vec::new();
        };
        let text = fs::read_to_string(root().join(format!("experiments/{name}.toml"))).unwrap();
        let table: toml::Table = text.parse().unwrap();
        let checks = table["check"].as_array().unwrap().iter();
        let named = |check: &toml::Value| check["name"].as_str().unwrap().to_owned();
        checks
            .map(|check| format!("lab/{name}/{}", named(check)))
            .collect()
    }

    #[test]
    fn pages_are_those_of_the_table_but_for_what_came_out() {
        let registry = Registry::read().unwrap();
        let made = Made::now(None);
        let read = |name| fs::read_to_string(root().join("docs/reference").join(name)).unwrap();
        let text = read("reproduction.md");
        for (size, text) in [
            (Size::Usual, &text),
            (Size::Full, &read("reproduction-full.md")),
        ] {
            let known = page::page(&registry, size, &made, &Ran::new());
            assert_eq!(text.lines().count(), known.lines().count());
            for (line, known) in text.lines().zip(known.lines()) {
                assert_eq!(page::without_outcome(line), page::without_outcome(known));
            }
        }
        let quick = registry.plan(&registry.chosen(&["all".to_owned()]).unwrap(), Size::Quick);
        for planned in quick.iter().filter(|planned| !planned.is_of_lab()) {
            let not_run = format!("**{}** ({},", page::NOT_RUN, planned.size);
            let of_it = format!("`{}`", registry::command(planned.experiment));
            let is_left_out = |line: &&str| line.contains(&of_it) && line.contains(&not_run);
            assert_eq!(text.lines().find(is_left_out), None, "run `make reproduce`");
        }
    }

    #[test]
    fn what_is_kept_is_not_run_again_unless_it_is_of_something_else_or_damaged() {
        let directory = tempfile::tempdir().unwrap();
        let registry = Registry::read().unwrap();
        let planned = registry.planned("net/silo-figure5", Size::Usual);
        let kept = Kept::new(directory.path().to_owned());
        let read = |key| kept.read(&planned, Size::Usual, key).map_err(drop).unwrap();
        assert!(read("a").is_none());
        let (experiment, _) = planned.read().map_err(drop).unwrap();
        let results = experiment.run(1, &mut |_| ()).unwrap();
        let written = kept.write(&planned, Size::Usual, "a", &results);
        written.map_err(drop).unwrap();
        assert_eq!(read("a"), Some(results));
        assert!(read("b").is_none());
        let file = directory.path().join("net/silo-figure5.row");
        let text = fs::read_to_string(&file).unwrap();
        fs::write(&file, text.replace("400000", "400001")).unwrap();
        assert!(read("a").is_none());
    }

    #[test]
    fn of_the_checks_of_an_item_the_worst_counts() {
        let check = |pass: bool, misses: bool, noise: bool, not_judged: bool| CheckResult {
            name: String::new(),
            want: String::new(),
            got: None,
            pass,
            source: String::new(),
            note: None,
            misses: misses.then(String::new),
            noise: noise.then(String::new),
            not_judged: not_judged.then(String::new),
        };
        let held = check(true, false, false, false);
        let known = check(false, true, false, false);
        let noisy = check(false, false, true, false);
        let missing = check(false, false, false, true);
        let failed = check(false, false, false, false);
        let of = |checks: &[&CheckResult]| outcome(checks);
        assert_eq!(of(&[]), ("not run", Verdict::Pass));
        assert_eq!(of(&[&held, &held]), ("PASS", Verdict::Pass));
        assert_eq!(of(&[&held, &known]), ("misses", Verdict::Pass));
        assert_eq!(of(&[&missing, &held]), ("NOT TESTED", Verdict::NotTested));
        assert_eq!(of(&[&noisy, &missing]), ("NOISY", Verdict::Noisy));
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

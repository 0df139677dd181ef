//! `tailbound reproduce`: every table and figure of the papers, with the papers' values and the
//! results from this computer.
//!
//! [`tailbound_reproduce`] has the items, and runs their experiments.

use super::experiment::Line;
use super::output::{self, Output};
use super::sim::ThisComputer;
use crate::exit::{Exit, Failure, print_error};
use serde::Serialize;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::thread::available_parallelism;
use tailbound_report::{CheckResult, Provenance, Verdict, write_file};
use tailbound_reproduce::{
    By, Event, Item, PlannedRun, Registry, ReproduceError, ResultsByExperiment, Runner, Size,
    outcome, page, result_text,
};
use tailbound_sim::Threads;
use tailbound_sim::grid::Shard;
use tailbound_units::Nanos;

/// Arguments of `tailbound reproduce`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Runs an item's experiment if it is in virtual time. An item of the lab shows the \
    results of `tailbound lab run NAME --out DIR/lab`, with --results DIR; any other item shows \
    the command that tests it, or the reason that none does. Known misses are reported, and count \
    outside their stated range only. Results of another commit are computed again; those of the \
    lab are refused. Exit code: 0 all that ran holds, except for known misses; 1 something else \
    does not; 2 an experiment could not run."
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
    /// Run at the papers' sizes if these are larger: hours; prints the estimate first
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
    /// The output format
    #[arg(long, value_enum, default_value_t)]
    output: Output,
    /// Write a page of all items as Markdown, with what came out now or is in --results
    #[arg(long, value_name = "FILE", conflicts_with = "list")]
    page: Option<PathBuf>,
}

/// Actions instead of a run.
#[derive(Debug, clap::Args)]
struct Only {
    /// Run nothing; list all items and their commands
    #[arg(long)]
    list: bool,
    /// Run nothing; list the experiments with their sizes and times on one CPU
    #[arg(long, conflicts_with_all = ["list", "page"])]
    price: bool,
}

/// JSON document of `--output json`.
#[derive(Debug, Serialize)]
struct Document<'r> {
    /// Version and commit of the program.
    program: String,
    items: Vec<ItemReport<'r>>,
}

/// An item, and its results.
#[derive(Debug, Serialize)]
struct ItemReport<'r> {
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
    fn new(chosen: &'r [(String, &'r Item)], ran: &'r ResultsByExperiment) -> Self {
        let items = chosen.iter().map(|(name, item)| {
            let checks: Vec<_> = item.checks().flat_map(|it| it.results(ran)).collect();
            ItemReport {
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
            program: super::version(),
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
        let chosen = registry.chosen(words).map_err(|error| match error {
            error @ ReproduceError::UnknownItem { .. } => Failure::wrong_arguments(error),
            error => error.into(),
        })?;
        let plan = registry.plan(&chosen, self.size());
        if self.only.price {
            output::print(&price(&plan));
            return Ok(Exit::Holds);
        }
        if self.only.list {
            self.say(&chosen, &ResultsByExperiment::new());
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
        let line = Line::new();
        let mut events = |event: Event<'_>| match event {
            Event::Progress(done) => line.show(done),
            Event::End => line.show(""),
            Event::Corrupt(why) => print_error(why),
        };
        let runner = self.runner();
        let mut ran = runner.run(&plan, &mut events)?;
        self.say(&chosen, &ran);
        if let Some(file) = &self.page {
            let whole = registry.plan(&registry.chosen(&all)?, self.size());
            runner.add_stored(&whole, &mut ran, &mut events)?;
            let made = Provenance::now(super::commit());
            write_file(file, page(&registry, self.size(), &made, &ran))?;
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
    fn say(&self, chosen: &[(String, &Item)], ran: &ResultsByExperiment) {
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
        if !ran.is_empty() {
            output::print(&format!("tailbound {}\n", super::version()));
        }
    }

    fn runner(&self) -> Runner {
        Runner {
            size: self.size(),
            seed: self.seed,
            shard: self.shard,
            results: self.results.clone(),
            version: super::version(),
            threads: Threads(available_parallelism().map_or(1, usize::from)),
            stopwatch: || Box::new(ThisComputer),
        }
    }
}

/// Returns the run times of a plan.
fn price(plan: &[PlannedRun<'_>]) -> String {
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
    let result_text = match &item.by {
        By::Not(why) => format!("not reproduced: {why}"),
        By::Elsewhere(why) => format!("cannot be reproduced: {why}"),
        By::Checks(_) | By::Test(_) => item.command().unwrap_or_default(),
    };
    let (what, section) = (&item.what, &item.section);
    format!("{verdict}{name:<11} {what} ({section}): {result_text}\n")
}

/// Returns the results of an item as text, and its exit code.
fn tell(name: &str, item: &Item, ran: &ResultsByExperiment) -> (String, Exit) {
    let results: Vec<_> = item.checks().flat_map(|it| it.results(ran)).collect();
    let By::Checks(_) = &item.by else {
        return (line("-          ", name, item), Exit::Holds);
    };
    let (word, verdict) = outcome(&results);
    let mut text = line(&format!("{word:<11}"), name, item);
    for result in results {
        let check = result_text(result);
        // Writing to a String does not fail.
        let _ = writeln!(text, "           {:<11} {check}", "");
    }
    (text, verdict.into())
}

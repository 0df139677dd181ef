//! All items as a page: `docs/reproduction.md`.

use super::outcome;
use super::registry::{By, Checks, Item, Ran, Registry, Size, command};
use std::fmt::Write as _;
use tailbound_report::{CheckResult, Made, NOTHING, Outcome, human};

/// What is said of an item whose experiment did not run.
pub(super) const NOT_RUN: &str = "not run";

/// What stands above the tables.
const HEAD: &str = "\
# Every table and figure of the papers

`tailbound reproduce` runs what is in virtual time, and tells of each item what the paper says, what
came out here, and what was wanted; `tailbound reproduce silo-10` does so for one, the tenth of Silo.
A run follows from its seed, which is 1 here. The lines are in
`crates/tailbound/src/command/reproduce/items.toml`, the bounds of each check in its experiment
(`tailbound sim KIND show NAME`, `tailbound lab show NAME`).

- `make reproduce` writes this page: it runs the lab's experiments, then all others, and keeps what
  comes out in `out/reproduce`. Interrupted, it goes on there; what follows from another version or
  another text is run again.
- `tailbound reproduce all --price` tells what that takes, `--full --price` what the papers' sizes
  take. `--full --results DIR --shard I/N` runs a part of these, on as many machines as there are; the
  files of all in one directory are those of one run, which `--page` writes. So does a run of some
  items: `tailbound reproduce silo-10 vsnoop-4 --full --results DIR --page FILE` adds these to what DIR
  has, and tells of the others what they would take.
- `--quick` leaves out what takes more than ten seconds.

| here | |
|---|---|
| **PASS** | within the bounds that are told |
| **misses** | not within them, for the reason that is told |
| **FAIL** | not within them, and nobody knew |
| **NOISY** | not judged: this machine was too busy |
| **not judged** | what it needs is not here, as is told |
| **not run** | the command runs it; on one CPU, and in the lab on the whole machine, it takes as long as is told |
| lab | on this machine's own threads and packets, in a scaled setting; [results.md](results.md) has more of it |
| test | the command holds that the mechanism does what the paper says; the paper has no figure for it, or its hardware is not here |
| - | not reproduced, or impossible, for the reason that is told |

";

/// What the line begins with that tells what made the page.
const MADE: &str = "Made ";

/// The page. Items whose experiments did not run say so.
pub(super) fn page(registry: &Registry, size: Size, made: &Made, ran: &Ran) -> String {
    let mut page = HEAD.to_owned();
    let sizes = match size {
        Size::Quick => "what takes seconds",
        Size::Usual => "at the sizes that are told",
        Size::Full => "at the papers' sizes",
    };
    let _ = writeln!(page, "{MADE}{}, {sizes}.", made.words());
    for paper in &registry.paper {
        let _ = write!(
            page,
            "\n## {}\n\n| | item | section | the paper | here | command |\n|---|---|---|---|---|---|\n",
            paper.name
        );
        for (at, item) in (1..).zip(&paper.item) {
            let _ = writeln!(
                page,
                "| {at} | {} | {} | {} | {} | {} |",
                item.what,
                item.section,
                item.value.as_deref().unwrap_or_default(),
                here(item, registry, size, ran),
                commands(item),
            );
        }
    }
    page
}

/// The commands to look at an item with.
fn commands(item: &Item) -> String {
    let beside = item.beside.iter().map(|it| command(&it.experiment));
    let all = item.command().into_iter().chain(beside);
    let all: Vec<String> = all.map(|it| format!("`{it}`")).collect();
    all.join("<br>")
}

/// What came out of an item.
fn here(item: &Item, registry: &Registry, size: Size, ran: &Ran) -> String {
    let first = match &item.by {
        By::Test(_) => Some("test".to_owned()),
        By::Not(why) | By::Elsewhere(why) => Some(format!("- {why}")),
        By::Checks(_) => None,
    };
    let checks = item.checks().map(|it| of_checks(it, registry, size, ran));
    let all: Vec<String> = first.into_iter().chain(checks).collect();
    all.join("<br>")
}

/// What came out of the checks of an experiment, and how large that was.
fn of_checks(checks: &Checks, registry: &Registry, size: Size, ran: &Ran) -> String {
    let planned = registry.planned(&checks.experiment, size);
    let place = if planned.is_of_lab() { "lab: " } else { "" };
    let results = checks.results(ran);
    let word = match outcome(&results) {
        _ if results.is_empty() => NOT_RUN,
        (word, _) => word,
    };
    let price = if results.is_empty() {
        format!(", takes {}", planned.takes)
    } else {
        String::new()
    };
    let mut text = format!("**{word}** ({place}{}{price})", planned.size);
    for result in results {
        let _ = write!(text, "<br>{}", check(result));
    }
    text
}

/// A check in a line: what is wanted, what was found, and why it misses.
pub(super) fn check(result: &CheckResult) -> String {
    let got = result
        .got
        .map_or_else(|| NOTHING.to_owned(), |got| human(got, ""));
    let name = result.name.replace('_', " ");
    let why = match result.outcome() {
        Outcome::Pass => String::new(),
        outcome => format!(", {outcome}: {}", result.remark().unwrap_or_default()),
    };
    format!("{name}: {got} (wanted {}){why}", result.want)
}

/// A line of the page without what came out of a run.
#[cfg(test)]
pub(super) fn without_outcome(line: &str) -> String {
    if line.starts_with(MADE) {
        return MADE.to_owned();
    }
    let mut columns: Vec<&str> = line.split(" | ").collect();
    if let [_, _, _, _, here, _] = columns.as_mut_slice()
        && here.contains("**")
    {
        *here = "";
    }
    columns.join(" | ")
}

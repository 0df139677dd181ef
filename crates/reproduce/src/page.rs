//! All items as a page: `docs/reference/reproduction.md`.

use crate::outcome::{line, outcome};
use crate::registry::{By, Checks, Item, Registry, ResultsByExperiment, Size, command};
use std::fmt::Write as _;
use tailbound_report::{CheckResult, Outcome, Provenance};

/// Outcome of an item whose experiment did not run.
pub(crate) const NOT_RUN: &str = "not run";

/// Text above the tables.
const HEAD: &str = "\
# Every table and figure of the papers

`tailbound reproduce` runs the experiments in virtual time and compares each item of the papers with the result.
`tailbound reproduce silo-10` runs one item, the tenth of Silo. A run depends on its seed only, which is 1 here. The
items are in `crates/reproduce/src/items.toml`, the bounds of each check in its experiment (`tailbound sim KIND show
NAME`, `tailbound lab show NAME`) and behind its result: `0.749 (>= 0.5)`. A known miss has a range, too: outside it, on
either side, the check fails. `seeds:1.2/1.4/1.5`: lowest, median, highest of the seeds 1 to 5, if
they differ. The column *fitted* has the parameters that were fitted to a figure of the paper, and
those that the paper does not state. An item is PASS if all its checks are.

- `make reproduce` writes this page: it runs the lab's experiments, then all others, and stores the results in
  `out/reproduce`. After an interruption it continues; results of another version or another text are computed again.
- `tailbound reproduce all --price` prints the run times, `--full --price` those at the papers' sizes.
  `--full --results DIR --shard I/N` runs a part of them, on several computers if needed. The files of all parts in one
  directory equal those of one run, and `--page` writes the page. `tailbound reproduce silo-10 vsnoop-4 --full --results
  DIR --page FILE` adds these items to the results in DIR.
- `--quick` omits experiments of more than ten seconds.

| result | meaning |
|---|---|
| **PASS** | within the stated bounds |
| **known miss** | outside the bounds, in the stated range and for the stated reason |
| **FAIL** | outside the bounds, and outside the range of a known miss if there is one |
| **NOISY** | not judged: this computer was too busy |
| **NOT TESTED** | too few samples, or a necessary program did not run |
| **not run** | the command runs it, in the stated time on one CPU (lab: on the whole computer) |
| lab | real threads and packets of one computer, at a smaller scale; see [results.md](../explanation/results.md) |
| test | the command tests the mechanism; the paper has no figure for it, or its hardware is missing |
| - | not reproduced, or impossible, for the stated reason |

";

/// Text above the tables at the papers' sizes.
const FULL: &str = "\
# The papers' items at the papers' sizes

This page has the items whose papers measured at a larger size than `make reproduce`. `tailbound reproduce ITEM ...
--full --results DIR --page FILE` writes it. docs/reference/reproduction.md has all items at the usual sizes, and the
meaning of the results.

";

/// Begin of the line that describes the page's origin.
const MADE: &str = "Made ";

/// Returns the page. Items whose experiments did not run are marked.
pub fn page(
    registry: &Registry,
    size: Size,
    made: &Provenance,
    ran: &ResultsByExperiment,
) -> String {
    let (head, sizes) = match size {
        Size::Quick => (HEAD, "experiments of seconds"),
        Size::Usual => (HEAD, "at the stated sizes"),
        Size::Full => (FULL, "at the papers' sizes"),
    };
    let mut page = head.to_owned();
    let _ = writeln!(page, "{MADE}{}, {sizes}.", made.words());
    for paper in &registry.paper {
        let is_shown = |item: &Item| size != Size::Full || item.has_larger(registry);
        if !paper.item.iter().any(is_shown) {
            continue;
        }
        let _ = write!(
            page,
            "\n## {}\n\n| | item | section | the paper | here | fitted | command |\n|---|---|---|---|---|---|---|\n",
            paper.name
        );
        for (at, item) in (1..).zip(&paper.item).filter(|(_, item)| is_shown(item)) {
            let _ = writeln!(
                page,
                "| {at} | {} | {} | {} | {} | {} | {} |",
                item.what,
                item.section,
                item.value.as_deref().unwrap_or_default(),
                here(item, registry, size, ran),
                registry.fitted(item),
                commands(item, registry, size),
            );
        }
    }
    page
}

/// Returns the checks of an item that a page of this size shows.
fn shown<'i>(item: &'i Item, registry: &Registry, size: Size) -> Vec<&'i Checks> {
    let is_shown = |checks: &&Checks| size != Size::Full || registry.is_larger(&checks.experiment);
    item.checks().filter(is_shown).collect()
}

/// Returns the commands that show an item.
fn commands(item: &Item, registry: &Registry, size: Size) -> String {
    let test = match &item.by {
        By::Test(command) if size != Size::Full => Some(command.clone()),
        _ => None,
    };
    let checks = shown(item, registry, size).into_iter();
    let checks = checks.map(|it| command(&it.experiment));
    let all: Vec<String> = test
        .into_iter()
        .chain(checks)
        .map(|it| format!("`{it}`"))
        .collect();
    all.join("<br>")
}

/// Returns the outcome of an item.
fn here(item: &Item, registry: &Registry, size: Size, ran: &ResultsByExperiment) -> String {
    let first = match &item.by {
        By::Test(_) => Some("test".to_owned()),
        By::Not(why) | By::Elsewhere(why) => Some(format!("- {why}")),
        By::Checks(_) => None,
    };
    let checks = shown(item, registry, size).into_iter();
    let checks = checks.map(|it| of_checks(it, registry, size, ran));
    let all: Vec<String> = first.into_iter().chain(checks).collect();
    all.join("<br>")
}

/// Returns the outcome of an experiment's checks, and its size.
fn of_checks(
    checks: &Checks,
    registry: &Registry,
    size: Size,
    ran: &ResultsByExperiment,
) -> String {
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
    let seeds = |result: &CheckResult| match size {
        Size::Full => None,
        Size::Quick | Size::Usual => registry.seeds.of(&checks.experiment, &result.name),
    };
    text.push_str(&in_cell(results, seeds));
    text
}

/// Number of passed checks from which a cell shows them folded.
const FOLDED: usize = 7;

/// Returns checks in a cell: failed ones before passed ones. `seeds` returns the spread of a check over five seeds.
fn in_cell(results: Vec<&CheckResult>, seeds: impl Fn(&CheckResult) -> Option<String>) -> String {
    // The page's head explains the bounds in parentheses.
    let check = |result: &CheckResult| line(result, "", seeds(result));
    let holds = |result: &&CheckResult| result.outcome() == Outcome::Pass;
    let (held, others): (Vec<_>, Vec<_>) = results.into_iter().partition(holds);
    let mut text = in_words(&others, check);
    let held: Vec<String> = held.into_iter().map(check).collect();
    if held.len() < FOLDED {
        text.extend(held.iter().map(|line| format!("<br>{line}")));
    } else {
        let (count, held) = (held.len(), held.join("<br>"));
        // Writing to a String does not fail.
        let _ = write!(
            text,
            "<details><summary>{count} checks hold</summary>{held}</details>"
        );
    }
    text
}

/// Returns failed checks, a line each; a repeated reason is replaced by a reference.
fn in_words(results: &[&CheckResult], check: impl Fn(&CheckResult) -> String) -> String {
    let mut text = String::new();
    for (at, result) in results.iter().enumerate() {
        let why = result.remark();
        let is_told = results[..at].iter().any(|before| before.remark() == why);
        let line = match why {
            Some(why) if is_told => check(result).replace(why, "as above"),
            _ => check(result),
        };
        let _ = write!(text, "<br>{line}");
    }
    text
}

/// Returns a line of the page without results of a run.
#[cfg(test)]
pub(crate) fn without_outcome(line: &str) -> String {
    if line.starts_with(MADE) {
        return MADE.to_owned();
    }
    let mut columns: Vec<&str> = line.split(" | ").collect();
    if let [_, _, _, _, here, _, _] = columns.as_mut_slice()
        && here.contains("**")
    {
        *here = "";
    }
    columns.join(" | ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(name: &str, pass: bool, misses: Option<&str>) -> CheckResult {
        CheckResult {
            name: name.to_owned(),
            want: "<= 2".to_owned(),
            got: Some(if pass { 1.0 } else { 3.0 }),
            pass,
            misses: misses.map(str::to_owned),
            ..CheckResult::default()
        }
    }

    #[test]
    fn known_misses_come_first_with_each_reason_once() {
        let results = [
            result("a", false, Some("it rains")),
            result("b", false, Some("it snows")),
            result("c", false, Some("it rains")),
            result("d", false, None),
        ];
        let lines = in_words(&results.each_ref(), |result| line(result, "", None));
        assert_eq!(
            lines,
            "<br>a: 3 (<= 2), known miss: it rains\
             <br>b: 3 (<= 2), known miss: it snows\
             <br>c: 3 (<= 2), known miss: as above\
             <br>d: 3 (<= 2), FAIL"
        );
    }

    #[test]
    fn the_spread_over_seeds_stands_behind_the_bounds() {
        let with_paper = CheckResult {
            paper: Some("1.5".to_owned()),
            ..result("a", true, None)
        };
        let seeds = |_: &CheckResult| Some("1/2/3".to_owned());
        assert_eq!(
            in_cell(vec![&with_paper], seeds),
            "<br>a: 1 (`<= 2; paper 1.5; seeds:1/2/3`)"
        );
        let missed = CheckResult {
            known: Some("2 to 4".to_owned()),
            ..result("a", false, Some("it rains"))
        };
        assert_eq!(
            in_cell(vec![&missed], |_| None),
            "<br>a: 3 (`<= 2; known 2 to 4`): it rains"
        );
    }

    #[test]
    fn many_checks_that_hold_are_folded_away() {
        let found = |count: usize| {
            let mut all = vec![result("a", true, None); count];
            all.push(result("b", false, Some("it rains")));
            in_cell(all.iter().collect(), |_| None)
        };
        assert_eq!(
            found(1),
            "<br>b: 3 (<= 2), known miss: it rains<br>a: 1 (<= 2)"
        );
        assert!(found(FOLDED).contains("it rains<details><summary>7 checks hold</summary>a: 1 "));
        assert!(found(FOLDED).ends_with("</details>"));
    }
}

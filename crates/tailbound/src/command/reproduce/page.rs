//! All items as a page: `docs/reference/reproduction.md`.

use super::outcome;
use super::registry::{By, Checks, Item, Ran, Registry, Size, command};
use std::fmt::Write as _;
use tailbound_report::{CheckResult, Made, NOTHING, Outcome, human};

/// Outcome of an item whose experiment did not run.
pub(super) const NOT_RUN: &str = "not run";

/// Text above the tables.
const HEAD: &str = "\
# Every table and figure of the papers

`tailbound reproduce` runs the experiments in virtual time and compares each item of the papers with the result.
`tailbound reproduce silo-10` runs one item, the tenth of Silo. A run depends on its seed only, which is 1 here. The
items are in `crates/tailbound/src/command/reproduce/items.toml`, the bounds of each check in its experiment
(`tailbound sim KIND show NAME`, `tailbound lab show NAME`).

- `make reproduce` writes this page: it runs the lab's experiments, then all others, and stores the results in
  `out/reproduce`. After an interruption it continues; results of another version or another text are computed again.
- `tailbound reproduce all --price` prints the run times, `--full --price` those at the papers' sizes.
  `--full --results DIR --shard I/N` runs a part of them, on several computers if needed; the files of all parts in one
  directory equal those of one run, and `--page` writes the page. `tailbound reproduce silo-10 vsnoop-4 --full --results
  DIR --page FILE` adds these items to the results in DIR.
- `--quick` omits experiments of more than ten seconds.

| result | meaning |
|---|---|
| **PASS** | within the stated bounds |
| **misses** | outside the bounds, for the stated reason |
| **FAIL** | outside the bounds, without a known reason |
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

`tailbound reproduce ITEM ... --full --results DIR --page FILE` wrote this page, for items of a few minutes. Other items
are **not run**, with the time they take. If the usual size is the paper's, the row repeats that run.
[reproduction.md](reproduction.md) has all items at the sizes of `make reproduce`, and the meaning of the results.

";

/// Begin of the line that describes the page's origin.
const MADE: &str = "Made ";

/// Returns the page. Items whose experiments did not run are marked.
pub(super) fn page(registry: &Registry, size: Size, made: &Made, ran: &Ran) -> String {
    let (head, sizes) = match size {
        Size::Quick => (HEAD, "experiments of seconds"),
        Size::Usual => (HEAD, "at the stated sizes"),
        Size::Full => (FULL, "at the papers' sizes"),
    };
    let mut page = head.to_owned();
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

/// Returns the commands that show an item.
fn commands(item: &Item) -> String {
    let beside = item.beside.iter().map(|it| command(&it.experiment));
    let all = item.command().into_iter().chain(beside);
    let all: Vec<String> = all.map(|it| format!("`{it}`")).collect();
    all.join("<br>")
}

/// Returns the outcome of an item.
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

/// Returns the outcome of an experiment's checks, and its size.
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
    text.push_str(&in_cell(results));
    text
}

/// Number of passed checks from which a cell shows them folded.
const FOLDED: usize = 7;

/// Returns checks in a cell: failed ones before passed ones.
fn in_cell(results: Vec<&CheckResult>) -> String {
    let holds = |result: &&CheckResult| result.outcome() == Outcome::Pass;
    let (held, others): (Vec<_>, Vec<_>) = results.into_iter().partition(holds);
    let mut text = in_words(&others);
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
fn in_words(results: &[&CheckResult]) -> String {
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

/// Returns a check in a line: expected value, result, and the reason of a known miss.
pub(super) fn check(result: &CheckResult) -> String {
    // The result has the unit of the expected value, which follows its last digit.
    let last = result.want.rsplit_once(|it: char| it.is_ascii_digit());
    let unit = last.map_or("", |(_, unit)| unit);
    let got = result
        .got
        .map_or_else(|| NOTHING.to_owned(), |got| human(got, "") + unit);
    let name = result.name.replace('_', " ");
    let why = match (result.outcome(), result.remark()) {
        (Outcome::Pass, _) => String::new(),
        (outcome, Some(why)) => format!(", {outcome}: {why}"),
        (outcome, None) => format!(", {outcome}"),
    };
    format!("{name}: {got} (wanted {}){why}", result.want)
}

/// Returns a line of the page without results of a run.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_has_the_unit_of_what_was_wanted() {
        let of = |want: &str| {
            let want = want.to_owned();
            check(&CheckResult {
                want,
                ..result("a", true, None)
            })
        };
        assert_eq!(of("<= 2 ms"), "a: 1 ms (wanted <= 2 ms)");
        assert_eq!(of("19/s to 44/s"), "a: 1/s (wanted 19/s to 44/s)");
        assert_eq!(of(">= 0.5"), "a: 1 (wanted >= 0.5)");
    }

    fn result(name: &str, pass: bool, misses: Option<&str>) -> CheckResult {
        CheckResult {
            name: name.to_owned(),
            want: "<= 2".to_owned(),
            got: Some(if pass { 1.0 } else { 3.0 }),
            pass,
            source: String::new(),
            note: None,
            misses: misses.map(str::to_owned),
            noise: None,
            not_judged: None,
        }
    }

    #[test]
    fn what_misses_comes_first_and_its_reason_once() {
        let results = [
            result("a", false, Some("it rains")),
            result("b", false, Some("it snows")),
            result("c", false, Some("it rains")),
            result("d", false, None),
        ];
        let lines = in_words(&results.each_ref());
        assert_eq!(
            lines,
            "<br>a: 3 (wanted <= 2), misses: it rains\
             <br>b: 3 (wanted <= 2), misses: it snows\
             <br>c: 3 (wanted <= 2), misses: as above\
             <br>d: 3 (wanted <= 2), FAIL"
        );
    }

    #[test]
    fn many_checks_that_hold_are_folded_away() {
        let found = |count: usize| {
            let mut all = vec![result("a", true, None); count];
            all.push(result("b", false, Some("it rains")));
            in_cell(all.iter().collect())
        };
        assert_eq!(
            found(1),
            "<br>b: 3 (wanted <= 2), misses: it rains<br>a: 1 (wanted <= 2)"
        );
        assert!(found(FOLDED).contains("it rains<details><summary>7 checks hold</summary>a: 1 "));
        assert!(found(FOLDED).ends_with("</details>"));
    }
}

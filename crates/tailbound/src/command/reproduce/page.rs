//! All items as a page: `docs/reproduction.md`.

use super::{By, Item, Ran, Registry, outcome};
use std::fmt::Write as _;
use tailbound_report::{CheckResult, NOTHING, human};

/// What is said of an item whose experiment takes too long for the run.
pub(super) const NOT_RUN: &str = "not run at this size";

/// What stands above the tables.
const HEAD: &str = "\
# Every table and figure of the papers

`make reproduce` writes this page, by `tailbound reproduce all --quick --page docs/reproduction.md`:
whatever takes seconds is run. Without `--quick` everything in virtual time is (a quarter of an
hour); `tailbound reproduce silo-10` runs one line, the tenth of Silo. A run follows from its seed,
which is 1 here. The lines are in `crates/tailbound/src/command/reproduce/items.toml`, the bounds of
each check in its experiment (`tailbound sim KIND show NAME`).

| here | |
|---|---|
| **PASS** | within the bounds that are told |
| **misses** | not within them, for the reason that is told |
| **not run at this size** | the command runs it, in a minute or more |
| lab | measured on this machine's own threads and packets by the command, in a scaled setting: [results.md](results.md) has what came out |
| test | the command holds that the mechanism does what the paper says; the paper has no figure for it, or its hardware is not here |
| - | not reproduced, or impossible, for the reason that is told |
";

/// The page. Items whose experiments did not run say so.
pub(super) fn page(registry: &Registry, ran: &Ran) -> String {
    let mut page = HEAD.to_owned();
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
                here(item, ran),
                item.by
                    .command()
                    .map_or_else(String::new, |it| format!("`{it}`")),
            );
        }
    }
    page
}

/// What came out of an item.
fn here(item: &Item, ran: &Ran) -> String {
    match &item.by {
        By::Lab(_) => "lab".to_owned(),
        By::Test(_) => "test".to_owned(),
        By::Not(why) | By::Elsewhere(why) => format!("- {why}"),
        By::Sim(checks) => {
            let results = checks.results(ran);
            let word = match outcome(&results) {
                _ if results.is_empty() => NOT_RUN,
                (word, _) => word,
            };
            let checks = results.into_iter().map(check);
            let checks: Vec<String> = [format!("**{word}**")].into_iter().chain(checks).collect();
            checks.join("<br>")
        }
    }
}

/// A check in a line: what is wanted, what was found, and why it misses.
pub(super) fn check(result: &CheckResult) -> String {
    let got = result
        .got
        .map_or_else(|| NOTHING.to_owned(), |got| human(got, ""));
    let name = result.name.replace('_', " ");
    let why = match result.outcome() {
        "pass" => String::new(),
        outcome => format!(", {outcome}: {}", result.remark().unwrap_or_default()),
    };
    format!("{name}: {got} (wanted {}){why}", result.want)
}

/// A line of the page without what came out of a run.
#[cfg(test)]
pub(super) fn without_outcome(line: &str) -> String {
    let mut columns: Vec<&str> = line.split(" | ").collect();
    if let [_, _, _, _, here, _] = columns.as_mut_slice()
        && here.starts_with("**")
    {
        *here = "";
    }
    columns.join(" | ")
}

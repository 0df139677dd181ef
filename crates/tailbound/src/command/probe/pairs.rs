//! Attribution of long tails among many nodes to their ends, from network tests of each node by
//! each.

use super::document::SCHEMA;
use crate::command::output::{self, Output, print};
use crate::exit::{Exit, Failure};
use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::PathBuf;
use tailbound_probe::NodeVerdict;
use tailbound_probe::pairs::{Owner, owners};
use tailbound_probe::run::results::{self, NetworkTest};
use tailbound_report::{NOTHING, Paint, Table, human};

/// Arguments of `tailbound probe pairs`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "First run `tailbound probe serve` on each instance, and `tailbound probe \
    network --output json` on each against all others. Exit code: 0 no pair is BAD; 1 a pair \
    is BAD; 2 a file is not a result of a network test."
)]
pub(super) struct Args {
    /// Results of network tests, one from each calling instance
    #[arg(required = true, value_name = "RESULT.json")]
    results: Vec<PathBuf>,
    /// The output format
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

/// Result. Indexes are those in `callers` and `nodes`.
#[derive(Debug, Serialize)]
struct Document {
    callers: Vec<String>,
    nodes: Vec<String>,
    /// Results by caller and node; `None` if the caller did not call the node.
    pairs: Vec<Vec<Option<Pair>>>,
    owners: Vec<Owner>,
}

/// Result of one node for another.
#[derive(Debug, Clone, Copy, Serialize)]
struct Pair {
    verdict: NodeVerdict,
    /// The longest of all rates; `None` without answers.
    p99_9_ns: Option<u64>,
}

impl Args {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let tests = results::network_tests(&self.results).map_err(Failure::new)?;
        let document = Document::new(tests);
        print(&match self.output {
            Output::Json => output::json("probe-pairs", SCHEMA, &document),
            Output::Text => document.text(output::paint()),
        });
        Ok(Exit::holds(document.owners.is_empty()))
    }
}

impl Document {
    fn new(tests: Vec<NetworkTest>) -> Self {
        let found = tests.iter().flat_map(|test| &test.found);
        let nodes: BTreeSet<String> = found.map(|(node, ..)| node.clone()).collect();
        let nodes: Vec<_> = nodes.into_iter().collect();
        let row = |test: &NetworkTest| -> Vec<Option<Pair>> {
            let of = |node: &String| {
                let found = test.found.iter().find(|(name, ..)| name == node)?;
                let (_, verdict, p99_9_ns) = found;
                Some(Pair {
                    verdict: *verdict,
                    p99_9_ns: *p99_9_ns,
                })
            };
            nodes.iter().map(of).collect()
        };
        let pairs: Vec<Vec<_>> = tests.iter().map(row).collect();
        let outcomes = pairs.iter().map(|row| {
            let outcomes = row.iter().map(|pair| pair.map(|pair| pair.verdict));
            outcomes.collect::<Vec<_>>()
        });
        Self {
            owners: owners(&outcomes.collect::<Vec<_>>()),
            callers: tests.into_iter().map(|test| test.caller).collect(),
            nodes,
            pairs,
        }
    }

    fn text(&self, paint: Paint) -> String {
        let mut out = match self.owners.first() {
            None => format!("{}  no pair is late", paint.good(NodeVerdict::Good.word())),
            Some(_) => format!(
                "{}  {}",
                paint.bad(NodeVerdict::Bad.word()),
                self.counts_text()
            ),
        };
        out += "\n\n";
        let mut head = vec!["from \\ to"];
        head.extend(self.nodes.iter().map(String::as_str));
        let mut table = Table::new(&head, &[0]);
        for (caller, row) in self.callers.iter().zip(&self.pairs) {
            let cells = row.iter().map(|pair| {
                let Some(Pair { verdict, p99_9_ns }) = pair else {
                    return NOTHING.to_owned();
                };
                let time = p99_9_ns.map(|time| human(time as f64, "ns"));
                match (verdict, time) {
                    (NodeVerdict::Good, Some(time)) => time,
                    (_, Some(time)) => format!("{time} {verdict}"),
                    (_, None) => verdict.to_string(),
                }
            });
            table.row(
                std::iter::once(caller.clone())
                    .chain(cells)
                    .collect::<Vec<_>>(),
            );
        }
        out += &table.render(paint);
        out.push('\n');
        for owner in &self.owners {
            // Writing to a String does not fail.
            let _ = writeln!(out, "{}", self.whose(owner));
        }
        out
    }

    fn counts_text(&self) -> String {
        let count = |which: fn(&Owner) -> bool| self.owners.iter().filter(|it| which(it)).count();
        format!(
            "late: {} as they answer, {} as they call, {} between two",
            count(|it| matches!(it, Owner::Answers(_))),
            count(|it| matches!(it, Owner::Calls(_))),
            count(|it| matches!(it, Owner::Between { .. }))
        )
    }

    fn whose(&self, owner: &Owner) -> String {
        match owner {
            Owner::Answers(node) => {
                format!(
                    "{}: late for most callers, so the node is late",
                    self.nodes[*node]
                )
            }
            Owner::Calls(caller) => format!(
                "{}: finds nodes late that most callers find in time, so the caller is late",
                self.callers[*caller]
            ),
            Owner::Between { caller, answers } => format!(
                "{} to {}: late for this pair, and not for most others of either",
                self.callers[*caller], self.nodes[*answers]
            ),
        }
    }
}

//! `tailbound select`: selection of the probed nodes to keep.

mod launch;

use super::output::{self, Output};
use super::results::{self, Node};
use crate::exit::{Exit, Failure, print_error};
use serde::Serialize;
use std::fmt::Write as _;
use std::path::PathBuf;
use tailbound_probe::Outcome;
use tailbound_probe::select::{Candidate, Use, Yield, select};
use tailbound_report::{NOTHING, Paint, Table, human};

/// Parses the number of needed nodes.
fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err("a whole number from 1".to_owned()),
        Ok(count) => Ok(count),
    }
}

/// Arguments of `tailbound select`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Prints the best first: GOOD instances with the smallest share of late \
    sleeps, then instances that the network test approved. A network test belongs to the \
    instance of that name, or to the result file named after its address. Exit code: 0 enough \
    instances are GOOD; 1 fewer are; 2 a file is not a result."
)]
pub(crate) struct Args {
    /// Outputs of `tailbound probe --output json` from each instance, and of `tailbound probe
    /// network --output json` from some of them
    #[arg(required_unless_present = "launch", value_name = "RESULT.json")]
    results: Vec<PathBuf>,
    /// The number of instances needed
    #[arg(long, value_name = "N", value_parser = at_least_one, required_unless_present = "launch")]
    keep: Option<usize>,
    #[command(flatten)]
    start: launch::Options,
    /// The output format
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

/// Result of the selection.
#[derive(Debug, Serialize)]
struct Selection {
    wanted: usize,
    good: usize,
    /// Estimate, from nodes with both verdicts, of the number of nodes to start.
    #[serde(rename = "yield")]
    found: Option<Yield>,
    nodes: Vec<Chosen>,
}

#[derive(Debug, Serialize)]
struct Chosen {
    node: String,
    file: String,
    verdict: Outcome,
    network: Option<Outcome>,
    #[serde(rename = "use")]
    what: Use,
    late: u64,
    samples: u64,
    p99_9_ns: u64,
}

impl Args {
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        let selection = match &self.start.launch {
            None => self.read()?,
            Some(launch) => match self.start.run(launch)? {
                launch::Outcomes::Chosen(selection) => selection,
                launch::Outcomes::Said(text) => {
                    output::print(&text);
                    return Ok(Exit::Holds);
                }
            },
        };
        output::print(&match self.output {
            Output::Json => output::json("select", 1, &selection),
            Output::Text => selection.text(output::paint().0),
        });
        Ok(Exit::holds(selection.good >= selection.wanted))
    }

    /// Returns the selection from existing results.
    fn read(&self) -> Result<Selection, Failure> {
        let nodes = results::read(&self.results).map_err(Failure::new)?;
        if let Some(warning) = twice(&nodes) {
            print_error(&warning);
        }
        let rows: Vec<_> = nodes
            .into_iter()
            .map(|node| Row {
                candidate: node.candidate,
                note: node.file.display().to_string(),
            })
            .collect();
        // Without a launcher it is required.
        Ok(Selection::of(&rows, self.keep.unwrap_or(1)))
    }
}

/// Returns the warning about the first node that has two results, if any. It is no error: VMs that
/// were cloned may have the same host name.
fn twice(nodes: &[Node]) -> Option<String> {
    nodes.iter().enumerate().find_map(|(place, node)| {
        let name = &node.candidate.name;
        let first = nodes[..place]
            .iter()
            .find(|it| it.candidate.name == *name)?;
        Some(format!(
            "warning: {} and {} are both of a node {name}, which counts twice; pass one result of \
             each node, and set a host name of its own on each node",
            first.file.display(),
            node.file.display()
        ))
    })
}

/// A candidate, and its address or the file of its result.
struct Row {
    candidate: Candidate,
    note: String,
}

impl Chosen {
    fn new(row: &Row, what: Use) -> Self {
        let candidate = &row.candidate;
        Self {
            node: candidate.name.clone(),
            file: row.note.clone(),
            verdict: candidate.outcome,
            network: candidate.network,
            what,
            late: candidate.late,
            samples: candidate.samples,
            p99_9_ns: candidate.p99_9.as_nanos(),
        }
    }
}

impl Selection {
    /// Returns the best `wanted` of the rows.
    fn of(rows: &[Row], wanted: usize) -> Self {
        let candidates: Vec<_> = rows.iter().map(|row| row.candidate.clone()).collect();
        let is_good = |candidate: &&Candidate| candidate.verdict() == Outcome::Good;
        let chosen = select(&candidates, wanted).into_iter();
        Self {
            wanted,
            good: candidates.iter().filter(is_good).count(),
            found: Yield::of(&candidates),
            nodes: chosen
                .map(|(place, what)| Chosen::new(&rows[place], what))
                .collect(),
        }
    }

    fn text(&self, colour: bool) -> String {
        let Self { wanted, good, .. } = self;
        let paint = Paint(colour);
        let word = if good >= wanted {
            paint.good("ENOUGH")
        } else {
            paint.bad("SHORT")
        };
        let mut out = format!(
            "{word}  {good} of {} nodes are GOOD, {wanted} wanted\n\n",
            self.nodes.len()
        );
        let head = [
            "node", "use", "verdict", "network", "late", "sleeps", "99.9th", "file",
        ];
        let mut table = Table::new(&head, &[1, 2, 3, 7]);
        for node in &self.nodes {
            let what = match node.what {
                Use::Keep => "keep",
                Use::Spare => "spare",
                Use::Test => "test",
                Use::Drop => "drop",
            };
            table.row([
                node.node.as_str(),
                what,
                node.verdict.word(),
                node.network.map_or(NOTHING, Outcome::word),
                &node.late.to_string(),
                &node.samples.to_string(),
                &human(node.p99_9_ns as f64, "ns"),
                &node.file,
            ]);
        }
        out += &table.render(paint);
        if let Some(found) = &self.found {
            out += &found_text(found);
        }
        let test = self.nodes.iter().filter(|node| node.what == Use::Test);
        if test.clone().next().is_some() {
            // Writing to a String does not fail.
            let _ = writeln!(
                out,
                "\nnote  `tailbound probe network` may approve {} of use test",
                test.count()
            );
        }
        out
    }
}

/// Returns the estimate from nodes with both verdicts, as a note.
fn found_text(found: &Yield) -> String {
    let percent = |share: f64| format!("{:.0} %", 100.0 * share);
    let k = found.k.map_or_else(
        || "none of them was found".to_owned(),
        |k| format!("start {k:.1} for each to keep"),
    );
    format!(
        "\nnote  of {} nodes with both tests {} are good, of which the sleeps missed {}: {k}\n",
        found.nodes,
        percent(found.good),
        percent(found.missed)
    )
}

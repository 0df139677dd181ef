//! `tailbound select`: selection of the probed nodes to keep.

mod launch;

use super::output::{self, Output};
use crate::exit::{Exit, Failure, print_error};
use std::fmt::Write as _;
use std::path::PathBuf;
use tailbound_probe::NodeVerdict;
use tailbound_probe::run::results;
use tailbound_probe::select::{Row, Selection, Use, Yield};
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
            Output::Text => text(&selection, output::paint()),
        });
        Ok(Exit::holds(selection.good >= selection.wanted))
    }

    /// Returns the selection from existing results.
    fn read(&self) -> Result<Selection, Failure> {
        let nodes = results::read(&self.results).map_err(Failure::new)?;
        if let Some(warning) = results::twice(&nodes) {
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

fn text(selection: &Selection, paint: Paint) -> String {
    let Selection { wanted, good, .. } = selection;
    let word = if good >= wanted {
        paint.good("ENOUGH")
    } else {
        paint.bad("SHORT")
    };
    let mut out = format!(
        "{word}  {good} of {} nodes are GOOD, {wanted} wanted\n\n",
        selection.nodes.len()
    );
    let head = [
        "node", "use", "verdict", "network", "late", "sleeps", "99.9th", "file",
    ];
    let mut table = Table::new(&head, &[1, 2, 3, 7]);
    for node in &selection.nodes {
        let action = match node.what {
            Use::Keep => "keep",
            Use::Spare => "spare",
            Use::Test => "test",
            Use::Drop => "drop",
        };
        table.row([
            node.node.as_str(),
            action,
            node.verdict.word(),
            node.network.map_or(NOTHING, NodeVerdict::word),
            &node.late.to_string(),
            &node.samples.to_string(),
            &human(node.p99_9_ns as f64, "ns"),
            &node.file,
        ]);
    }
    out += &table.render(paint);
    if let Some(node_yield) = &selection.found {
        out += &found_text(node_yield);
    }
    let test = selection.nodes.iter().filter(|node| node.what == Use::Test);
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

/// Returns the estimate from nodes with both verdicts, as a note.
fn found_text(node_yield: &Yield) -> String {
    let percent = |share: f64| format!("{:.0} %", 100.0 * share);
    let k = node_yield.k.map_or_else(
        || "none of them was found".to_owned(),
        |k| format!("start {k:.1} for each to keep"),
    );
    format!(
        "\nnote  of {} nodes with both tests {} are good, of which the sleeps missed {}: {k}\n",
        node_yield.nodes,
        percent(node_yield.good),
        percent(node_yield.missed)
    )
}

//! Marks for this hypervisor, from nodes that the sleeps and the network test judged.

use super::document::SCHEMA;
use crate::command::output::{self, Output};
use crate::exit::{Exit, Failure};
use serde::Serialize;
use std::fmt::Write as _;
use std::path::PathBuf;
use tailbound_probe::NodeVerdict;
use tailbound_probe::calibrate::{JudgedNode, Marks, calibrate};
use tailbound_probe::run::results::{self, Node};

/// Number of nodes of a kind below which a warning is printed.
const MIN_NODES: usize = 10;

/// Arguments of `tailbound probe calibrate`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "First run `tailbound probe --exact --high-mark N --output json` on each \
    instance, with an N that is never reached, and `tailbound probe network --output json` \
    against all instances. Exit code: 0 there are marks with at most the share --wrong of \
    wrong verdicts; 1 there are none, and the best are shown; 2 the results are not usable."
)]
pub(super) struct Args {
    /// Results of probes, and of network tests of the same instances
    #[arg(required = true, value_name = "RESULT.json")]
    results: Vec<PathBuf>,
    /// The maximum share of wrong verdicts: bad instances called GOOD, and good ones called BAD
    #[arg(long, value_name = "SHARE", default_value_t = 0.1, value_parser = share)]
    wrong: f64,
    /// The output format
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

/// Parses a share.
fn share(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(share) if (0.0..1.0).contains(&share) => Ok(share),
        _ => Err("a share from 0 to less than 1".to_owned()),
    }
}

/// Result of the calibration.
#[derive(Debug, Serialize)]
struct Document {
    good: usize,
    bad: usize,
    /// Number of nodes whose late sleeps were counted until an early end and scaled.
    scaled: usize,
    #[serde(flatten)]
    marks: Marks,
}

impl Args {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let nodes = results::read(&self.results).map_err(Failure::new)?;
        let known: Vec<_> = nodes.iter().filter_map(known).collect::<Result<_, _>>()?;
        let marks = calibrate(&known, self.wrong).map_err(Failure::new)?;
        let good = known.iter().filter(|node| node.is_good).count();
        let document = Document {
            good,
            bad: known.len() - good,
            scaled: nodes.iter().filter(|node| is_scaled(node)).count(),
            marks,
        };
        output::print(&match self.output {
            Output::Json => output::json("probe-calibrate", SCHEMA, &document),
            Output::Text => document.text(),
        });
        Ok(Exit::holds(marks.wrong_good <= self.wrong))
    }
}

fn is_scaled(node: &Node) -> bool {
    node.part.is_some_and(|part| part < 1.0)
}

/// Returns the data of a node that the network test decided on.
fn known(node: &Node) -> Option<Result<JudgedNode, Failure>> {
    let is_good = match node.candidate.network? {
        NodeVerdict::Good => true,
        NodeVerdict::Bad => false,
        NodeVerdict::Unsure | NodeVerdict::Inconclusive => return None,
    };
    let known = node.part.filter(|part| *part > 0.0).map(|part| JudgedNode {
        late: (node.candidate.late as f64 / part).round() as u64,
        is_good,
    });
    Some(known.ok_or_else(|| {
        Failure::new(format!(
            "{}: the share of the run is missing: probe again with this version",
            node.file.display()
        ))
    }))
}

impl Document {
    fn text(&self) -> String {
        let percent = |share: f64| format!("{:.1} %", 100.0 * share);
        let Marks {
            low,
            high,
            wrong_good,
            missed,
            wrong_bad,
        } = self.marks;
        let mut out = format!(
            "--low-mark {low} --high-mark {high}\n\n\
            of {} bad nodes {} are called GOOD; of {} good ones the sleeps alone miss {}, and {} \
            are called BAD\n",
            self.bad,
            percent(wrong_good),
            self.good,
            percent(missed),
            percent(wrong_bad)
        );
        // Writing to a String does not fail.
        if self.good.min(self.bad) < MIN_NODES {
            let _ = writeln!(
                out,
                "note  fewer than {MIN_NODES} nodes of a kind are not representative"
            );
        }
        if self.scaled > 0 {
            let _ = writeln!(
                out,
                "note  {} runs ended early, and their late sleeps are scaled to a whole one: --exact",
                self.scaled
            );
        }
        out
    }
}

//! `tailbound select`: which of the probed nodes to keep.

use super::output::{self, Output};
use crate::exit::{Exit, Failure};
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use tailbound_probe::Outcome;
use tailbound_probe::select::{Candidate, Use, select};
use tailbound_report::{Paint, Table, human};
use tailbound_units::Nanos;

/// How many nodes are needed.
fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err("a whole number from 1".to_owned()),
        Ok(count) => Ok(count),
    }
}

/// Arguments of `tailbound select`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Best first: GOOD nodes with the smallest share of late sleeps. Exit code: \
    0 so many are GOOD; 1 fewer are; 2 a file is not a probe's result."
)]
pub(crate) struct Args {
    /// What `tailbound probe --output json` printed on each node
    #[arg(required = true, value_name = "RESULT.json")]
    results: Vec<PathBuf>,
    /// How many nodes are needed
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    keep: usize,
    /// What to print
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

/// The part of a probe's document that matters here.
#[derive(Debug, Deserialize)]
struct Document {
    schema: u32,
    kind: String,
    node: String,
    verdict: Outcome,
    cpus: Vec<Cpu>,
}

#[derive(Debug, Deserialize)]
struct Cpu {
    samples: u64,
    late: u64,
    sleep_ns: Times,
}

#[derive(Debug, Deserialize)]
struct Times {
    p99_9: u64,
}

/// What comes out.
#[derive(Debug, Serialize)]
struct Selection {
    schema: u32,
    wanted: usize,
    good: usize,
    nodes: Vec<Chosen>,
}

#[derive(Debug, Serialize)]
struct Chosen {
    node: String,
    file: PathBuf,
    verdict: Outcome,
    #[serde(rename = "use")]
    what: Use,
    late: u64,
    samples: u64,
    p99_9_ns: u64,
}

impl Args {
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        let read = |path: &PathBuf| {
            read(path).map_err(|why| Failure::new(format!("{}: {why}", path.display())))
        };
        let candidates: Vec<_> = self.results.iter().map(read).collect::<Result<_, _>>()?;
        let nodes = select(&candidates, self.keep).into_iter();
        let nodes: Vec<_> = nodes
            .map(|(place, what)| Chosen::new(&candidates[place], &self.results[place], what))
            .collect();
        let good = |node: &&Chosen| node.verdict == Outcome::Good;
        let selection = Selection {
            schema: 1,
            wanted: self.keep,
            good: nodes.iter().filter(good).count(),
            nodes,
        };
        output::print(&match self.output {
            Output::Json => output::json(&selection),
            Output::Text => selection.text(output::paint().0),
        });
        Ok(Exit::holds(selection.good >= selection.wanted))
    }
}

fn read(path: &Path) -> Result<Candidate, String> {
    let bytes = std::fs::read(path).map_err(|error| error.to_string())?;
    let document: Document = serde_json::from_slice(&bytes)
        .map_err(|error| format!("not the result of tailbound probe --output json: {error}"))?;
    if document.kind != "probe" {
        return Err(format!(
            "a result of kind {:?}, not \"probe\"",
            document.kind
        ));
    }
    if document.schema != 1 {
        return Err(format!(
            "schema {} is not 1: update tailbound",
            document.schema
        ));
    }
    let share = |cpu: &&Cpu| (u128::from(cpu.late) << 64) / u128::from(cpu.samples.max(1));
    let worst = document
        .cpus
        .iter()
        .max_by_key(share)
        .ok_or("it has no vCPU")?;
    Ok(Candidate {
        name: document.node,
        outcome: document.verdict,
        samples: worst.samples,
        late: worst.late,
        p99_9: Nanos(worst.sleep_ns.p99_9),
    })
}

impl Chosen {
    fn new(candidate: &Candidate, file: &Path, what: Use) -> Self {
        Self {
            node: candidate.name.clone(),
            file: file.into(),
            verdict: candidate.outcome,
            what,
            late: candidate.late,
            samples: candidate.samples,
            p99_9_ns: candidate.p99_9.as_nanos(),
        }
    }
}

impl Selection {
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
        let head = ["node", "use", "verdict", "late", "sleeps", "99.9th", "file"];
        let mut table = Table::new(&head, &[1, 2, 6]);
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
                &node.late.to_string(),
                &node.samples.to_string(),
                &human(node.p99_9_ns as f64, "ns"),
                &node.file.display().to_string(),
            ]);
        }
        out += &table.render(paint);
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

//! `tailbound probe workflows`: times of sequential and parallel calls, to random nodes and to
//! those that `tailbound select` keeps.

use super::document::{self, SCHEMA};
use super::network::{check, node};
use crate::command::output::{self, print};
use crate::exit::{Exit, Failure};
use serde::Serialize;
use std::path::PathBuf;
use std::time::SystemTime;
use tailbound_probe::network::RATES;
use tailbound_probe::run::comparison::{
    Among, Gain, GroupResult, LostNode, Settings, default_groups, gains,
};
use tailbound_probe::run::results;
use tailbound_probe::run::workflows::Pattern;
use tailbound_probe::workflow::FinishedWorkflow;
use tailbound_report::{NOTHING, Paint, Table, human};
use tailbound_units::Nanos;

/// Arguments of `tailbound probe workflows`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Sequential: ten requests to one random instance, one after the other, for 1, \
    2 or 4 KB each, at a tenth of the rate. Fan-out: one request for 2 KB to each instance of \
    a group in parallel; the slowest answer counts. Exit code: 0 all workflows were answered; \
    1 some were not; 2 the test could not run."
)]
pub(super) struct Args {
    /// Instances that run `tailbound probe serve`, as HOST:PORT
    #[arg(required = true, value_name = "NODE", value_parser = node)]
    nodes: Vec<String>,
    /// Also run the workflows on only those instances that `tailbound select --output json` kept,
    /// by this file
    #[arg(long, value_name = "FILE")]
    selected: Option<PathBuf>,
    /// The sizes of randomly chosen groups of instances [default: 10, 20 and 40 if there are enough
    /// instances, or all instances]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    groups: Vec<usize>,
    /// The rates of parallel workflows per second, tested one after the other; sequential workflows
    /// run at a tenth of each
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_values_t = RATES)]
    rates: Vec<u32>,
    /// The duration of each rate's test
    #[arg(long, value_name = "TIME", default_value = "60s")]
    duration: Nanos,
    /// Run only workflows of this kind
    #[arg(long, value_enum, value_name = "KIND")]
    only: Option<Kind>,
    /// The seed of all random times, instances and sizes
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// The output format
    #[arg(long, value_enum, default_value_t)]
    output: Form,
}

/// Output format.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
enum Form {
    /// Tables for people
    #[default]
    Text,
    /// One JSON document with a schema version
    Json,
    /// One JSON line for each answered workflow, then the document
    Jsonl,
}

/// Kind of a workflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Kind {
    /// Sequential: ten requests to one instance, one after the other
    Sequential,
    /// Parallel: one request to each instance of a group
    FanOut,
}

/// Result.
#[derive(Debug, Serialize)]
struct Document {
    /// Host name of this side.
    node: String,
    kernel: String,
    start_unix_s: f64,
    seed: u64,
    duration_ns: u64,
    runs: Vec<GroupResult>,
    gains: Vec<Gain>,
}

/// A line of `--output jsonl`: a workflow that was answered.
#[derive(Debug, Serialize)]
struct Line {
    among: Among,
    workflow: Pattern,
    group: usize,
    rate: f64,
    /// Due time on this side's `CLOCK_MONOTONIC`.
    due_ns: u64,
    time_ns: u64,
}

impl Args {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        check(&self.rates, self.duration)?;
        let kept_nodes = self.selected.as_ref();
        let kept_nodes = kept_nodes
            .map(|file| results::selected(file, &self.nodes))
            .transpose();
        let kept_nodes = kept_nodes.map_err(Failure::new)?;
        let sets: Vec<_> = [
            (Among::All, Some(self.nodes.clone())),
            (Among::Selected, kept_nodes),
        ]
        .into_iter()
        .filter_map(|(among, nodes)| Some((among, nodes?)))
        .collect();
        let groups = self.groups(&sets)?;
        let start = SystemTime::now();
        let mut runs = Vec::new();
        for &group in &groups {
            for &rate in &self.rates {
                for pattern in self.patterns() {
                    for (among, nodes) in &sets {
                        runs.push(self.measure((*among, nodes), group, pattern, rate)?);
                    }
                }
            }
        }
        output::progress(output::shows_progress(), "");
        let document = Document {
            node: document::node_name(),
            kernel: document::kernel(),
            start_unix_s: document::unix(start),
            seed: self.seed,
            duration_ns: self.duration.as_nanos(),
            gains: gains(&runs),
            runs,
        };
        match self.output {
            Form::Json => print(&output::json("probe-workflows", SCHEMA, &document)),
            Form::Jsonl => output::line("probe-workflows", SCHEMA, &document),
            Form::Text => print(&document.text(output::paint())),
        }
        let all = |run: &GroupResult| run.counts.answered() == run.counts.workflows;
        Ok(Exit::holds(document.runs.iter().all(all)))
    }

    /// Returns the kinds of workflows to run.
    fn patterns(&self) -> Vec<Pattern> {
        match self.only {
            Some(kind) => vec![kind.into()],
            None => vec![Pattern::Sequential, Pattern::FanOut],
        }
    }

    /// Returns the sizes of the groups.
    fn groups(&self, sets: &[(Among, Vec<String>)]) -> Result<Vec<usize>, Failure> {
        let fewest = sets.iter().map(|(_, nodes)| nodes.len()).min().unwrap_or(0);
        if fewest == 0 {
            return Err(Failure::new("the selection keeps no node: nothing to call"));
        }
        if let Some(wrong) = self
            .groups
            .iter()
            .find(|group| !(1..=fewest).contains(group))
        {
            return Err(Failure::wrong_arguments(format!(
                "a group of {wrong} nodes: 1 to {fewest} are there"
            )));
        }
        if !self.groups.is_empty() {
            return Ok(self.groups.clone());
        }
        Ok(default_groups(fewest))
    }

    fn measure(
        &self,
        set: (Among, &[String]),
        group: usize,
        pattern: Pattern,
        rate: u32,
    ) -> Result<GroupResult, Failure> {
        let label = format!("{}, {group} nodes, {rate} calls a second", pattern.word());
        output::progress(output::shows_progress(), &label);
        let settings = Settings {
            duration: self.duration,
            seed: self.seed,
        };
        let failed = |error| Failure::new(format!("waiting for answers: {error}"));
        let measured = settings.measure(set, group, pattern, rate);
        let (result, answered) = measured.map_err(failed)?;
        // Not during the run: writing would delay it.
        for FinishedWorkflow { due, took } in
            answered.into_iter().filter(|_| self.output == Form::Jsonl)
        {
            let line = Line {
                among: result.among,
                workflow: result.workflow,
                group,
                rate: result.rate,
                due_ns: due.as_nanos(),
                time_ns: took.as_nanos(),
            };
            output::line("workflow", SCHEMA, &line);
        }
        Ok(result)
    }
}

impl From<Kind> for Pattern {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Sequential => Self::Sequential,
            Kind::FanOut => Self::FanOut,
        }
    }
}

impl Document {
    fn text(&self, paint: Paint) -> String {
        let mut out = self.runs_table().render(paint);
        if !self.gains.is_empty() {
            out.push('\n');
            out += &self.gains_table().render(paint);
        }
        let mut notes: Vec<String> = self.runs.iter().flat_map(notes).collect();
        notes.sort_unstable();
        notes.dedup();
        if !notes.is_empty() {
            out.push('\n');
        }
        out + &notes.concat()
    }

    fn runs_table(&self) -> Table {
        let head = [
            "workflow",
            "group",
            "among",
            "rate",
            "begun",
            "timed out",
            "lost",
            "ours",
            "50th",
            "99th",
            "99.9th",
            "max",
        ];
        let mut table = Table::new(&head, &[0, 2]);
        let time = |nanos: Option<u64>| {
            nanos.map_or_else(|| NOTHING.into(), |nanos| human(nanos as f64, "ns"))
        };
        for run in &self.runs {
            let (counts, times) = (&run.counts, &run.time_ns);
            table.row([
                run.workflow.word().to_owned(),
                run.nodes.len().to_string(),
                match run.among {
                    Among::All => "all".into(),
                    Among::Selected => "selected".into(),
                },
                format!("{}/s", run.rate),
                counts.workflows.to_string(),
                counts.timed_out.to_string(),
                counts.lost.to_string(),
                counts.ours.to_string(),
                time(times.p50),
                time(times.p99),
                time(times.p99_9),
                time(times.max),
            ]);
        }
        table
    }

    fn gains_table(&self) -> Table {
        let head = [
            "shorter by the selection",
            "group",
            "rate",
            "99th",
            "99.9th",
        ];
        let mut table = Table::new(&head, &[0]);
        let percent =
            |part: Option<f64>| part.map_or_else(|| NOTHING.into(), |part| format!("{part:.0} %"));
        for gain in &self.gains {
            table.row([
                gain.workflow.word().to_owned(),
                gain.group.to_string(),
                format!("{}/s", gain.rate),
                percent(gain.p99_percent),
                percent(gain.p99_9_percent),
            ]);
        }
        table
    }
}

/// Returns the reasons for which nodes were given up.
fn notes(run: &GroupResult) -> impl Iterator<Item = String> {
    let note = |it: &LostNode| format!("note  {}: {}\n", it.node, it.reason);
    run.given_up.iter().map(note)
}

//! `tailbound probe workflows`: times of sequential and parallel calls, to random nodes and to
//! those that `tailbound select` keeps.

use super::document::{self, SCHEMA};
use super::network::{check, node};
use crate::command::output::{self, print};
use crate::command::results;
use crate::exit::{Exit, Failure};
use hdrhistogram::Histogram;
use serde::Serialize;
use std::path::PathBuf;
use std::time::SystemTime;
use tailbound_probe::network::RATES;
use tailbound_probe::run::workflows::{Load, Outcome, Pattern, draw, run};
use tailbound_probe::workflow::{Answered, CALLS, Counts, GROUPS};
use tailbound_report::{NOTHING, Paint, Statistic, Stats, Table, empty_histogram, human, one_line};
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
enum Kind {
    /// Sequential: ten requests to one instance, one after the other
    Sequential,
    /// Parallel: one request to each instance of a group
    FanOut,
}

/// Set of nodes from which a group is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Among {
    All,
    Selected,
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
    runs: Vec<RunDocument>,
    gains: Vec<Gain>,
}

/// Workflows of one kind, to one group, at one rate.
#[derive(Debug, Serialize)]
struct RunDocument {
    among: Among,
    workflow: Kind,
    /// Workflows per second.
    rate: f64,
    nodes: Vec<String>,
    #[serde(flatten)]
    counts: Counts,
    time_ns: Times,
    /// Times of the answered workflows: V2 `HdrHistogram`, deflated, in base64.
    hdr: String,
    given_up: Vec<GivenUp>,
}

/// Percentiles of all workflows, each if there are enough workflows for it: a workflow without an
/// answer counts as longer than all others.
#[derive(Debug, Clone, Copy, Serialize)]
struct Times {
    p50: Option<u64>,
    p90: Option<u64>,
    p99: Option<u64>,
    p99_9: Option<u64>,
    max: Option<u64>,
}

/// A node with a wrong or missing answer.
#[derive(Debug, Serialize)]
struct GivenUp {
    node: String,
    reason: String,
}

/// A line of `--output jsonl`: a workflow that was answered.
#[derive(Debug, Serialize)]
struct Line {
    among: Among,
    workflow: Kind,
    group: usize,
    rate: f64,
    /// Due time on this side's `CLOCK_MONOTONIC`.
    due_ns: u64,
    time_ns: u64,
}

/// Benefit of the selection: percentage by which times are shorter than among all.
#[derive(Debug, Serialize)]
struct Gain {
    workflow: Kind,
    group: usize,
    rate: f64,
    p99_percent: Option<f64>,
    p99_9_percent: Option<f64>,
}

impl Args {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        check(&self.rates, self.duration)?;
        let kept = self.selected.as_ref();
        let kept = kept
            .map(|file| results::selected(file, &self.nodes))
            .transpose();
        let kept = kept.map_err(Failure::new)?;
        let sets: Vec<_> = [
            (Among::All, Some(self.nodes.clone())),
            (Among::Selected, kept),
        ]
        .into_iter()
        .filter_map(|(among, nodes)| Some((among, nodes?)))
        .collect();
        let groups = self.groups(&sets)?;
        let start = SystemTime::now();
        let mut runs = Vec::new();
        for &group in &groups {
            for &rate in &self.rates {
                for kind in self.kinds() {
                    for (among, nodes) in &sets {
                        let nodes = draw(nodes, group, self.seed);
                        runs.push(self.measure(*among, nodes, kind, rate)?);
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
        let all = |run: &RunDocument| run.counts.answered() == run.counts.workflows;
        Ok(Exit::holds(document.runs.iter().all(all)))
    }

    /// Returns the kinds of workflows to run.
    fn kinds(&self) -> impl Iterator<Item = Kind> + use<> {
        let only = self.only;
        let all = [Kind::Sequential, Kind::FanOut].into_iter();
        all.filter(move |kind| only.is_none_or(|only| only == *kind))
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
        let mut groups = GROUPS.to_vec();
        groups.retain(|group| *group <= fewest);
        if groups.is_empty() {
            groups.push(fewest);
        }
        Ok(groups)
    }

    fn measure(
        &self,
        among: Among,
        nodes: Vec<String>,
        kind: Kind,
        rate: u32,
    ) -> Result<RunDocument, Failure> {
        let (pattern, calls) = match kind {
            Kind::Sequential => (Pattern::Sequential, CALLS as u32),
            Kind::FanOut => (Pattern::FanOut, 1),
        };
        let group = nodes.len();
        let what = format!("{}, {group} nodes, {rate} calls a second", kind.word());
        output::progress(output::shows_progress(), &what);
        let load = Load {
            pattern,
            mean_gap: Nanos(1_000_000_000 * u64::from(calls) / u64::from(rate)),
            duration: self.duration,
            // Different rates and patterns must not be in step.
            seed: self.seed ^ u64::from(rate) << 16 ^ u64::from(calls),
        };
        let failed = |error| Failure::new(format!("waiting for answers: {error}"));
        let (mut times, mut answered) = (empty_histogram(), Vec::new());
        let mut record = |it: Answered| {
            times.saturating_record(it.took.as_nanos());
            answered.push(it);
        };
        let outcome = run(&nodes, load, &mut record).map_err(failed)?;
        let Outcome { counts, given_up } = outcome;
        let rate = f64::from(rate) / f64::from(calls);
        // Not during the run: writing would delay it.
        for Answered { due, took } in answered.into_iter().filter(|_| self.output == Form::Jsonl) {
            let line = Line {
                among,
                workflow: kind,
                group,
                rate,
                due_ns: due.as_nanos(),
                time_ns: took.as_nanos(),
            };
            output::line("workflow", SCHEMA, &line);
        }
        let given_up = given_up.into_iter().map(|(place, fault)| GivenUp {
            node: nodes[place].clone(),
            reason: one_line(&fault.to_string()),
        });
        Ok(RunDocument {
            among,
            workflow: kind,
            rate,
            counts,
            time_ns: Times::of(&times, counts.workflows),
            hdr: Stats::from_histogram(&times).hdr,
            given_up: given_up.collect(),
            nodes,
        })
    }
}

impl Kind {
    const fn word(self) -> &'static str {
        match self {
            Self::Sequential => "sequential",
            Self::FanOut => "fan-out",
        }
    }
}

impl Times {
    /// Returns the percentiles of `workflows` workflows, of which those in `answered` were
    /// answered.
    fn of(answered: &Histogram<u64>, workflows: u64) -> Self {
        let at = |statistic: Statistic, part: f64| {
            let rank = (workflows as f64 * part).ceil() as u64;
            let is_there = statistic.is_carried_by(workflows) && rank <= answered.len();
            is_there.then(|| answered.value_at_quantile(rank as f64 / answered.len() as f64))
        };
        Self {
            p50: at(Statistic::P50, 0.5),
            p90: at(Statistic::P90, 0.9),
            p99: at(Statistic::P99, 0.99),
            p99_9: at(Statistic::P999, 0.999),
            max: at(Statistic::Max, 1.0),
        }
    }
}

/// Returns the benefit of the selection, from runs that differ only in it.
fn gains(runs: &[RunDocument]) -> Vec<Gain> {
    let pairs = runs.windows(2).filter_map(|pair| match pair {
        [all, kept] if kept.among == Among::Selected => Some((all, kept)),
        _ => None,
    });
    let less = |all: Option<u64>, kept: Option<u64>| {
        Some(100.0 * (1.0 - kept? as f64 / all?.max(1) as f64))
    };
    let gain = |(all, kept): (&RunDocument, &RunDocument)| Gain {
        workflow: kept.workflow,
        group: kept.nodes.len(),
        rate: kept.rate,
        p99_percent: less(all.time_ns.p99, kept.time_ns.p99),
        p99_9_percent: less(all.time_ns.p99_9, kept.time_ns.p99_9),
    };
    pairs.map(gain).collect()
}

impl Document {
    fn text(&self, paint: Paint) -> String {
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
        let mut out = table.render(paint);
        if !self.gains.is_empty() {
            out.push('\n');
            let head = [
                "shorter by the selection",
                "group",
                "rate",
                "99th",
                "99.9th",
            ];
            let mut table = Table::new(&head, &[0]);
            let percent = |part: Option<f64>| {
                part.map_or_else(|| NOTHING.into(), |part| format!("{part:.0} %"))
            };
            for gain in &self.gains {
                table.row([
                    gain.workflow.word().to_owned(),
                    gain.group.to_string(),
                    format!("{}/s", gain.rate),
                    percent(gain.p99_percent),
                    percent(gain.p99_9_percent),
                ]);
            }
            out += &table.render(paint);
        }
        let mut notes: Vec<String> = self.runs.iter().flat_map(notes).collect();
        notes.sort_unstable();
        notes.dedup();
        if !notes.is_empty() {
            out.push('\n');
        }
        out + &notes.concat()
    }
}

/// Returns the reasons for which nodes were given up.
fn notes(run: &RunDocument) -> impl Iterator<Item = String> {
    let note = |it: &GivenUp| format!("note  {}: {}\n", it.node, it.reason);
    run.given_up.iter().map(note)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(answered: u64, workflows: u64) -> Times {
        let mut histogram = empty_histogram();
        (1..=answered).for_each(|time| histogram.saturating_record(time));
        Times::of(&histogram, workflows)
    }

    #[test]
    fn percentiles_are_those_that_so_many_workflows_carry() {
        let few = times(99, 99);
        assert_eq!((few.p50, few.p99, few.max), (Some(50), None, Some(99)));
        let more = times(999, 999);
        assert_eq!((more.p99, more.p99_9), (Some(990), None));
        let enough = times(1000, 1000);
        assert_eq!((enough.p99, enough.p99_9), (Some(990), Some(999)));
        assert_eq!(times(0, 0).max, None);
    }

    #[test]
    fn what_has_no_answer_is_longer_than_all_else() {
        let lost = times(985, 1000);
        assert_eq!((lost.p90, lost.p99, lost.max), (Some(900), None, None));
    }
}

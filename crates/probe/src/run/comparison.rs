//! Workflows among all nodes, and among those that a selection keeps.

use super::workflows::{Load, LoadResult, Pattern, draw, run};
use crate::workflow::{Counts, FinishedWorkflow, GROUPS};
use hdrhistogram::Histogram;
use serde::Serialize;
use std::io;
use tailbound_report::{Statistic, Stats, empty_histogram, one_line};
use tailbound_units::Nanos;

/// Set of nodes from which a group is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Among {
    /// All nodes.
    All,
    /// Nodes that the selection keeps.
    Selected,
}

/// Settings of a measurement, for all groups.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Time in which workflows are begun.
    pub duration: Nanos,
    /// Seed of all random times, nodes and sizes.
    pub seed: u64,
}

/// Workflows of one kind, to one group, at one rate.
#[derive(Debug, Serialize)]
pub struct GroupResult {
    /// The set of the group's nodes.
    pub among: Among,
    /// The kind of workflow.
    pub workflow: Pattern,
    /// Workflows per second.
    pub rate: f64,
    /// The nodes of the group.
    pub nodes: Vec<String>,
    /// Counts of workflows.
    #[serde(flatten)]
    pub counts: Counts,
    /// Times of the workflows.
    pub time_ns: Times,
    /// Times of the answered workflows: V2 `HdrHistogram`, deflated, in base64.
    pub hdr: String,
    /// Nodes that were given up.
    pub given_up: Vec<LostNode>,
}

/// Percentiles of all workflows, each if there are enough workflows for it: a workflow without an
/// answer counts as longer than all others.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Times {
    /// The median.
    pub p50: Option<u64>,
    /// The 90th percentile.
    pub p90: Option<u64>,
    /// The 99th percentile.
    pub p99: Option<u64>,
    /// The 99.9th percentile.
    pub p99_9: Option<u64>,
    /// The longest time.
    pub max: Option<u64>,
}

/// A node with a wrong or missing answer.
#[derive(Debug, Serialize)]
pub struct LostNode {
    /// The node.
    pub node: String,
    /// The reason for which it was given up.
    pub reason: String,
}

/// Benefit of the selection: percentage by which times are shorter than among all.
#[derive(Debug, Serialize)]
pub struct Gain {
    /// The kind of workflow.
    pub workflow: Pattern,
    /// Number of nodes of the group.
    pub group: usize,
    /// Workflows per second.
    pub rate: f64,
    /// At the 99th percentile.
    pub p99_percent: Option<f64>,
    /// At the 99.9th percentile.
    pub p99_9_percent: Option<f64>,
}

/// Returns the sizes of groups in the paper that `fewest` nodes suffice for; if they suffice for
/// none, one group of all.
pub fn default_groups(fewest: usize) -> Vec<usize> {
    let mut groups = GROUPS.to_vec();
    groups.retain(|group| *group <= fewest);
    if groups.is_empty() {
        groups.push(fewest);
    }
    groups
}

impl Settings {
    /// Runs workflows to `group` nodes of a set. `rate` is the number of calls a second. Returns the
    /// answered workflows, too.
    ///
    /// # Errors
    /// The kernel refuses to poll the connections.
    pub fn measure(
        self,
        (among, nodes): (Among, &[String]),
        group: usize,
        pattern: Pattern,
        rate: u32,
    ) -> io::Result<(GroupResult, Vec<FinishedWorkflow>)> {
        let nodes = draw(nodes, group, self.seed);
        let calls = pattern.calls();
        let load = Load {
            pattern,
            mean_gap: Nanos(1_000_000_000 * u64::from(calls) / u64::from(rate)),
            duration: self.duration,
            // Different rates and patterns must not be in step.
            seed: self.seed ^ u64::from(rate) << 16 ^ u64::from(calls),
        };
        let (mut times, mut answered) = (empty_histogram(), Vec::new());
        let mut record = |it: FinishedWorkflow| {
            times.saturating_record(it.took.as_nanos());
            answered.push(it);
        };
        let LoadResult { counts, given_up } = run(&nodes, load, &mut record)?;
        let given_up = given_up.into_iter().map(|(place, fault)| LostNode {
            node: nodes[place].clone(),
            reason: one_line(&fault.to_string()),
        });
        let result = GroupResult {
            among,
            workflow: pattern,
            rate: f64::from(rate) / f64::from(calls),
            counts,
            time_ns: Times::of(&times, counts.workflows),
            hdr: Stats::from_histogram(&times).hdr,
            given_up: given_up.collect(),
            nodes,
        };
        Ok((result, answered))
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

/// Returns the benefit of the selection, from neighbouring results that differ only in it.
pub fn gains(results: &[GroupResult]) -> Vec<Gain> {
    let pairs = results.windows(2).filter_map(|pair| match pair {
        [all, kept] if kept.among == Among::Selected => Some((all, kept)),
        _ => None,
    });
    let less = |all: Option<u64>, kept: Option<u64>| {
        Some(100.0 * (1.0 - kept? as f64 / all?.max(1) as f64))
    };
    let gain = |(all, kept): (&GroupResult, &GroupResult)| Gain {
        workflow: kept.workflow,
        group: kept.nodes.len(),
        rate: kept.rate,
        p99_percent: less(all.time_ns.p99, kept.time_ns.p99),
        p99_9_percent: less(all.time_ns.p99_9, kept.time_ns.p99_9),
    };
    pairs.map(gain).collect()
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
    fn percentiles_of_workflows_require_enough_samples() {
        let few = times(99, 99);
        assert_eq!((few.p50, few.p99, few.max), (Some(50), None, Some(99)));
        let more = times(999, 999);
        assert_eq!((more.p99, more.p99_9), (Some(990), None));
        let enough = times(1000, 1000);
        assert_eq!((enough.p99, enough.p99_9), (Some(990), Some(999)));
        assert_eq!(times(0, 0).max, None);
    }

    #[test]
    fn unanswered_calls_count_as_the_longest_times() {
        let lost = times(985, 1000);
        assert_eq!((lost.p90, lost.p99, lost.max), (Some(900), None, None));
    }
}

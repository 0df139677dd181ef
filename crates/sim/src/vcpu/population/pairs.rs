//! Attribution of long tails between nodes to their ends (Bobtail, figure 2): each node calls each
//! other one, and both ends wait for their CPUs.
//!
//! Read [`Pairs::call`] first. A call is sent when the caller has a CPU, is answered when the other
//! node has one, and is complete when the caller has read the answer. As in the paper (section 2.2)
//! calls are synchronous, and the clock is the caller's own.

use super::node::{Node, ProbedNode, TESTED, Test};
use super::{Population, WARMUP};
use crate::distribution::{exponential, percentile, sorted};
use crate::scheduler::AnyScheduler;
use crate::{Threads, parallel};
use rand::SeedableRng as _;
use rand_pcg::Pcg64Mcg;
use serde::Deserialize;
use tailbound_experiment::{ExperimentError, Run, Section};
use tailbound_hypervisor::{Simulation, Wake};
use tailbound_probe::NodeVerdict;
use tailbound_probe::network::{Calls, LATE_CALL, judge};
use tailbound_probe::pairs::{Owner, owners};
use tailbound_report::{Chart, ChartAxis, Line, LineStyle, Variant};
use tailbound_units::Nanos;

/// Calls between all pairs of nodes.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pairs {
    /// Round trip of a call on the wire and in the stacks.
    pub wire: Nanos,
    /// The caller's CPU time to send a call, and to read the answer.
    pub work: Nanos,
    /// Mean time from an answer to the next call.
    pub pause: Nanos,
    /// Duration of a pair's calls.
    pub time: Nanos,
}

/// Longest wait of a guest for a CPU.
const MAX_CPU_WAIT: Nanos = Nanos::from_secs(100);

/// Measurement of one node by another.
struct PairMeasurement {
    outcome: NodeVerdict,
    /// The 99.9th percentile, in nanoseconds.
    p99_9: f64,
}

/// Measurements of each node by a caller: `found[caller][answers]`; `None` on the diagonal.
type Row = Vec<Option<PairMeasurement>>;

impl Pairs {
    pub(super) fn check(&self, section: &mut Section<'_>, nodes: u32) {
        section.range("wire", self.wire, Nanos::from_micros(2)..=LATE_CALL);
        section.range("work", self.work, Nanos(1)..=LATE_CALL);
        let pauses = Nanos::from_micros(100)..=Nanos::from_secs(1);
        section.range("pause", self.pause, pauses);
        let times = Nanos::from_secs(1)..=Nanos::from_secs(1_000_000);
        section.range("time", self.time, times);
        if !(2..=64).contains(&nodes) {
            section.at("time", "pairs: choose 2 to 64 nodes");
        }
    }

    /// Returns the variant with the names of all values.
    pub(super) fn outline() -> Variant {
        variant(&[], &[])
    }

    /// Runs the calls of each node to each.
    pub(super) fn run(
        &self,
        population: &Population,
        judged: &[ProbedNode],
        run: &mut Run<'_, Threads>,
    ) -> Result<(Variant, Chart), ExperimentError> {
        let seed = run.seed;
        let nodes = population.population.nodes;
        let pairs: Vec<(u32, u32)> = (0..nodes)
            .flat_map(|caller| (0..nodes).map(move |answers| (caller, answers)))
            .filter(|(caller, answers)| caller != answers)
            .collect();
        let name = |(caller, answers): &(u32, u32)| format!("node {caller} to {answers}");
        let one = |&(caller, answers): &(u32, u32)| {
            let node = |index| Node::draw(population, index, seed);
            self.find(population, &[node(caller), node(answers)])
        };
        let found = parallel::map(run, &pairs, name, one)?;
        let mut matrix: Vec<Row> = Vec::new();
        matrix.resize_with(nodes as usize, || {
            (0..nodes).map(|_| None).collect::<Vec<_>>()
        });
        for ((caller, answers), found) in pairs.into_iter().zip(found) {
            matrix[caller as usize][answers as usize] = Some(found);
        }
        Ok((variant(&matrix, judged), chart(&matrix)))
    }

    fn find(&self, population: &Population, nodes: &[Node; 2]) -> Result<PairMeasurement, String> {
        let mut took = self.call(population, nodes)?;
        took.sort_unstable();
        let calls = Calls {
            calls: took.len() as u64,
            late: took.iter().filter(|took| **took >= LATE_CALL).count() as u64,
            ..Calls::default()
        };
        let place = took.len() * 999 / 1000;
        let p99_9 = took.get(place).ok_or("no call came back")?;
        let rate = (1_000_000_000 / self.pause.0) as u32;
        Ok(PairMeasurement {
            outcome: judge(&[(rate, calls)]).0,
            p99_9: p99_9.0 as f64,
        })
    }

    /// Returns the times of calls from the first to the second. Only one call is in flight, so the
    /// two nodes interact nowhere else, and each runs by itself until its turn.
    fn call(&self, population: &Population, nodes: &[Node; 2]) -> Result<Vec<Nanos>, String> {
        let [from, to] = nodes;
        // A seed of both, so that no two pairs are in step.
        let mut random = Pcg64Mcg::seed_from_u64(from.seed ^ to.seed.rotate_left(17));
        let mut caller = from.prepare(population, Test::Asked, to.seed)?;
        let mut answers = to.prepare(population, Test::Asked, from.seed)?;
        let nodes = &population.population;
        let half = Nanos(self.wire.0 / 2);
        let end = WARMUP.saturating_add(self.time);
        let (mut due, mut took) = (WARMUP, Vec::new());
        loop {
            let pause = Nanos(exponential(&mut random, self.pause.0 as f64) as u64);
            due = due.saturating_add(pause.max(nodes.timer_slop));
            if due > end {
                return Ok(took);
            }
            let sent = done(&mut caller, due, self.work, Wake::Timer)?;
            let there = sent.saturating_add(half);
            let answered = done(&mut answers, there, nodes.service, Wake::Event)?;
            let back = answered.saturating_add(half);
            let read = done(&mut caller, back, self.work, Wake::Event)?;
            // The caller's clock starts when it has the CPU.
            took.push(read.since(sent));
            due = read;
        }
    }
}

/// Returns the time at which the tested guest has completed work that arrives at `at`.
fn done(
    host: &mut Simulation<AnyScheduler>,
    at: Nanos,
    work: Nanos,
    cause: Wake,
) -> Result<Nanos, String> {
    host.run(at, &mut |_| {});
    host.ask(TESTED, at, work, cause);
    let (mut done, mut now) = (None, at);
    while done.is_none() {
        now = host.poll_at().max(now);
        if now > at.saturating_add(MAX_CPU_WAIT) {
            return Err(format!("nothing was done from {at} on for {MAX_CPU_WAIT}"));
        }
        host.run(now, &mut |sample| {
            if sample.vcpu == TESTED {
                done = Some(sample.at);
            }
        });
    }
    Ok(done.unwrap_or(now))
}

/// Returns the pairs by their measurements, and the part of late pairs that each end explains.
fn variant(matrix: &[Row], judged: &[ProbedNode]) -> Variant {
    let found: Vec<Vec<Option<NodeVerdict>>> = matrix
        .iter()
        .map(|row| {
            row.iter()
                .map(|it| it.as_ref().map(|it| it.outcome))
                .collect()
        })
        .collect();
    let owners = owners(&found);
    let is_dark = |node: usize| owners.contains(&Owner::Answers(node));
    let is_bad = |caller: usize, node: usize| found[caller][node] == Some(NodeVerdict::Bad);
    let nodes = matrix.len();
    let all = || (0..nodes).flat_map(move |caller| (0..nodes).map(move |node| (caller, node)));
    let bad = || all().filter(|&(caller, node)| is_bad(caller, node));
    let columns = || (0..nodes).filter(|node| is_dark(*node));
    let rows = owners.iter().filter(|it| matches!(it, Owner::Calls(_)));
    let alike = (0..nodes)
        .zip(judged)
        .filter(|(node, judged)| is_dark(*node) == judged.is_bad());
    let one_way = bad().filter(|&(caller, node)| !is_bad(node, caller));
    let pairs = nodes * nodes.saturating_sub(1);
    let by = Parts::of(matrix);
    let part = |name, part: f64, of: f64| (name, 100.0 * part / of.max(1.0), "%");
    let count = |it: usize| it as f64;
    Variant::of_values(
        "pairs",
        [
            part("bad_pairs", count(bad().count()), count(pairs)),
            part("dark_columns", count(columns().count()), count(nodes)),
            part("dark_rows", count(rows.count()), count(nodes)),
            part(
                "in_dark_columns",
                count(bad().filter(|(_, node)| is_dark(*node)).count()),
                count(bad().count()),
            ),
            part("bad_one_way", count(one_way.count()), count(bad().count())),
            part("as_the_network_test", count(alike.count()), count(nodes)),
            part("by_who_answers", by.answers, by.all),
            part("by_who_calls", by.calls, by.all),
            ("answers_to_calls", by.answers / by.calls, ""),
            ("dark_to_light", by.dark_to_light(&is_dark), ""),
        ],
    )
}

/// Variance of the pairs' 99.9th percentiles, on a logarithmic scale: squares.
#[derive(Debug, Default)]
struct Parts {
    /// Part between answering nodes.
    answers: f64,
    /// Part between calling nodes.
    calls: f64,
    /// The whole variance.
    all: f64,
    /// Mean of each answering node.
    columns: Vec<f64>,
}

impl Parts {
    fn of(matrix: &[Row]) -> Self {
        let log = |found: &Option<PairMeasurement>| found.as_ref().map(|found| found.p99_9.ln());
        let mean = |of: &[f64]| of.iter().sum::<f64>() / of.len().max(1) as f64;
        let row = |at: usize| -> Vec<f64> { matrix[at].iter().filter_map(log).collect() };
        let column =
            |at: usize| -> Vec<f64> { matrix.iter().filter_map(|row| log(&row[at])).collect() };
        let whole: Vec<f64> = (0..matrix.len()).flat_map(row).collect();
        let middle = mean(&whole);
        let columns: Vec<f64> = (0..matrix.len()).map(|at| mean(&column(at))).collect();
        let squares = |of: &[f64]| of.iter().map(|it| (it - middle).powi(2)).sum::<f64>();
        let rows: Vec<f64> = (0..matrix.len()).map(|at| mean(&row(at))).collect();
        let each = matrix.len().saturating_sub(1) as f64;
        Self {
            answers: each * squares(&columns),
            calls: each * squares(&rows),
            all: squares(&whole),
            columns,
        }
    }

    /// Ratio of dark columns to light ones, by their means.
    fn dark_to_light(&self, is_dark: &dyn Fn(usize) -> bool) -> f64 {
        let mean = |dark: bool| {
            let those = (0..)
                .zip(&self.columns)
                .filter(|(at, _)| is_dark(*at) == dark);
            let those: Vec<f64> = those.map(|(_, it)| *it).collect();
            those.iter().sum::<f64>() / those.len() as f64
        };
        (mean(true) - mean(false)).exp()
    }
}

/// Chart of the measurements by each node's callers, and by each node as a caller.
fn chart(matrix: &[Row]) -> Chart {
    let column = |at: usize| {
        sorted(
            matrix
                .iter()
                .filter_map(|row| row[at].as_ref())
                .map(|it| it.p99_9),
        )
    };
    let row = |at: usize| sorted(matrix[at].iter().flatten().map(|it| it.p99_9));
    let nodes = 0..matrix.len();
    let number = |at: usize| at as f64 + 1.0;
    let line = |name: &str, percent: f64, of: &dyn Fn(usize) -> Vec<f64>| {
        let points = nodes
            .clone()
            .map(|at| (number(at), percentile(&of(at), percent)));
        Line::new(name, LineStyle::Measured, points)
    };
    let last = number(matrix.len().saturating_sub(1));
    let bad = [1.0, last].map(|at| (at, LATE_CALL.0 as f64));
    Chart {
        name: "figure_2".to_owned(),
        title:
            "99.9th percentile of calls between nodes, by the one that answers and the one that \
                calls"
                .to_owned(),
        x: ChartAxis::linear("node", ""),
        y: ChartAxis::log("99.9th percentile", "ns"),
        lines: vec![
            line("it answers: its slowest caller", 100.0, &column),
            line("it answers: its median caller", 50.0, &column),
            line("it answers: its fastest caller", 0.0, &column),
            line("it calls: the median answer", 50.0, &row),
            Line::new("bad node", LineStyle::Bound, bad),
        ],
        note: Some(
            "A column of the paper's heat map is a node that answers: where all its callers lie \
             together the tail is that node's. A row is one that calls."
                .to_owned(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vcpu::VcpuExperiment;
    use tailbound_experiment::{Experiment as _, Loaded};

    /// Returns pairs with these 99.9th percentiles in milliseconds; 0 on the diagonal.
    fn matrix<const N: usize>(rows: [[u64; N]; N]) -> Vec<Row> {
        let found = |ms: u64| {
            (ms > 0).then_some(PairMeasurement {
                outcome: if ms < 10 {
                    NodeVerdict::Good
                } else {
                    NodeVerdict::Bad
                },
                p99_9: ms as f64 * 1e6,
            })
        };
        rows.map(|row| row.map(found).into()).into()
    }

    fn values(matrix: &[Row]) -> [i64; 5] {
        let variant = variant(matrix, &[]);
        let names = [
            "dark_columns",
            "dark_rows",
            "bad_one_way",
            "by_who_answers",
            "by_who_calls",
        ];
        names.map(|name| variant.values[name].value.round() as i64)
    }

    #[test]
    fn a_dark_column_is_the_node_that_answers_and_a_dark_row_the_one_that_calls() {
        let column = matrix([[0, 1, 1, 20], [1, 0, 1, 20], [1, 1, 0, 20], [1, 1, 1, 0]]);
        assert_eq!(values(&column), [25, 0, 100, 100, 11]);
        let row = matrix([[0, 1, 1, 1], [1, 0, 1, 1], [1, 1, 0, 1], [20, 20, 20, 0]]);
        assert_eq!(values(&row), [0, 25, 100, 11, 100]);
        let both = matrix([[0, 1, 1, 20], [1, 0, 1, 20], [1, 1, 0, 20], [20, 20, 20, 0]]);
        assert_eq!(values(&both)[..3], [25, 25, 0]);
        let times = variant(&column, &[]).values["dark_to_light"].value;
        assert!((times - 20.0).abs() < 1e-9, "{times}");
    }

    #[test]
    fn a_call_between_idle_nodes_takes_the_wire_and_the_work_at_both_ends() {
        let source = VcpuExperiment::CATALOGUE.source("bobtail-fig2").unwrap();
        let loaded = Loaded::<VcpuExperiment>::parse(&source).unwrap();
        let VcpuExperiment::Population(mut population) = loaded.experiment else {
            panic!("it is a population");
        };
        population.population.neighbours = (0, 0);
        let pairs = population.pairs.clone().unwrap();
        let node = |index| Node::draw(&population, index, 1);
        let took = pairs.call(&population, &[node(0), node(1)]).unwrap();
        assert!(took.len() > 5000, "{}", took.len());
        let wanted = Nanos::from_micros(550 + 20 + 50);
        assert_eq!(took.iter().max(), Some(&wanted));
        assert_eq!(took.iter().min(), Some(&wanted));
    }
}

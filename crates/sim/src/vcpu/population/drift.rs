//! Nodes over weeks (Bobtail, figure 3): neighbours are replaced by others, and a probe each hour
//! judges each node, as `tailbound probe watch --coarse` does.
//!
//! Read [`Drift::watch`] first. Between two changes of its neighbours a node is simulated by a
//! fixed number of the probe's runs ([`Drift::runs`]), which represent its other hours in turn.

use super::node::{Node, neighbour};
use super::{Population, Rules};
use crate::distribution::exponential;
use crate::{Threads, parallel};
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use serde::Deserialize;
use std::collections::BTreeMap;
use tailbound_experiment::{ExperimentError, Section};
use tailbound_probe::NodeVerdict;
use tailbound_probe::history::{History, Run, Stretch};
use tailbound_report::{Chart, ChartAxis, Line, LineStyle, Value, Variant};

/// Changes of neighbours over weeks.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Drift {
    /// Watched days.
    pub days: u32,
    /// Mean lives of a neighbour in days (exponential), a variant each.
    pub lives: Vec<u32>,
    /// The probe's simulated runs between changes of a node's neighbours.
    pub runs: u32,
}

const HOUR: f64 = 3600.0;
const HOURS_A_DAY: u32 = 24;
/// Points of the paper: shortest length of a stretch in hours, and share of the time in longer
/// stretches, in percent.
const PAPER: [(f64, f64); 2] = [(12.0, 75.0), (24.0, 60.0)];
/// Share of the time in which the paper saw no change, in percent.
const PAPER_NEVER: f64 = 50.0;

/// States of a node: the runs, from hour to hour.
struct NodeHistory {
    runs: Vec<Run>,
}

impl Drift {
    pub(super) fn check(&self, section: &mut Section<'_>) {
        section.range("days", self.days, 1..=366);
        section.range("runs", self.runs, 1..=24);
        section.count("lives", self.lives.len(), 1..=20);
        for life in &self.lives {
            section.range("lives", *life, 1..=36_600);
        }
    }

    /// Returns the variants with the names of all values.
    pub(super) fn outline(&self) -> Vec<Variant> {
        let none = self.lives.iter().map(|life| variant(*life, &[], &[]));
        none.collect()
    }

    /// Watches the nodes under each mean life.
    pub(super) fn run(
        &self,
        population: &Population,
        rules: &Rules,
        run: &mut tailbound_experiment::Run<'_, Threads>,
    ) -> Result<(Vec<Variant>, Chart), ExperimentError> {
        let seed = run.seed;
        let nodes = population.population.nodes;
        let all: Vec<(u32, u32)> = self
            .lives
            .iter()
            .flat_map(|life| (0..nodes).map(move |node| (*life, node)))
            .collect();
        let name = |(life, node): &(u32, u32)| format!("node {node} at {life} days");
        let one = |&(life, node): &(u32, u32)| self.watch(population, rules, life, node, seed);
        let watched = parallel::map(run, &all, name, one)?;
        let mut variants = Vec::new();
        let mut lines = Vec::new();
        for (life, watched) in self.lives.iter().zip(watched.chunks(nodes as usize)) {
            let quiet = stretches(watched, |_, run| run.verdict);
            let nights = stretches(watched, midnight);
            lines.push(cdf(&format!("a life of {life} days"), &nights));
            variants.push(variant(*life, &quiet, &nights));
        }
        Ok((variants, chart(lines, self.days)))
    }

    /// Watches a node from hour to hour.
    fn watch(
        &self,
        population: &Population,
        rules: &Rules,
        life: u32,
        index: u32,
        seed: u64,
    ) -> Result<NodeHistory, String> {
        let mut node = Node::draw(population, index, seed);
        let mut random = Pcg64Mcg::seed_from_u64(node.seed ^ u64::from(life).rotate_left(40));
        let mean = f64::from(life * HOURS_A_DAY);
        let mut runs = Vec::new();
        let mut known: Vec<Run> = Vec::new();
        let count = node.neighbours.len();
        let gap = |random: &mut Pcg64Mcg| match count {
            0 => f64::INFINITY,
            // The first of `count` to leave.
            count => exponential(random, mean / count as f64),
        };
        let mut leaves = gap(&mut random);
        for hour in 0..self.days * HOURS_A_DAY {
            while leaves <= f64::from(hour) {
                let place = random.random_range(0..count);
                node.neighbours[place] =
                    neighbour(population, &mut random).ok_or("no neighbour takes its place")?;
                leaves += gap(&mut random);
                node.seed = random.random();
                known.clear();
            }
            if known.len() < self.runs as usize {
                let probed = node.probe(population, &rules.coarse, u64::from(hour), true)?;
                known.push(Run {
                    at: 0.0,
                    every: HOUR,
                    verdict: probed.early.outcome,
                    sleeps: probed.early.samples,
                    late: probed.early.late,
                    ours: 0,
                    stolen: 0,
                    p99_9: 0,
                    max: 0,
                });
            }
            let of = &known[hour as usize % known.len()];
            runs.push(Run {
                at: HOUR * f64::from(hour),
                ..of.clone()
            });
        }
        Ok(NodeHistory { runs })
    }
}

/// Returns the verdict of a run if, as on EC2, every node is late each night.
fn midnight(hour: usize, run: &Run) -> NodeVerdict {
    match hour % HOURS_A_DAY as usize {
        0 => NodeVerdict::Bad,
        _ => run.verdict,
    }
}

/// Returns the stretches of all nodes, each with the number of its node's.
fn stretches(
    watched: &[NodeHistory],
    found: impl Fn(usize, &Run) -> NodeVerdict,
) -> Vec<(Stretch, u64)> {
    let mut all = Vec::new();
    for node in watched {
        let runs = node.runs.iter().enumerate().map(|(hour, run)| Run {
            verdict: found(hour, run),
            ..run.clone()
        });
        let runs: Vec<Run> = runs.collect();
        let mut of_this = Vec::new();
        let history = History::told(&runs, &mut |stretch| of_this.push(stretch));
        all.extend(
            of_this
                .into_iter()
                .map(|stretch| (stretch, history.changes)),
        );
    }
    all
}

/// Returns the number of hours that a stretch represents: one for each run.
fn hours(stretch: &Stretch) -> f64 {
    stretch.length() / HOUR + 1.0
}

/// Returns the share of the time in stretches that match, in percent.
fn share(of: &[(Stretch, u64)], which: impl Fn(&Stretch, u64) -> bool) -> f64 {
    let sum = |those: &mut dyn Iterator<Item = &(Stretch, u64)>| -> f64 {
        those.map(|(stretch, _)| hours(stretch)).sum()
    };
    let those = sum(&mut of
        .iter()
        .filter(|(stretch, changes)| which(stretch, *changes)));
    100.0 * those / sum(&mut of.iter())
}

fn variant(life: u32, quiet: &[(Stretch, u64)], nights: &[(Stretch, u64)]) -> Variant {
    let mut values = BTreeMap::new();
    for (prefix, of) in [("", quiet), ("nights_", nights)] {
        let mut put = |name: &str, share: f64| {
            values.insert(format!("{prefix}{name}"), Value::new("%", share));
        };
        put("never", share(of, |_, changes| changes == 0));
        put("bad_never", {
            let never = share(of, |_, changes| changes == 0);
            let bad = |it: &Stretch, changes| changes == 0 && it.verdict == NodeVerdict::Bad;
            100.0 * share(of, bad) / never
        });
        put("for_a_day", share(of, |it, _| hours(it) >= 24.0));
        put("for_half_a_day", share(of, |it, _| hours(it) >= 12.0));
        put(
            "bad_time",
            share(of, |it, _| it.verdict == NodeVerdict::Bad),
        );
    }
    Variant {
        name: format!("life-{life}-days"),
        values,
        ..Variant::default()
    }
}

/// Returns the share of the time in stretches of at most a length, as a line of a chart.
fn cdf(name: &str, of: &[(Stretch, u64)]) -> Line {
    let mut lengths: Vec<f64> = of.iter().map(|(stretch, _)| hours(stretch)).collect();
    lengths.sort_by(f64::total_cmp);
    let all: f64 = lengths.iter().sum();
    let mut points: Vec<(f64, f64)> = Vec::new();
    let mut before = 0.0;
    for length in lengths {
        before += length;
        let share = 100.0 * before / all;
        match points.last_mut() {
            Some(last) if last.0.total_cmp(&length).is_eq() => last.1 = share,
            _ => points.push((length, share)),
        }
    }
    Line::new(name, LineStyle::Measured, points)
}

fn chart(mut lines: Vec<Line>, days: u32) -> Chart {
    let whole = f64::from(days * HOURS_A_DAY);
    let paper = PAPER.into_iter().chain([(whole, PAPER_NEVER)]);
    let points = paper.map(|(hours, above)| (hours, 100.0 - above));
    lines.push(Line::new(
        // words: allow P10, golden records have it.
        "paper, from so many hours on",
        LineStyle::Paper,
        points,
    ));
    Chart {
        name: "figure_3".to_owned(),
        title: "Share of the nodes' time in stretches without a change between good and bad"
            .to_owned(),
        x: ChartAxis::log("hours without a change", ""),
        y: ChartAxis::linear("time of nodes in stretches up to so long", "%"),
        lines,
        note: Some(
            "Nights as in the paper: at midnight every node is bad for a moment, so one that is good \
             changes twice a day."
                .to_owned(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use NodeVerdict::{Bad, Good};

    fn watched(hours: impl Iterator<Item = NodeVerdict>) -> NodeHistory {
        let run = |(hour, verdict)| Run {
            at: HOUR * f64::from(hour),
            every: HOUR,
            verdict,
            sleeps: 1,
            late: 0,
            ours: 0,
            stolen: 0,
            p99_9: 0,
            max: 0,
        };
        NodeHistory {
            runs: (0_u32..).zip(hours).map(run).collect(),
        }
    }

    #[test]
    fn each_hour_counts_for_the_stretch_that_it_is_in() {
        // Four days each: one never changes, one after a day and after 36 hours.
        let nodes = [
            watched((0..96).map(|_| Bad)),
            watched((0..96).map(|hour| if (24..36).contains(&hour) { Bad } else { Good })),
        ];
        let all = stretches(&nodes, |_, run| run.verdict);
        let values = variant(7, &all, &all).values;
        let of = |name: &str| values[name].value;
        assert_eq!((of("never"), of("bad_never")), (50.0, 100.0));
        // 96, 24 and 60 of 192 hours, and 12 more.
        assert_eq!((of("for_a_day"), of("for_half_a_day")), (93.75, 100.0));
        assert_eq!((of("bad_time"), of("nights_bad_time")), (56.25, 56.25));
        let line = cdf("x", &all);
        let points: Vec<_> = line.points.iter().map(|point| (point.0, point.1)).collect();
        let wanted = [(12.0, 6.25), (24.0, 18.75), (60.0, 50.0), (96.0, 100.0)];
        assert_eq!(points, wanted);
    }

    #[test]
    fn a_good_node_changes_each_night_and_a_bad_one_does_not() {
        let nodes = [
            watched((0..48).map(|_| Bad)),
            watched((0..48).map(|_| Good)),
        ];
        let nights = stretches(&nodes, midnight);
        let changes: Vec<_> = nights.iter().map(|(_, changes)| *changes).collect();
        assert_eq!(changes, [0, 3, 3, 3, 3]);
        let lengths = nights.iter().map(|(stretch, _)| hours(stretch) as u32);
        assert_eq!(lengths.collect::<Vec<_>>(), [48, 1, 23, 1, 23]);
    }
}

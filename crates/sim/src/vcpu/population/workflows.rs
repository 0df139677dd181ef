//! Benefit of selecting nodes (Bobtail, section 5): selected ones compared with the same number at
//! random, by calls, by workflows of calls one after the other, and by workflows that call many
//! nodes in parallel.
//!
//! Read [`Workflows::compare`] first. Nodes share only the wire, so the time of a workflow over
//! several nodes follows from the answer times of each: the distribution of the slowest of many is
//! the product of their distributions.

use super::node::{Node, ProbedNode};
use super::{Population, Rules, WARMUP};
use rand::SeedableRng as _;
use rand::seq::SliceRandom as _;
use rand_pcg::Pcg64Mcg;
use serde::Deserialize;
use tailbound_experiment::Section;
use tailbound_hypervisor::Arrivals;
use tailbound_probe::network::RATES;
use tailbound_probe::select::{Candidate, Use, select};
use tailbound_report::Variant;
use tailbound_units::Nanos;

/// Benefit of selecting nodes, compared with random ones.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workflows {
    /// Draws, each with started and selected nodes.
    pub draws: u32,
    /// Started nodes per draw, of the population.
    pub candidates: usize,
    /// Kept nodes.
    pub keep: usize,
    /// Round trips of a call of 1, 2 and 4 KB on the wire and in the stacks.
    pub wire: [Nanos; 3],
    /// Mean time between sequential workflows at a node.
    pub pause: Nanos,
    /// Percentages of bad nodes among called ones, a variant each.
    #[serde(default)]
    pub bad: Vec<u32>,
}

/// Number of calls of a sequential workflow.
const CALLS: u32 = 10;
/// Number of nodes of one client.
pub(super) const GROUPS: [usize; 3] = [10, 20, 40];
/// Quantile of Student's distribution at 29 degrees of freedom, both sides 90 %: for 30 draws.
const STUDENT: f64 = 1.699;
/// The percentiles that are compared, as parts of 1.
pub(super) const PERCENTILES: [(&str, f64); 2] = [("p99", 0.99), ("p99_9", 0.999)];

/// Answer times of a node, in their order: nanoseconds.
#[derive(Debug, Clone, Default)]
pub(super) struct Answers {
    /// Calls at each rate.
    calls: Vec<Vec<u32>>,
    /// Sequential workflows.
    pub(super) sequences: Vec<u32>,
}

/// A node, the verdicts on it, and its answer times.
pub(super) struct MeasuredNode {
    pub(super) judged: ProbedNode,
    pub(super) answers: Answers,
}

fn short(time: Nanos) -> u32 {
    u32::try_from(time.as_nanos()).unwrap_or(u32::MAX)
}

impl Workflows {
    pub(super) fn check(&self, section: &mut Section<'_>, nodes: u32) {
        section.range("draws", self.draws, 2..=1000);
        section.range("candidates", self.candidates, 2..=nodes as usize);
        section.range("keep", self.keep, 1..=self.candidates - 1);
        let times = Nanos::from_millis(1)..=Nanos::from_secs(100);
        section.range("pause", self.pause, times);
        for percent in &self.bad {
            section.range("bad", *percent, 0..=100);
        }
    }

    /// Returns the variant with the names of all values.
    pub(super) fn outline() -> Variant {
        let none = figures(&[]).into_iter();
        let none: Vec<_> = none.map(|(name, _)| (name, Vec::new())).collect();
        variant(&none, &[])
    }

    /// Measures a node's answer times.
    pub(super) fn measure(
        &self,
        node: &Node,
        population: &Population,
        rules: &Rules,
    ) -> Result<MeasuredNode, String> {
        let mut answers = Answers::default();
        let judged = node.judge(population, rules, &mut |samples| {
            let wire = short(self.wire[1]);
            let mut calls: Vec<u32> = samples
                .iter()
                .map(|took| short(*took).saturating_add(wire))
                .collect();
            calls.sort_unstable();
            answers.calls.push(calls);
        })?;
        let arrivals = Arrivals::Sequences {
            mean: self.pause,
            calls: CALLS,
            wire: self.wire,
        };
        let end = WARMUP.saturating_add(population.population.network_test);
        let mut took = node.answers(population, arrivals, 99, end)?;
        took.sort_unstable();
        answers.sequences = took.into_iter().map(short).collect();
        Ok(MeasuredNode { judged, answers })
    }

    /// Draws, selects and compares.
    pub(super) fn compare(&self, nodes: &[MeasuredNode], seed: u64) -> Variant {
        let mut random = Pcg64Mcg::seed_from_u64(seed ^ 0x0b0b_7a11);
        let mut reductions: Vec<(String, Vec<f64>)> = Vec::new();
        let mut chosen_bad = Vec::new();
        for _ in 0..self.draws {
            let mut places: Vec<usize> = (0..nodes.len()).collect();
            places.shuffle(&mut random);
            let candidates: Vec<&MeasuredNode> = places
                .iter()
                .take(self.candidates)
                .map(|place| &nodes[*place])
                .collect();
            let mut chosen = choose(&candidates, self.keep);
            chosen.shuffle(&mut random);
            // In the order of the draw, which is random.
            let others = &candidates[..self.keep];
            let bad = chosen.iter().filter(|node| node.judged.is_bad()).count();
            chosen_bad.push(100.0 * bad as f64 / chosen.len().max(1) as f64);
            let figures = figures(&chosen).into_iter().zip(figures(others));
            for (place, ((name, of_chosen), (_, of_others))) in figures.enumerate() {
                if reductions.len() <= place {
                    reductions.push((name, Vec::new()));
                }
                reductions[place]
                    .1
                    .push(100.0 * (1.0 - of_chosen / of_others));
            }
        }
        variant(&reductions, &chosen_bad)
    }
}

/// Returns the best of the candidates, as `tailbound select` does: if too few are GOOD the network
/// test approves others.
fn choose<'m>(candidates: &[&'m MeasuredNode], keep: usize) -> Vec<&'m MeasuredNode> {
    let rows: Vec<Candidate> = (0..)
        .zip(candidates)
        .map(|(place, node)| node.judged.candidate(place))
        .collect();
    let used = select(&rows, keep).into_iter();
    used.filter(|(_, what)| *what == Use::Keep)
        .map(|(place, _)| candidates[place])
        .collect()
}

/// Returns all figures of a set of nodes, in a fixed order: nanoseconds.
fn figures(nodes: &[&MeasuredNode]) -> Vec<(String, f64)> {
    let mut figures = Vec::new();
    for (place, rate) in RATES.iter().enumerate() {
        let all = merged(nodes.iter().map(|node| &node.answers.calls[place]));
        for (name, part) in PERCENTILES {
            figures.push((format!("calls_{rate}_{name}"), at(&all, part)));
        }
    }
    for group in GROUPS {
        let groups = || {
            nodes
                .chunks(group)
                .filter(|chunk| chunk.len() == group.min(nodes.len()))
        };
        let count = groups().count().max(1) as f64;
        for (name, part) in PERCENTILES {
            let one = |chunk: &[&MeasuredNode]| {
                let all = merged(chunk.iter().map(|node| &node.answers.sequences));
                at(&all, part)
            };
            let mean = groups().map(one).sum::<f64>() / count;
            figures.push((format!("sequence_{group}_{name}"), mean));
        }
        for (name, part) in PERCENTILES {
            let mean = groups().map(|chunk| slowest(chunk, part)).sum::<f64>() / count;
            figures.push((format!("fan_out_{group}_{name}"), mean));
        }
    }
    figures
}

pub(super) fn merged<'a>(of: impl Iterator<Item = &'a Vec<u32>>) -> Vec<u32> {
    of.flatten().copied().collect()
}

/// Returns the figure that this part of the others does not exceed.
pub(super) fn at(all: &[u32], part: f64) -> f64 {
    let mut all = all.to_vec();
    if all.is_empty() {
        return f64::NAN;
    }
    let place = ((all.len() as f64 * part) as usize).min(all.len() - 1);
    f64::from(*all.select_nth_unstable(place).1)
}

/// Returns the percentile `part` of the slowest of one call to each node: the smallest time for
/// which the product of their distributions is `part`.
pub(super) fn slowest(nodes: &[&MeasuredNode], part: f64) -> f64 {
    let below = |time: u32| {
        nodes.iter().fold(1.0, |product, node| {
            let calls = &node.answers.calls[0];
            let in_time = calls.partition_point(|took| *took <= time);
            product * in_time as f64 / calls.len().max(1) as f64
        })
    };
    let (mut low, mut high) = (0, u32::MAX);
    while low < high {
        let middle = low.midpoint(high);
        if below(middle) >= part {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    f64::from(low)
}

/// Returns the means over all draws, and their 90 % intervals.
fn variant(reductions: &[(String, Vec<f64>)], chosen_bad: &[f64]) -> Variant {
    let mut values = std::collections::BTreeMap::new();
    let mut put = |name: String, value: f64| {
        values.insert(name, tailbound_report::Value::new("%", value));
    };
    put("chosen_bad".to_owned(), mean(chosen_bad));
    for (name, draws) in reductions {
        let mean = mean(draws);
        let squares = draws.iter().map(|draw| (draw - mean).powi(2)).sum::<f64>();
        let count = draws.len() as f64;
        let error = (squares / (count - 1.0).max(1.0) / count).sqrt();
        put(name.clone(), mean);
        put(format!("{name}_low"), mean - STUDENT * error);
        put(format!("{name}_high"), mean + STUDENT * error);
    }
    Variant {
        name: "chosen".to_owned(),
        values,
        ..Variant::default()
    }
}

pub(super) fn mean(figures: &[f64]) -> f64 {
    figures.iter().sum::<f64>() / figures.len().max(1) as f64
}

//! Cost of bad nodes (Bobtail, section 4.1): workflows over nodes of which a given part is bad.

use super::workflows::{GROUPS, MeasuredNode, PERCENTILES, Workflows, at, mean, merged, slowest};
use rand::RngExt as _;
use rand::SeedableRng as _;
use rand_pcg::Pcg64Mcg;
use std::collections::BTreeMap;
use tailbound_report::{Value, Variant};

/// Number of nodes from which a sequential workflow calls one.
const NODES: usize = 100;

/// Returns the variants with the names of all values.
pub(super) fn outline(workflows: &Workflows) -> Vec<Variant> {
    let none = workflows.bad.iter().map(|percent| variant(*percent, &[]));
    none.collect()
}

/// Returns, for each part of bad nodes, the mean times of workflows over all draws.
pub(super) fn measure(workflows: &Workflows, nodes: &[MeasuredNode], seed: u64) -> Vec<Variant> {
    let mut random = Pcg64Mcg::seed_from_u64(seed ^ 0x0bad_0bad);
    let (bad, good): (Vec<&MeasuredNode>, Vec<&MeasuredNode>) =
        nodes.iter().partition(|node| node.judged.is_bad());
    let mut draw = |count: usize, percent: u32| -> Vec<&MeasuredNode> {
        let of_bad = (count * percent as usize).div_ceil(100);
        let one = |place: usize| {
            let from = if place < of_bad { &bad } else { &good };
            let number = random.random_range(0..from.len().max(1));
            from.get(number).copied()
        };
        (0..count).filter_map(one).collect()
    };
    let mut all = Vec::new();
    for percent in &workflows.bad {
        let draws = (0..workflows.draws).map(|_| {
            let servers = draw(NODES, *percent);
            let groups = GROUPS.map(|group| draw(group, *percent));
            figures(&servers, &groups)
        });
        let draws: Vec<_> = draws.collect();
        all.push(variant(*percent, &draws));
    }
    all
}

/// Returns the times of workflows in nanoseconds, in a fixed order.
fn figures(servers: &[&MeasuredNode], groups: &[Vec<&MeasuredNode>]) -> Vec<f64> {
    let sequences = merged(servers.iter().map(|node| &node.answers.sequences));
    let mut figures: Vec<f64> = PERCENTILES
        .iter()
        .map(|(_, part)| at(&sequences, *part))
        .collect();
    for group in groups {
        figures.extend(PERCENTILES.iter().map(|(_, part)| slowest(group, *part)));
    }
    figures
}

fn variant(percent: u32, draws: &[Vec<f64>]) -> Variant {
    let workflows = ["sequence".to_owned()]
        .into_iter()
        .chain(GROUPS.map(|group| format!("fan_out_{group}")));
    let names = workflows
        .flat_map(|workflow| PERCENTILES.map(|(percentile, _)| format!("{workflow}_{percentile}")));
    let value = |(place, name): (usize, String)| {
        let of_draws: Vec<f64> = draws.iter().map(|figures| figures[place]).collect();
        (name, Value::new("ns", mean(&of_draws)))
    };
    let values: BTreeMap<String, Value> = names.enumerate().map(value).collect();
    Variant {
        name: format!("bad-{percent}"),
        values,
        ..Variant::default()
    }
}

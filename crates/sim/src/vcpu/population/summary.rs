//! Figures and charts of judged nodes.

use super::node::{ProbedNode, times};
use std::collections::BTreeMap;
use tailbound_probe::{NodeVerdict, Rule};
use tailbound_report::{Chart, ChartAxis, Line, LineStyle, Series, Variant};

/// Returns the charts of a population.
pub(super) fn charts(judged: &[ProbedNode], rule: &Rule) -> Vec<Chart> {
    vec![curve(judged), late_sleeps(judged, rule)]
}

/// Returns the only variant of a population.
pub(super) fn variant(judged: &[ProbedNode], rule: &Rule) -> Variant {
    let whole = |node: &ProbedNode, outcome| rule.answer(node.fine.late) == outcome;
    let early = |node: &ProbedNode, outcome| node.fine.early.outcome == outcome;
    let coarse = |node: &ProbedNode, outcome| node.coarse.early.outcome == outcome;
    let bad = |node: &&ProbedNode| node.truth == NodeVerdict::Bad;
    let good = |node: &&ProbedNode| node.truth == NodeVerdict::Good;
    let all = |_: &&ProbedNode| true;
    let share = |of: &dyn Fn(&&ProbedNode) -> bool, which: &dyn Fn(&ProbedNode) -> bool| {
        percent(judged.iter().filter(of), which)
    };
    let part = |name, share| (name, share, "%");
    let mut variant = Variant::of_values(
        "nodes",
        [
            part("bad_nodes", share(&all, &|node| bad(&node))),
            part(
                "wrong_good",
                share(&bad, &|node| whole(node, NodeVerdict::Good)),
            ),
            part(
                "wrong_bad_alone",
                share(&good, &|node| !whole(node, NodeVerdict::Good)),
            ),
            part(
                "wrong_bad",
                share(&good, &|node| whole(node, NodeVerdict::Bad)),
            ),
            part(
                "unsure",
                share(&all, &|node| whole(node, NodeVerdict::Unsure)),
            ),
            part(
                "early_wrong_good",
                share(&bad, &|node| early(node, NodeVerdict::Good)),
            ),
            part(
                "early_wrong_bad",
                share(&good, &|node| early(node, NodeVerdict::Bad)),
            ),
            part(
                "early_differs",
                share(&all, &|node| !whole(node, node.fine.early.outcome)),
            ),
            part(
                "coarse_wrong_good",
                share(&bad, &|node| coarse(node, NodeVerdict::Good)),
            ),
            part(
                "coarse_wrong_bad",
                share(&good, &|node| coarse(node, NodeVerdict::Bad)),
            ),
            part(
                "coarse_differs",
                share(&all, &|node| {
                    node.coarse.early.outcome != node.fine.early.outcome
                }),
            ),
        ],
    );
    let exact = times(judged, |node| node.fine.time);
    let early = times(judged, |node| node.fine.early.time);
    let coarse = times(judged, |node| node.coarse.early.time);
    variant.series = BTreeMap::from([
        ("coarse_time".to_owned(), Series::of("ns", &coarse)),
        ("early_time".to_owned(), Series::of("ns", &early)),
        ("exact_time".to_owned(), Series::of("ns", &exact)),
    ]);
    variant
}

/// Returns the share of `nodes` that match `which`, in percent; 0 without nodes.
fn percent<'j>(
    nodes: impl Iterator<Item = &'j ProbedNode>,
    which: &dyn Fn(&ProbedNode) -> bool,
) -> f64 {
    let (mut all, mut those) = (0_u32, 0_u32);
    for node in nodes {
        all += 1;
        those += u32::from(which(node));
    }
    100.0 * f64::from(those) / f64::from(all.max(1))
}

/// Returns figure 9: false positives against false negatives for `LOW_MARK` 0 to 100.
fn curve(judged: &[ProbedNode]) -> Chart {
    let line = |name: &str, factor: u64| {
        let point = |low: u64| {
            let of = |truth| judged.iter().filter(move |node| node.truth == truth);
            let good = |node: &ProbedNode| node.fine.late <= low;
            let bad = |node: &ProbedNode| node.fine.late > low * factor;
            (
                percent(of(NodeVerdict::Bad), &good),
                percent(of(NodeVerdict::Good), &bad),
            )
        };
        Line::new(name, LineStyle::Measured, (0..=100).map(point))
    };
    let paper = |name: &str, y: f64| Line::new(name, LineStyle::Paper, [(10.0, y)]);
    let bound = [(0.0, 10.0), (10.0, 10.0), (10.0, 0.0)];
    Chart {
        name: "figure_9".to_owned(),
        title: "Bad nodes called good against good nodes called bad, LOW_MARK from 0 to 100"
            .to_owned(),
        x: ChartAxis::linear("bad nodes called good (false positives)", "%"),
        y: ChartAxis::linear("good nodes called bad (false negatives)", "%"),
        lines: vec![
            line("sleeps alone", 1),
            line("with network test", 5),
            paper("paper: alone", 30.0),
            paper("paper: with test", 10.0),
            Line::new("10 % each", LineStyle::Bound, bound),
        ],
        note: Some(
            "With the network test, nodes between LOW_MARK and five times that are not called \
             anything by the sleeps. The paper's points are those of its text, at LOW_MARK 13: \
             both are upper bounds for the false positives, the lower one also for the false \
             negatives."
                .to_owned(),
        ),
    }
}

/// Returns the distribution of late sleeps, of good and bad nodes separately.
fn late_sleeps(judged: &[ProbedNode], rule: &Rule) -> Chart {
    let line = |name: &str, truth: NodeVerdict| {
        let mut counts: Vec<u64> = judged
            .iter()
            .filter(|node| node.truth == truth)
            .map(|node| node.fine.late)
            .collect();
        counts.sort_unstable();
        let all = counts.len() as f64;
        let points = (1..).zip(&counts).map(|(rank, &late)| {
            // A logarithmic axis has no zero.
            ((late as f64).max(0.5), 100.0 * f64::from(rank) / all)
        });
        Line::new(name, LineStyle::Measured, points)
    };
    let config = rule.config();
    let mark = |name: &str, at: u64| {
        let ends = [0.0, 100.0].map(|percent| (at as f64, percent));
        Line::new(format!("{name} {at}"), LineStyle::Bound, ends)
    };
    Chart {
        name: "late_sleeps".to_owned(),
        title: format!(
            "Share of the nodes with at most this number of late sleeps of {}",
            config.samples
        ),
        x: ChartAxis::log("late sleeps; none stands at 0.5", ""),
        y: ChartAxis::linear("nodes", "%"),
        lines: vec![
            line("good nodes", NodeVerdict::Good),
            line("bad nodes", NodeVerdict::Bad),
            mark("LOW_MARK", config.low_mark),
            mark("HIGH_MARK", config.high_mark),
        ],
        note: None,
    }
}

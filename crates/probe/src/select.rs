//! Selection of N among K · N candidates (Bobtail, 4.2), and the necessary number of candidates
//! ([`Yield`]).

use crate::verdict::NodeVerdict;
use serde::Serialize;
use std::cmp::Ordering;
use tailbound_units::Nanos;

/// A node that was probed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Name of the node.
    pub name: String,
    /// The verdict of the sleeps.
    pub outcome: NodeVerdict,
    /// Verdict of the network test, if there was one.
    pub network: Option<NodeVerdict>,
    /// Sleeps of its worst vCPU.
    pub samples: u64,
    /// The late ones of these.
    pub late: u64,
    /// The 99.9th percentile of how long they took.
    pub p99_9: Nanos,
}

impl Candidate {
    /// Returns the verdict of both tests together. The network test is the ground truth: it decides
    /// nodes whose sleeps are UNSURE or INCONCLUSIVE, and can refuse GOOD ones. Nodes that are BAD
    /// by their sleeps stay BAD, because a neighbour that rested during the network test comes
    /// back.
    pub const fn verdict(&self) -> NodeVerdict {
        match (self.outcome, self.network) {
            (NodeVerdict::Bad, _) | (_, Some(NodeVerdict::Bad)) => NodeVerdict::Bad,
            (_, Some(NodeVerdict::Good)) => NodeVerdict::Good,
            (outcome, _) => outcome,
        }
    }
}

/// Use of a candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Use {
    /// Keep it: it is among the best N.
    Keep,
    /// GOOD, and not needed.
    Spare,
    /// UNSURE, and needed because not enough are good: the network test may approve it.
    Test,
    /// Do not use it.
    Drop,
}

/// Returns the indices of the candidates from best to worst, each with its use. At most `keep` are
/// kept, and only candidates whose [`Candidate::verdict`] is GOOD.
pub fn select(candidates: &[Candidate], keep: usize) -> Vec<(usize, Use)> {
    let mut places: Vec<usize> = (0..candidates.len()).collect();
    places.sort_by(|a, b| better(&candidates[*a], &candidates[*b]));
    let is_good = |place: &usize| candidates[*place].verdict() == NodeVerdict::Good;
    let good = places.iter().filter(|place| is_good(place)).count();
    let what = |(rank, place): (usize, usize)| {
        let what = match candidates[place].verdict() {
            NodeVerdict::Good if rank < keep => Use::Keep,
            NodeVerdict::Good => Use::Spare,
            NodeVerdict::Unsure if good < keep => Use::Test,
            _ => Use::Drop,
        };
        (place, what)
    };
    places.into_iter().enumerate().map(what).collect()
}

/// Orders candidates by verdict, those without a needed approval first, then by the expected share
/// of late sleeps, (late + 1) / (samples + 2): of two nodes without late sleeps, the one with more
/// sleeps is better known. The last criterion is the length of the sleeps.
fn better(a: &Candidate, b: &Candidate) -> Ordering {
    let late = |candidate: &Candidate| u128::from(candidate.late) + 1;
    let samples = |candidate: &Candidate| u128::from(candidate.samples) + 2;
    let weights = |candidate: &Candidate| {
        let verdict = candidate.verdict().weight();
        (verdict, candidate.outcome.weight())
    };
    weights(a)
        .cmp(&weights(b))
        .then_with(|| {
            let (a, b) = (
                late(a).saturating_mul(samples(b)),
                late(b).saturating_mul(samples(a)),
            );
            a.cmp(&b)
        })
        .then_with(|| a.p99_9.cmp(&b.p99_9))
        .then_with(|| a.name.cmp(&b.name))
}

/// Result of the selection.
#[derive(Debug, Serialize)]
pub struct Selection {
    /// Number of needed nodes.
    pub wanted: usize,
    /// Number of GOOD nodes.
    pub good: usize,
    /// Estimate, from nodes with both verdicts, of the number of nodes to start.
    #[serde(rename = "yield")]
    pub found: Option<Yield>,
    /// All nodes, the best first.
    pub nodes: Vec<SelectedNode>,
}

/// A node, with its use.
#[derive(Debug, Serialize)]
pub struct SelectedNode {
    /// Name of the node.
    pub node: String,
    /// File of its result, or its address.
    pub file: String,
    /// The verdict of the sleeps.
    pub verdict: NodeVerdict,
    /// Verdict of the network test, if there was one.
    pub network: Option<NodeVerdict>,
    /// The use.
    #[serde(rename = "use")]
    pub what: Use,
    /// Late sleeps of its worst vCPU.
    pub late: u64,
    /// All sleeps of that vCPU.
    pub samples: u64,
    /// The 99.9th percentile of their times, in nanoseconds.
    pub p99_9_ns: u64,
}

/// A candidate, and its address or the file of its result.
#[derive(Debug)]
pub struct Row {
    /// The candidate.
    pub candidate: Candidate,
    /// File of its result, or its address.
    pub note: String,
}

impl SelectedNode {
    fn new(row: &Row, what: Use) -> Self {
        let candidate = &row.candidate;
        Self {
            node: candidate.name.clone(),
            file: row.note.clone(),
            verdict: candidate.outcome,
            network: candidate.network,
            what,
            late: candidate.late,
            samples: candidate.samples,
            p99_9_ns: candidate.p99_9.as_nanos(),
        }
    }
}

impl Selection {
    /// Returns the best `wanted` of the rows.
    pub fn of(rows: &[Row], wanted: usize) -> Self {
        let candidates: Vec<_> = rows.iter().map(|row| row.candidate.clone()).collect();
        let is_good = |candidate: &&Candidate| candidate.verdict() == NodeVerdict::Good;
        let chosen = select(&candidates, wanted).into_iter();
        Self {
            wanted,
            good: candidates.iter().filter(is_good).count(),
            found: Yield::of(&candidates),
            nodes: chosen
                .map(|(place, what)| SelectedNode::new(&rows[place], what))
                .collect(),
        }
    }
}

/// Estimated number of nodes to start for one good node, from nodes with both verdicts (4.3).
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Yield {
    /// Nodes that both tests judged.
    pub nodes: usize,
    /// The share of those that the network test found GOOD.
    pub good: f64,
    /// FN: the share of these that the sleeps did not call GOOD.
    pub missed: f64,
    /// K = 1 / ((1 - FN) · good): nodes to start for one to keep, before the network test approves
    /// any. `None` if no node was rightly called GOOD.
    pub k: Option<f64>,
}

impl Yield {
    /// Computes the estimate from candidates; `None` if no node has both verdicts.
    pub fn of(candidates: &[Candidate]) -> Option<Self> {
        let decided = |candidate: &&Candidate| {
            matches!(
                candidate.network,
                Some(NodeVerdict::Good | NodeVerdict::Bad)
            )
        };
        let both: Vec<_> = candidates.iter().filter(decided).collect();
        let good: Vec<_> = both
            .iter()
            .filter(|candidate| candidate.network == Some(NodeVerdict::Good))
            .collect();
        let found = good
            .iter()
            .filter(|candidate| candidate.outcome == NodeVerdict::Good)
            .count();
        (!both.is_empty()).then(|| Self {
            nodes: both.len(),
            good: good.len() as f64 / both.len() as f64,
            missed: (good.len() - found) as f64 / good.len().max(1) as f64,
            // (1 - FN) · good is the share that is found.
            k: (found > 0).then(|| both.len() as f64 / found as f64),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::NodeVerdict::{Bad, Good, Inconclusive, Unsure};
    use super::*;
    use proptest::prelude::*;

    fn candidate(name: &str, outcome: NodeVerdict, late: u64, samples: u64) -> Candidate {
        Candidate {
            name: name.into(),
            outcome,
            network: None,
            samples,
            late,
            p99_9: Nanos(1),
        }
    }

    fn uses(candidates: &[Candidate], keep: usize) -> Vec<(&str, Use)> {
        let uses = select(candidates, keep).into_iter();
        uses.map(|(place, what)| (candidates[place].name.as_str(), what))
            .collect()
    }

    #[test]
    fn the_best_good_ones_are_kept_and_the_rest_is_spare() {
        let candidates = [
            candidate("a", Good, 9, 600_000),
            candidate("b", Bad, 66, 7_000),
            candidate("c", Good, 0, 123_241),
            candidate("d", Unsure, 20, 600_000),
            candidate("e", Good, 0, 600_000),
        ];
        assert_eq!(
            uses(&candidates, 2),
            [
                ("e", Use::Keep),
                ("c", Use::Keep),
                ("a", Use::Spare),
                ("d", Use::Drop),
                ("b", Use::Drop)
            ]
        );
    }

    #[test]
    fn when_good_ones_are_short_the_unsure_are_worth_a_network_test() {
        let candidates = [
            candidate("a", Inconclusive, 0, 10),
            candidate("b", Unsure, 60, 600_000),
            candidate("c", Unsure, 14, 600_000),
            candidate("d", Good, 1, 231_984),
        ];
        assert_eq!(
            uses(&candidates, 2),
            [
                ("d", Use::Keep),
                ("c", Use::Test),
                ("b", Use::Test),
                ("a", Use::Drop)
            ]
        );
    }

    #[test]
    fn ties_between_nodes_are_decided_by_speed_then_name() {
        let mut candidates = vec![candidate("b", Good, 0, 9), candidate("a", Good, 0, 9)];
        assert_eq!(uses(&candidates, 1)[0], ("a", Use::Keep));
        candidates[1].p99_9 = Nanos(2);
        assert_eq!(uses(&candidates, 1)[0], ("b", Use::Keep));
    }

    fn tested(name: &str, outcome: NodeVerdict, network: NodeVerdict) -> Candidate {
        Candidate {
            network: Some(network),
            ..candidate(name, outcome, 20, 600_000)
        }
    }

    #[test]
    fn the_network_test_approves_unsure_nodes_and_can_refuse_any() {
        let candidates = [
            tested("approved", Unsure, Good),
            tested("busy", Inconclusive, Good),
            tested("refused", Good, Bad),
            tested("bad", Bad, Good),
            tested("open", Unsure, Inconclusive),
            candidate("good", Good, 13, 600_000),
        ];
        assert_eq!(
            uses(&candidates, 4),
            [
                ("good", Use::Keep),
                ("approved", Use::Keep),
                ("busy", Use::Keep),
                ("open", Use::Test),
                ("refused", Use::Drop),
                ("bad", Use::Drop)
            ]
        );
    }

    #[test]
    fn how_many_to_start_is_computed_as_in_the_paper() {
        // 4.3: K * N * (1 - 0.3) * 0.4 = N.
        let nodes = [
            (28, Good, Good),
            (12, Unsure, Good),
            (54, Bad, Bad),
            (6, Good, Bad),
        ];
        let candidates: Vec<_> = nodes
            .iter()
            .flat_map(|(count, outcome, network)| {
                (0..*count).map(|_| tested("x", *outcome, *network))
            })
            .collect();
        let found = Yield::of(&candidates).unwrap();
        assert_eq!(found.nodes, 100);
        assert!((found.good - 0.4).abs() < 1e-9 && (found.missed - 0.3).abs() < 1e-9);
        assert!((found.k.unwrap() - 1.0 / ((1.0 - 0.3) * 0.4)).abs() < 1e-9);
        assert_eq!(Yield::of(&[candidate("x", Good, 0, 9)]), None);
        assert_eq!(Yield::of(&[tested("x", Bad, Bad)]).unwrap().k, None);
    }

    proptest! {
        #[test]
        fn only_good_nodes_are_kept_up_to_the_wanted_number(
            nodes in prop::collection::vec(
                (prop_oneof![Just(Good), Just(Bad), Just(Unsure), Just(Inconclusive)],
                 any::<u64>(), any::<u64>()),
                0..20,
            ),
            keep in 0_usize..20,
        ) {
            let candidates: Vec<_> = nodes
                .iter()
                .map(|(outcome, late, samples)| candidate("x", *outcome, *late, *samples))
                .collect();
            let selected = select(&candidates, keep);
            prop_assert_eq!(selected.len(), candidates.len());
            let good = candidates.iter().filter(|node| node.outcome == Good).count();
            let kept = selected.iter().filter(|(_, what)| *what == Use::Keep);
            prop_assert!(kept.clone().all(|(place, _)| candidates[*place].outcome == Good));
            prop_assert_eq!(kept.count(), good.min(keep));
        }
    }
}

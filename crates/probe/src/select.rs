//! Which N of K · N candidates to keep (Bobtail, 4.2): those least likely to make a
//! long tail. The paper starts K · N instances to get N good ones: with 40 % to
//! 70 % good nodes, K is about 4.

use crate::verdict::Outcome;
use serde::Serialize;
use std::cmp::Ordering;
use tailbound_units::Nanos;

/// A node that was probed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Its name.
    pub name: String,
    /// The verdict about it.
    pub outcome: Outcome,
    /// Sleeps of its worst vCPU.
    pub samples: u64,
    /// The late ones of these.
    pub late: u64,
    /// The 99.9th percentile of how long they took.
    pub p99_9: Nanos,
}

/// What to do with a candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Use {
    /// Keep it: it is among the best N.
    Keep,
    /// GOOD, and not needed.
    Spare,
    /// Between the marks, and not enough are good: the network test may approve it.
    Test,
    /// Do not use it.
    Drop,
}

/// Returns the indices of the candidates from best to worst, each with its use. Only GOOD
/// ones are kept: fewer than `keep` if there are not so many.
pub fn select(candidates: &[Candidate], keep: usize) -> Vec<(usize, Use)> {
    let mut places: Vec<usize> = (0..candidates.len()).collect();
    places.sort_by(|a, b| better(&candidates[*a], &candidates[*b]));
    let is_good = |place: &usize| candidates[*place].outcome == Outcome::Good;
    let good = places.iter().filter(|place| is_good(place)).count();
    let what = |(rank, place): (usize, usize)| {
        let what = match candidates[place].outcome {
            Outcome::Good if rank < keep => Use::Keep,
            Outcome::Good => Use::Spare,
            Outcome::Unsure if good < keep => Use::Test,
            _ => Use::Drop,
        };
        (place, what)
    };
    places.into_iter().enumerate().map(what).collect()
}

/// By verdict, then by the share of late sleeps to be expected, (late + 1) /
/// (samples + 2): of two nodes without any, the one that slept more often is the
/// surer. Then by how long sleeps took.
fn better(a: &Candidate, b: &Candidate) -> Ordering {
    let late = |candidate: &Candidate| u128::from(candidate.late) + 1;
    let samples = |candidate: &Candidate| u128::from(candidate.samples) + 2;
    a.outcome
        .weight()
        .cmp(&b.outcome.weight())
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

#[cfg(test)]
mod tests {
    use super::Outcome::{Bad, Good, Inconclusive, Unsure};
    use super::*;
    use proptest::prelude::*;

    fn candidate(name: &str, outcome: Outcome, late: u64, samples: u64) -> Candidate {
        Candidate {
            name: name.into(),
            outcome,
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
    fn of_equals_the_quicker_one_then_the_name_decides() {
        let mut candidates = vec![candidate("b", Good, 0, 9), candidate("a", Good, 0, 9)];
        assert_eq!(uses(&candidates, 1)[0], ("a", Use::Keep));
        candidates[1].p99_9 = Nanos(2);
        assert_eq!(uses(&candidates, 1)[0], ("b", Use::Keep));
    }

    proptest! {
        #[test]
        fn only_good_ones_are_kept_and_as_many_as_there_are(
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

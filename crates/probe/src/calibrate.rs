//! Marks for other hypervisors, from nodes with a known network test (Bobtail, 4.3). The paper's
//! marks are for the Xen of 2013.

use serde::Serialize;

/// A node that both tests judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JudgedNode {
    /// Late sleeps of its whole run.
    pub late: u64,
    /// True if the network test found it GOOD.
    pub is_good: bool,
}

/// Marks, and how often they err on the nodes that they were made from.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Marks {
    /// The low mark (`LOW_MARK`), in late sleeps.
    pub low: u64,
    /// The high mark (`HIGH_MARK`), in late sleeps.
    pub high: u64,
    /// The share of the bad nodes that would be called GOOD (false positives).
    pub wrong_good: f64,
    /// The share of the good nodes that would not be called GOOD by the sleeps alone.
    pub missed: f64,
    /// The share of the good nodes that would be called BAD, so that no network test follows.
    pub wrong_bad: f64,
}

/// Nodes that no marks can be made from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CalibrateError {
    /// No node was good.
    #[error("none of {0} nodes passed the network test: marks need good and bad ones")]
    NoGood(usize),
    /// No node was bad.
    #[error("none of {0} nodes failed the network test: marks need good and bad ones")]
    NoBad(usize),
}

/// Returns the marks with which the fewest good nodes are missed while at most a share of
/// `wrong` of the bad ones is called GOOD; where no marks do that, those that call the fewest bad
/// ones GOOD.
///
/// Between the greatest and the smallest low mark that do equally well it is the geometric
/// middle: late sleeps differ by factors. The high mark is five times the low one as in the
/// paper, or higher, until at most a share of `wrong` of the good nodes is called BAD.
///
/// # Errors
/// All nodes are good, or all are bad.
pub fn calibrate(nodes: &[JudgedNode], wrong: f64) -> Result<Marks, CalibrateError> {
    let lates = |is_good: bool| {
        let those = nodes.iter().filter(move |node| node.is_good == is_good);
        let mut lates: Vec<u64> = those.map(|node| node.late).collect();
        lates.sort_unstable();
        lates
    };
    let (good, bad) = (lates(true), lates(false));
    if good.is_empty() {
        return Err(CalibrateError::NoGood(nodes.len()));
    }
    if bad.is_empty() {
        return Err(CalibrateError::NoBad(nodes.len()));
    }
    let wrong_good = |low: u64| share(&bad, |late| late <= low);
    let above = |mark: u64| share(&good, |late| late > mark);
    // Nothing changes between two counts that nodes have.
    let mut lows: Vec<u64> = good.iter().chain(&bad).copied().collect();
    lows.extend(bad.iter().map(|late| late.saturating_sub(1)));
    lows.push(0);
    let rank = |low: u64| {
        let excess = (wrong_good(low) - wrong).max(0.0);
        (excess, above(low))
    };
    let is_less =
        |a: (f64, f64), b: (f64, f64)| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)).is_lt();
    let best = lows.iter().fold(rank(0), |best, &low| {
        let this = rank(low);
        if is_less(this, best) { this } else { best }
    });
    let equals = lows.iter().copied().filter(|&low| rank(low) == best);
    let (from, to) = equals.fold((u64::MAX, 0), |(from, to), low| {
        (from.min(low), to.max(low))
    });
    let middle = ((from as f64 + 1.0) * (to as f64 + 1.0)).sqrt() - 1.0;
    let low = (middle.round() as u64).clamp(from, to);
    let high = good
        .iter()
        .copied()
        .find(|&late| above(late) <= wrong)
        .unwrap_or(low)
        .max(low.saturating_mul(5))
        .max(1);
    Ok(Marks {
        low,
        high,
        wrong_good: wrong_good(low),
        missed: above(low),
        wrong_bad: above(high),
    })
}

fn share(lates: &[u64], which: impl Fn(u64) -> bool) -> f64 {
    let those = lates.iter().filter(|late| which(**late)).count();
    those as f64 / lates.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn nodes(good: &[u64], bad: &[u64]) -> Vec<JudgedNode> {
        let of = |is_good| {
            move |late: &u64| JudgedNode {
                late: *late,
                is_good,
            }
        };
        let good = good.iter().map(of(true));
        good.chain(bad.iter().map(of(false))).collect()
    }

    #[test]
    fn between_nodes_that_are_far_apart_the_mark_is_in_the_geometric_middle() {
        let marks = calibrate(&nodes(&[0, 0, 1], &[99, 4000]), 0.1).unwrap();
        // From 1 to 98.
        assert_eq!((marks.low, marks.high), (13, 65));
        let errors = marks.wrong_good + marks.missed + marks.wrong_bad;
        assert!(errors < 1e-9, "{marks:?}");
    }

    #[test]
    fn overlapping_samples_miss_good_nodes_but_accept_no_bad_one() {
        let good = [0, 0, 2, 2, 9, 40, 41, 42, 43, 400];
        let marks = calibrate(&nodes(&good, &[10, 30, 30, 90, 500]), 0.1).unwrap();
        assert_eq!(marks.low, 9);
        assert!((marks.missed - 0.5).abs() < 1e-9 && marks.wrong_good < 1e-9);
        // Only the last is called BAD.
        assert!(marks.high >= 43 && marks.high < 400, "{}", marks.high);
        assert!((marks.wrong_bad - 0.1).abs() < 1e-9);
    }

    #[test]
    fn without_a_valid_low_mark_the_least_harmful_one_is_chosen() {
        let marks = calibrate(&nodes(&[5], &[0, 0, 7]), 0.1).unwrap();
        assert!((5..7).contains(&marks.low) && (marks.wrong_good - 2.0 / 3.0).abs() < 1e-9);
    }

    #[test]
    fn nodes_of_one_kind_are_refused() {
        assert_eq!(
            calibrate(&nodes(&[1], &[]), 0.1),
            Err(CalibrateError::NoBad(1))
        );
        assert_eq!(
            calibrate(&nodes(&[], &[1]), 0.1),
            Err(CalibrateError::NoGood(1))
        );
    }

    proptest! {
        #[test]
        fn no_other_low_mark_misses_fewer_with_as_few_wrong(
            good in prop::collection::vec(0_u64..60, 1..30),
            bad in prop::collection::vec(0_u64..60, 1..30),
            other in 0_u64..60,
        ) {
            let marks = calibrate(&nodes(&good, &bad), 0.1).unwrap();
            prop_assert!(marks.low <= marks.high);
            let wrong = share(&bad, |late| late <= other);
            let missed = share(&good, |late| late > other);
            if wrong <= 0.1 {
                prop_assert!(marks.wrong_good <= 0.1 && marks.missed <= missed);
            }
        }
    }
}

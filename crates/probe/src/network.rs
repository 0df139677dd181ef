//! The network test (Bobtail, 4.3 and 5.1): a node is good if the 99.9th percentile of its round
//! trips is below 10 ms at every rate of calls.
//!
//! The test is the ground truth for the sleeps, and decides UNSURE nodes.

use crate::verdict::NodeVerdict;
use serde::Serialize;
use std::fmt;
use tailbound_units::Nanos;

/// A call that takes this long or longer is late.
pub const LATE_CALL: Nanos = Nanos::from_millis(10);
/// Time limit for an answer. After it the node is given up, and calls that were due meanwhile are
/// late even if they are answered afterwards.
pub const ANSWER: Nanos = Nanos::from_secs(5);
/// The rates of the paper's benchmarks, calls a second.
pub const RATES: [u32; 3] = [100, 200, 500];
/// One call in this number may be late.
const ALLOWED: u64 = 1000;

/// Counts of the calls at one rate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Calls {
    /// Calls that were due.
    pub calls: u64,
    /// Calls that took 10 ms or longer from the moment they were due, the unanswered among them.
    pub late: u64,
    /// Late ones that were sent late, by at least half of the time they took.
    pub ours: u64,
    /// Calls without an answer.
    pub unanswered: u64,
}

/// The reason for the verdict of the network test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The worst rate decides.
    Rate {
        /// Calls a second.
        rate: u32,
        /// Their counts.
        calls: Calls,
    },
    /// The client was late itself, and that decides.
    Client {
        /// Calls a second.
        rate: u32,
        /// Their counts.
        calls: Calls,
    },
    /// The number of calls is too small for a 99.9th percentile.
    TooFew {
        /// Calls a second.
        rate: u32,
        /// The number of calls.
        calls: u64,
    },
    /// The list of rates is empty.
    Nothing,
}

impl fmt::Display for Reason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rate { rate, calls } => write!(
                formatter,
                "{} of {} calls late at {rate}/s, {} unanswered",
                calls.late, calls.calls, calls.unanswered
            ),
            Self::Client { rate, calls } => write!(
                formatter,
                "client late: {} of {} late calls its own at {rate}/s",
                calls.ours, calls.late
            ),
            Self::TooFew { rate, calls } => write!(
                formatter,
                "{calls} calls at {rate}/s have no 99.9th percentile"
            ),
            Self::Nothing => write!(formatter, "no calls"),
        }
    }
}

impl Calls {
    /// Returns whether the 99.9th percentile would be under [`LATE_CALL`] with `late` late calls: the
    /// smallest value that 99.9 % of the calls do not exceed is one in time.
    const fn holds(&self, late: u64) -> bool {
        late <= self.calls / ALLOWED
    }
}

/// Returns the verdict over all rates, and the reason with the rate that decided: BAD
/// before INCONCLUSIVE before GOOD; of equals, the one with the most late calls in a
/// thousand.
pub fn judge(rates: &[(u32, Calls)]) -> (NodeVerdict, Reason) {
    let judged = rates.iter().map(|&(rate, calls)| {
        let all = calls.holds(calls.late);
        let others = calls.holds(calls.late.saturating_sub(calls.ours));
        let (weight, outcome, reason) = if calls.calls < ALLOWED {
            let calls = calls.calls;
            (1, NodeVerdict::Inconclusive, Reason::TooFew { rate, calls })
        } else if all {
            (0, NodeVerdict::Good, Reason::Rate { rate, calls })
        } else if others {
            (1, NodeVerdict::Inconclusive, Reason::Client { rate, calls })
        } else {
            (2, NodeVerdict::Bad, Reason::Rate { rate, calls })
        };
        let share = calls.late.saturating_mul(1_000_000) / calls.calls.max(1);
        ((weight, share), (outcome, reason))
    });
    judged
        .max_by_key(|(weight, _)| *weight)
        .map_or((NodeVerdict::Inconclusive, Reason::Nothing), |(_, last)| {
            last
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calls(calls: u64, late: u64, ours: u64) -> Calls {
        Calls {
            calls,
            late,
            ours,
            unanswered: 0,
        }
    }

    fn outcome(rates: &[(u32, Calls)]) -> NodeVerdict {
        judge(rates).0
    }

    #[test]
    fn one_late_call_in_a_thousand_keeps_the_node_good() {
        assert_eq!(outcome(&[(100, calls(1000, 1, 0))]), NodeVerdict::Good);
        assert_eq!(outcome(&[(100, calls(1999, 2, 0))]), NodeVerdict::Bad);
        assert_eq!(outcome(&[(100, calls(2000, 2, 0))]), NodeVerdict::Good);
    }

    #[test]
    fn one_bad_rate_makes_a_bad_node() {
        let rates = [
            (100, calls(6000, 0, 0)),
            (200, calls(12_000, 300, 0)),
            (500, calls(30_000, 30, 0)),
        ];
        let (outcome, reason) = judge(&rates);
        assert_eq!(outcome, NodeVerdict::Bad);
        assert_eq!(
            reason.to_string(),
            "300 of 12000 calls late at 200/s, 0 unanswered"
        );
    }

    #[test]
    fn a_late_client_decides_nothing() {
        let (outcome, reason) = judge(&[(500, calls(3000, 9, 6))]);
        assert_eq!(outcome, NodeVerdict::Inconclusive);
        assert_eq!(
            reason.to_string(),
            "client late: 6 of 9 late calls its own at 500/s"
        );
        assert_eq!(judge(&[(500, calls(3000, 9, 5))]).0, NodeVerdict::Bad);
    }

    #[test]
    fn too_few_calls_are_inconclusive() {
        assert_eq!(
            outcome(&[(100, calls(999, 0, 0))]),
            NodeVerdict::Inconclusive
        );
        assert_eq!(outcome(&[]), NodeVerdict::Inconclusive);
    }

    #[test]
    fn a_verdict_and_its_reason_fit_a_line() {
        let most = Calls {
            calls: 1_800_000,
            late: 1_800_000,
            ours: 1_800_000,
            unanswered: 1_800_000,
        };
        let reasons = [
            Reason::Rate {
                rate: 500,
                calls: most,
            },
            Reason::Client {
                rate: 500,
                calls: most,
            },
        ];
        assert!(reasons.iter().all(|reason| reason.to_string().len() <= 66));
    }
}

//! Verdicts and their reasons, each as one line of text.

use serde::{Deserialize, Serialize};
use std::fmt;
use tailbound_units::Nanos;

/// The verdict about a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum NodeVerdict {
    /// Fit for latency-sensitive work.
    Good,
    /// The number of late sleeps is between the marks: the network test decides.
    Unsure,
    /// The guest itself, or its clock, spoiled the measurement.
    Inconclusive,
    /// Neighbours keep the CPU.
    Bad,
}

impl NodeVerdict {
    /// Returns its name.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Good => "GOOD",
            Self::Unsure => "UNSURE",
            Self::Inconclusive => "INCONCLUSIVE",
            Self::Bad => "BAD",
        }
    }

    /// Returns its rank; nodes with a lower rank are preferred. INCONCLUSIVE has a higher rank than
    /// UNSURE, and a lower one than BAD.
    pub(crate) const fn weight(self) -> u8 {
        match self {
            Self::Good => 0,
            Self::Unsure => 1,
            Self::Inconclusive => 2,
            Self::Bad => 3,
        }
    }
}

impl fmt::Display for NodeVerdict {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.word())
    }
}

/// A verdict with its reason. It prints as one line of at most 80 bytes, which is what
/// node-problem-detector keeps of a plugin's output.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ReasonedVerdict {
    /// The verdict.
    pub outcome: NodeVerdict,
    /// The reason for it.
    pub reason: Reason,
}

/// The reason for a verdict. Each prints as the part of a sentence after the
/// verdict.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Reason {
    /// Few sleeps were late: with this confidence the number of late sleeps in the whole run is at
    /// most the low mark.
    Few {
        /// Late sleeps.
        late: u64,
        /// Sleeps so far.
        samples: u64,
        /// The confidence in that.
        confidence: f64,
    },
    /// The whole run was slept.
    Whole {
        /// Late sleeps.
        late: u64,
        /// Number of sleeps.
        samples: u64,
    },
    /// The number of late sleeps exceeds the high mark.
    Many {
        /// Late sleeps that count against the neighbours.
        late: u64,
        /// Sleeps among these that the hypervisor's steal delayed.
        stolen: u64,
        /// Sleeps so far.
        samples: u64,
    },
    /// Late sleeps that are the guest's own doing, or may be, decide.
    Own {
        /// The late sleeps of the guest's own doing, certain or possible.
        own: u64,
        /// Number of late sleeps.
        late: u64,
        /// The share of the vCPU that others in this guest used, in percent.
        busy_percent: u8,
    },
    /// Late sleeps that the CPU quota of the probe's control group made decide.
    Quota {
        /// Number of late sleeps because of the quota.
        by_quota: u64,
        /// Number of late sleeps.
        late: u64,
        /// The CPU time in each period.
        runtime: Nanos,
        /// The period.
        period: Nanos,
    },
    /// The time limit ended the run.
    TimeLimit {
        /// Sleeps so far.
        samples: u64,
        /// Sleeps wanted.
        wanted: u64,
        /// The limit.
        limit: Nanos,
    },
    /// A moment was before the one before it.
    Backwards {
        /// Excess of the steal.
        by: Nanos,
    },
    /// The guest was suspended.
    Suspended {
        /// Length of the suspension.
        by: Nanos,
    },
    /// The run was interrupted.
    Interrupted {
        /// Sleeps so far.
        samples: u64,
    },
}

impl fmt::Display for Reason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Few {
                late,
                samples,
                confidence,
            } => write!(
                formatter,
                "{late} of {samples} sleeps late; {} % sure without the rest",
                percent(confidence)
            ),
            Self::Whole { late, samples } => write!(formatter, "{late} of {samples} sleeps late"),
            Self::Many {
                late,
                stolen,
                samples,
            } => write!(
                formatter,
                "{late} of {samples} sleeps late, {stolen} of them stolen"
            ),
            Self::Own {
                own,
                late,
                busy_percent,
            } => write!(
                formatter,
                "guest busy, CPU {busy_percent} %: {own} of {late} late may be its own"
            ),
            Self::Quota {
                by_quota,
                late,
                runtime,
                period,
            } => write!(
                formatter,
                "quota {runtime}/{period} used up: {by_quota} of {late} late by it"
            ),
            Self::TimeLimit {
                samples,
                wanted,
                limit,
            } => write!(formatter, "only {samples} of {wanted} sleeps in {limit}"),
            Self::Backwards { by } => write!(formatter, "the clock went back by {by}"),
            Self::Suspended { by } => write!(
                formatter,
                "the guest was suspended for {} ms",
                by.as_nanos() / 1_000_000
            ),
            Self::Interrupted { samples } => write!(formatter, "ended after {samples} sleeps"),
        }
    }
}

/// Returns a probability in percent, without the noise of its binary form.
fn percent(probability: f64) -> f64 {
    (probability * 1e6).round() / 1e4
}

impl fmt::Display for ReasonedVerdict {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}  {}", self.outcome, self.reason)
    }
}

/// Returns the index of the outcome of a node with several vCPUs, the worst: a request waits for
/// the CPU that serves it. The first of equal outcomes is returned; `None` without outcomes.
///
/// The error bound of [`crate::Rule`] for GOOD holds for the node as well: it is wrongly called
/// GOOD only if a vCPU that is not GOOD is.
pub fn worst(outcomes: impl IntoIterator<Item = NodeVerdict>) -> Option<usize> {
    let weights = outcomes.into_iter().map(NodeVerdict::weight).enumerate();
    weights
        .max_by_key(|(place, weight)| (*weight, std::cmp::Reverse(*place)))
        .map(|(place, _)| place)
}

#[cfg(test)]
mod tests {
    use super::NodeVerdict::{Bad, Good, Inconclusive, Unsure};
    use super::*;

    const SAMPLES: u64 = 600_000;

    fn verdicts() -> Vec<ReasonedVerdict> {
        let of = |outcome, reason| ReasonedVerdict { outcome, reason };
        #[rustfmt::skip]
        let verdicts = vec![
            of(Good, Reason::Few { late: 13, samples: 599_999, confidence: 0.999 }),
            of(Good, Reason::Whole { late: 13, samples: SAMPLES }),
            of(Unsure, Reason::Whole { late: 65, samples: SAMPLES }),
            of(Bad, Reason::Many { late: 66, stolen: 66, samples: SAMPLES }),
            of(Inconclusive, Reason::Own { own: 131, late: 131, busy_percent: 100 }),
            of(Inconclusive, Reason::Quota {
                by_quota: 131, late: 131,
                runtime: Nanos(123_456_000), period: Nanos(100_001_000),
            }),
            of(Inconclusive, Reason::TimeLimit {
                samples: SAMPLES - 1, wanted: SAMPLES, limit: Nanos::from_secs(110),
            }),
            of(Inconclusive, Reason::Backwards { by: Nanos(123_456_789) }),
            of(Inconclusive, Reason::Suspended { by: Nanos(86_400_000_000_001) }),
            of(Inconclusive, Reason::Interrupted { samples: SAMPLES }),
        ];
        verdicts
    }

    #[test]
    fn each_verdict_is_a_line_that_node_problem_detector_keeps_whole() {
        for verdict in verdicts() {
            let line = verdict.to_string();
            // Room for "CPU 127: " before the reason.
            assert!(line.len() <= 80 - 9, "{}: {line}", line.len());
            assert!(line.starts_with(verdict.outcome.word()));
        }
    }

    #[test]
    fn the_worst_verdict_speaks_and_of_equals_the_first() {
        assert_eq!(worst([Good, Bad, Inconclusive, Bad]), Some(1));
        assert_eq!(worst([Good, Unsure, Inconclusive, Inconclusive]), Some(2));
        assert_eq!(worst([Good, Unsure]), Some(1));
        assert_eq!(worst([Good, Good]), Some(0));
        assert_eq!(worst([]), None);
    }
}

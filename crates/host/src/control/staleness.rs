//! The staleness filter: decides about guarantees that are older than the last known ones.
//!
//! Older guarantees come from a replica that lags, or that is cut off from the store without
//! noticing; or from every replica, after an older store was restored. A host that applied each of
//! them would go back and forth between revisions with every replica that it watches.

use std::time::{Duration, Instant};

/// The longest lag of a replica: longer than that of any replica with a connection to its store,
/// and shorter than the time between two lines.
const LAG: Duration = Duration::from_secs(5);

/// Decision about a received revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Decision {
    /// The revision is applied.
    Accept,
    /// The revision is older than the last known one and not applied; the replica may catch up.
    Defer,
    /// The replica has lagged for too long; another one may know more.
    Stale,
}

/// State of the replicas relative to the last known revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum StalenessFilter {
    /// The last revision that was received was not older than the last known one.
    #[default]
    Current,
    /// The watched replica sends older revisions.
    Lagging {
        /// The time of the first older revision.
        since: Instant,
        /// The number of replicas that were left before it for the same reason or for none.
        tried: usize,
    },
    /// Replicas that lagged were left, and the next one has sent nothing yet.
    Switched {
        /// The number of replicas that were left.
        tried: usize,
    },
}

impl StalenessFilter {
    /// Decides about a revision that was received at `now` from one of `replicas`, where `known_revision` is
    /// the last known one.
    ///
    /// An older revision is accepted once every replica was tried and none knows more.
    pub(super) fn evaluate(
        &mut self,
        known_revision: u64,
        received: u64,
        now: Instant,
        replicas: usize,
    ) -> Decision {
        if received >= known_revision {
            *self = Self::Current;
            return Decision::Accept;
        }
        let (since, tried) = match *self {
            Self::Current => (now, 0),
            Self::Lagging { since, tried } => (since, tried),
            Self::Switched { tried } => (now, tried),
        };
        debug_assert!(
            since <= now,
            "lines are evaluated in the order of their time"
        );
        *self = Self::Lagging { since, tried };
        if now.duration_since(since) < LAG {
            Decision::Defer
        } else if tried + 1 < replicas {
            Decision::Stale
        } else {
            *self = Self::Current;
            Decision::Accept
        }
    }

    /// Notes that another replica is watched from now on.
    pub(super) fn on_replica_switch(&mut self) {
        *self = match *self {
            Self::Current => Self::Current,
            Self::Lagging { tried, .. } | Self::Switched { tried } => {
                Self::Switched { tried: tried + 1 }
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_replica_that_catches_up_in_time_is_kept_and_nothing_older_is_accepted() {
        let (mut filter, start) = (StalenessFilter::default(), Instant::now());
        assert_eq!(filter.evaluate(10, 9, start, 3), Decision::Defer);
        assert_eq!(filter.evaluate(10, 9, start + LAG / 2, 3), Decision::Defer);
        assert_eq!(filter.evaluate(10, 10, start + LAG, 3), Decision::Accept);
        // From then on the time counts anew.
        assert_eq!(filter.evaluate(10, 9, start + LAG * 3, 3), Decision::Defer);
    }

    #[test]
    fn a_single_replica_is_accepted_in_the_end() {
        let (mut filter, start) = (StalenessFilter::default(), Instant::now());
        assert_eq!(filter.evaluate(10, 4, start, 1), Decision::Defer);
        assert_eq!(filter.evaluate(10, 4, start + LAG, 1), Decision::Accept);
    }

    #[test]
    fn an_older_revision_is_accepted_only_when_all_replicas_were_tried() {
        let (mut filter, start) = (StalenessFilter::default(), Instant::now());
        assert_eq!(filter.evaluate(10, 9, start, 3), Decision::Defer);
        assert_eq!(filter.evaluate(10, 9, start + LAG, 3), Decision::Stale);
        filter.on_replica_switch();
        // The second replica does not answer.
        filter.on_replica_switch();
        assert_eq!(filter.evaluate(10, 8, start + LAG * 2, 3), Decision::Defer);
        assert_eq!(filter.evaluate(10, 8, start + LAG * 3, 3), Decision::Accept);
    }

    proptest! {
        /// Replicas that each send one revision for ever, or do not answer: a host that goes
        /// round among them accepts an older revision at most once, and ends with a replica that it
        /// does not leave.
        #[test]
        fn a_host_among_lagging_replicas_settles_on_one(
            replicas in prop::collection::vec(prop::option::of(0_u64..5), 1..5),
            mut held in 0_u64..6,
        ) {
            let n = replicas.len();
            prop_assume!(replicas.iter().any(Option::is_some));
            let (mut filter, mut now) = (StalenessFilter::default(), Instant::now());
            let (mut back, mut at) = (0, 0);
            let mut heard_by = None;
            for _ in 0..10 * n {
                let decision = replicas[at].map(|revision| {
                    now += LAG;
                    (filter.evaluate(held, revision, now, n), revision)
                });
                heard_by = None;
                match decision {
                    Some((Decision::Accept, revision)) => {
                        back += u32::from(revision < held);
                        held = revision;
                        heard_by = Some(at);
                    }
                    Some((Decision::Defer, _)) => {}
                    Some((Decision::Stale, _)) | None => {
                        filter.on_replica_switch();
                        at = (at + 1) % n;
                    }
                }
            }
            prop_assert!(back <= 1, "went back {back} times");
            prop_assert_eq!(heard_by, Some(at));
        }
    }
}

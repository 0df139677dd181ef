//! What a word of the placement service counts that is older than the last one.
//!
//! It comes from a replica that lags, or is cut off from the store and does not
//! know it; or from all of them, where an older store was restored. A host that
//! took each would go back and forth with every replica it is led to.

use std::time::{Duration, Instant};

/// How long a replica may be behind what was heard before: longer than any that
/// is not cut off from its store, and shorter than from line to line.
const LAG: Duration = Duration::from_secs(5);

/// What becomes of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Word {
    /// It is taken.
    Counts,
    /// It is older; a newer one may follow.
    Waits,
    /// It is older for too long: another replica may know more.
    Behind,
}

/// Older words since the last one that was not.
#[derive(Debug, Default)]
pub(super) struct Past {
    /// When the replica that is followed said the first one.
    since: Option<Instant>,
    /// How many replicas were left since the first one of all.
    left: Option<usize>,
}

impl Past {
    /// What a line of this revision counts, of a replica of so many.
    pub(super) fn judge(
        &mut self,
        held: u64,
        revision: u64,
        now: Instant,
        replicas: usize,
    ) -> Word {
        if revision >= held {
            *self = Self::default();
            return Word::Counts;
        }
        let since = *self.since.get_or_insert(now);
        let left = *self.left.get_or_insert(0);
        if now.duration_since(since) < LAG {
            Word::Waits
        } else if left + 1 < replicas {
            Word::Behind
        } else {
            // All were asked, and none that answered knows more.
            *self = Self::default();
            Word::Counts
        }
    }

    /// The replica that was followed is away, or was left.
    pub(super) fn left(&mut self) {
        self.since = None;
        if let Some(left) = &mut self.left {
            *left += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn one_that_catches_up_in_time_is_not_left_and_nothing_older_is_taken() {
        let (mut past, start) = (Past::default(), Instant::now());
        assert_eq!(past.judge(10, 9, start, 3), Word::Waits);
        assert_eq!(past.judge(10, 9, start + LAG / 2, 3), Word::Waits);
        assert_eq!(past.judge(10, 10, start + LAG, 3), Word::Counts);
        // And from then on anew.
        assert_eq!(past.judge(10, 9, start + LAG * 3, 3), Word::Waits);
    }

    #[test]
    fn one_alone_is_believed_in_the_end() {
        let (mut past, start) = (Past::default(), Instant::now());
        assert_eq!(past.judge(10, 4, start, 1), Word::Waits);
        assert_eq!(past.judge(10, 4, start + LAG, 1), Word::Counts);
    }

    #[test]
    fn one_of_several_is_believed_only_when_all_others_were_asked() {
        let (mut past, start) = (Past::default(), Instant::now());
        assert_eq!(past.judge(10, 9, start, 3), Word::Waits);
        assert_eq!(past.judge(10, 9, start + LAG, 3), Word::Behind);
        past.left();
        // The second does not answer.
        past.left();
        assert_eq!(past.judge(10, 8, start + LAG * 2, 3), Word::Waits);
        assert_eq!(past.judge(10, 8, start + LAG * 3, 3), Word::Counts);
    }

    proptest! {
        /// Replicas that each say one revision for ever, some of them not at
        /// all: a host that goes round among them takes something older at most
        /// once, and ends with one that it does not leave.
        #[test]
        fn a_host_among_replicas_that_lag_comes_to_rest(
            replicas in prop::collection::vec(prop::option::of(0_u64..5), 1..5),
            mut held in 0_u64..6,
        ) {
            let n = replicas.len();
            prop_assume!(replicas.iter().any(Option::is_some));
            let (mut past, mut now) = (Past::default(), Instant::now());
            let (mut back, mut at) = (0, 0);
            let mut heard_by = None;
            for _ in 0..10 * n {
                let word = replicas[at].map(|revision| {
                    now += LAG;
                    (past.judge(held, revision, now, n), revision)
                });
                heard_by = None;
                match word {
                    Some((Word::Counts, revision)) => {
                        back += u32::from(revision < held);
                        held = revision;
                        heard_by = Some(at);
                    }
                    Some((Word::Waits, _)) => {}
                    Some((Word::Behind, _)) | None => {
                        past.left();
                        at = (at + 1) % n;
                    }
                }
            }
            prop_assert!(back <= 1, "went back {back} times");
            prop_assert_eq!(heard_by, Some(at));
        }
    }
}

//! Limits how often changes by others are undone: three times an hour for each thread, group,
//! interrupt and set of CPUs. Pure.
//!
//! Two programs that each undo the other's change would do so for ever. The limit ends that, and an
//! hour later the agent tries again: an operator who restarts a service a few times a month loses
//! nothing.

use std::collections::BTreeMap;
use tailbound_units::Nanos;

/// The number of changes of one thing that are undone within [`WINDOW`].
const MAX_UNDONE: usize = 3;
const WINDOW: Nanos = Nanos::from_secs(3_600);

/// The response to a change by others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Response {
    /// Undo it.
    Undo,
    /// Keep it; `is_news` is false for one that was reported within the last hour.
    Keep { is_news: bool },
}

/// The changes by others within the last hour, by the thing that was changed.
#[derive(Debug)]
pub(crate) struct Strikes<K>(BTreeMap<K, Record>);

#[derive(Debug, Default)]
struct Record {
    undone: Vec<Nanos>,
    reported: Option<Nanos>,
}

fn is_recent(now: Nanos, at: Nanos) -> bool {
    now.since(at) < WINDOW
}

impl<K: Ord> Strikes<K> {
    /// Returns the response at `now` to a change of `key`; without `may_undo` it is kept.
    pub(crate) fn respond(&mut self, now: Nanos, key: K, may_undo: bool) -> Response {
        let Record { undone, reported } = self.0.entry(key).or_default();
        undone.retain(|at| is_recent(now, *at));
        if may_undo && undone.len() < MAX_UNDONE {
            undone.push(now);
            *reported = None;
            return Response::Undo;
        }
        let is_news = reported.is_none_or(|at| !is_recent(now, at));
        if is_news {
            *reported = Some(now);
        }
        Response::Keep { is_news }
    }

    /// Forgets all that is older than an hour.
    pub(crate) fn age(&mut self, now: Nanos) {
        self.0.retain(|_, Record { undone, reported }| {
            undone
                .iter()
                .chain(&*reported)
                .any(|at| is_recent(now, *at))
        });
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

impl<K> Default for Strikes<K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

#[cfg(test)]
mod tests {
    use super::Response::{Keep, Undo};
    use super::*;

    const HOUR: u64 = 3_600;

    /// The responses to changes of one thing at these seconds.
    fn responses(seconds: &[u64], may_undo: bool) -> Vec<Response> {
        let mut strikes = Strikes::default();
        let respond = |second: &u64| {
            let now = Nanos::from_secs(*second);
            strikes.age(now);
            strikes.respond(now, "thread", may_undo)
        };
        seconds.iter().map(respond).collect()
    }

    #[test]
    fn the_fourth_change_within_an_hour_is_kept_and_reported_once() {
        let (news, known) = (Keep { is_news: true }, Keep { is_news: false });
        assert_eq!(
            responses(&[0, 10, 20, 30, 31, 32], true),
            [Undo, Undo, Undo, news, known, known]
        );
    }

    #[test]
    fn a_change_that_was_kept_is_undone_when_the_first_strike_is_an_hour_old() {
        let seen = responses(&[0, 10, 20, 30, HOUR - 1, HOUR, HOUR + 1, HOUR + 10], true);
        assert_eq!(seen[4], Keep { is_news: false });
        assert_eq!(seen[5], Undo);
        assert_eq!(seen[6], Keep { is_news: true });
        assert_eq!(seen[7], Undo);
    }

    #[test]
    fn four_changes_in_a_month_are_all_undone() {
        let weeks = [0, 7, 14, 21].map(|day| day * 24 * HOUR);
        assert_eq!(responses(&weeks, true), [Undo; 4]);
    }

    #[test]
    fn without_leave_to_undo_a_change_is_reported_each_hour() {
        let (news, known) = (Keep { is_news: true }, Keep { is_news: false });
        assert_eq!(
            responses(&[0, 1, HOUR - 1, HOUR, HOUR + 1], false),
            [news, known, known, news, known]
        );
    }

    #[test]
    fn each_thing_has_strikes_of_its_own_and_old_ones_take_no_memory() {
        let mut strikes = Strikes::default();
        for key in 0..100 {
            assert_eq!(strikes.respond(Nanos::ZERO, key, true), Undo);
        }
        strikes.age(Nanos::from_secs(HOUR - 1));
        assert_eq!(strikes.0.len(), 100);
        strikes.age(Nanos::from_secs(HOUR));
        assert!(strikes.0.is_empty());
    }
}

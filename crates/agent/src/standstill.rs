//! Threads with a reservation that the kernel does not run: when one is taken to stand still, and
//! how often and for how long it is then a plain thread.
//!
//! Linux 6.18 can wait for a timer that has passed if a thread gets a deadline while it is in debt:
//! the thread is ready, but never runs again and cannot be killed. As a normal thread it runs
//! again, and after its debt is paid it can have its reservation again.

use super::class::Periodic;
use std::collections::BTreeMap;
use tailbound_sys::thread::ThreadId;
use tailbound_units::Nanos;

/// Number of periods without CPU time that prove a standstill: a kept reservation never waits as
/// long.
const PERIODS: u64 = 10;
/// Additional wait for readings and for steal time, 2 s.
const ADDITIONAL_WAIT: Nanos = Nanos::from_secs(2);
/// Longest run of a thread beyond its runtime, for which it pays before it runs again: the longest
/// tick that Linux has (HZ = 100).
const OVERRUN: Nanos = Nanos::from_millis(10);
/// Smallest number of readings without CPU time for a standstill. A stopped computer makes the time
/// between two readings long.
const READINGS: u32 = 3;
/// First period without the reservation, 10 s; each further period is ten times as long.
const FIRST_NORMAL_TIME: Nanos = Nanos::from_secs(10);
/// Largest number of new reservations of one thread.
const MAX_NEW_RESERVATIONS: u32 = 3;
/// Time of normal operation after which earlier standstills no longer count.
const FORGOTTEN: Nanos = Nanos::from_secs(3600);

/// A thread with a reservation, as it is now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reading {
    /// True if it runs or is ready.
    pub(super) is_ready: bool,
    /// Its run time since its start.
    pub(super) run: Nanos,
}

/// Thread that stands still.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Standstill {
    /// Duration without CPU time.
    pub(super) stood: Nanos,
    /// Time as a normal thread; `None`: for good.
    pub(super) plain: Option<Nanos>,
}

/// Threads that stand still.
#[derive(Debug, Default)]
pub(super) struct Standstills(BTreeMap<ThreadId, Thread>);

#[derive(Debug)]
struct Thread {
    state: State,
    /// Number of standstills.
    times: u32,
    /// Time of the last standstill.
    last: Nanos,
}

#[derive(Debug)]
enum State {
    /// The thread should have its reservation. `waits` is set while the thread is ready and does
    /// not run.
    Reserved { waits: Option<Wait> },
    /// The thread is a normal one until `until`; `None`: for good.
    Plain { until: Option<Nanos> },
}

#[derive(Debug)]
struct Wait {
    since: Nanos,
    run: Nanos,
    readings: u32,
}

impl Standstills {
    /// Evaluates a reading of a thread with this reservation at `now`; returns a new standstill.
    /// Until that ends, [`Self::is_plain`] returns true.
    pub(super) fn look(
        &mut self,
        now: Nanos,
        thread: ThreadId,
        reservation: Periodic,
        reading: Reading,
    ) -> Option<Standstill> {
        let known = self.0.entry(thread).or_insert(Thread {
            state: State::Reserved { waits: None },
            times: 0,
            last: now,
        });
        if now.since(known.last) > FORGOTTEN {
            known.times = 0;
        }
        let State::Reserved { waits } = &mut known.state else {
            return None;
        };
        match waits {
            Some(wait) if reading.is_ready && wait.run == reading.run => {
                wait.readings += 1;
                let stood = now.since(wait.since);
                if wait.readings < READINGS || stood < longest(reservation) {
                    return None;
                }
                known.times += 1;
                known.last = now;
                let again = known.times <= MAX_NEW_RESERVATIONS;
                let plain = again.then(|| Nanos(FIRST_NORMAL_TIME.0 * 10_u64.pow(known.times - 1)));
                known.state = State::Plain {
                    until: plain.map(|plain| now.saturating_add(plain)),
                };
                Some(Standstill { stood, plain })
            }
            _ => {
                *waits = reading.is_ready.then_some(Wait {
                    since: now,
                    run: reading.run,
                    readings: 1,
                });
                None
            }
        }
    }

    /// Returns true if a thread must be a normal one at `now`.
    pub(super) fn is_plain(&mut self, now: Nanos, thread: ThreadId) -> bool {
        let Some(known) = self.0.get_mut(&thread) else {
            return false;
        };
        match known.state {
            State::Reserved { .. } => false,
            State::Plain { until } if until.is_none_or(|until| now < until) => true,
            State::Plain { .. } => {
                known.state = State::Reserved { waits: None };
                false
            }
        }
    }

    /// Returns true if a thread must be a normal one for good.
    pub(super) fn has_given_up(&self, thread: ThreadId) -> bool {
        let known = self.0.get(&thread);
        known.is_some_and(|known| matches!(known.state, State::Plain { until: None }))
    }

    /// Forgets all threads but those that `which` picks.
    pub(super) fn retain(&mut self, which: impl Fn(ThreadId) -> bool) {
        self.0.retain(|thread, _| which(*thread));
    }
}

/// Returns how long a thread with this reservation that could run may get nothing.
fn longest(reservation: Periodic) -> Nanos {
    let Periodic {
        runtime, period, ..
    } = reservation;
    let debt = u128::from(OVERRUN.0) * u128::from(period.0) / u128::from(runtime.0.max(1));
    let debt = Nanos(u64::try_from(debt).unwrap_or(u64::MAX));
    let periods = Nanos(period.0.saturating_mul(PERIODS));
    ADDITIONAL_WAIT.saturating_add(periods).saturating_add(debt)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{id, reservation};

    const SECOND: u64 = 1_000;

    /// A thread with 1 ms in 4 ms that is looked at each second.
    #[derive(Default)]
    struct Bench {
        standstills: Standstills,
        now: u64,
    }

    impl Bench {
        /// Advances the time by some seconds; returns the time of a standstill, and its length.
        fn pass(
            &mut self,
            seconds: u64,
            reading: impl Fn(u64) -> Reading,
        ) -> Vec<(u64, Option<u64>)> {
            let mut found = Vec::new();
            for _ in 0..seconds {
                self.now += SECOND;
                if self.is_plain() {
                    continue;
                }
                let now = Nanos::from_millis(self.now);
                let reading = reading(self.now);
                let one = self
                    .standstills
                    .look(now, id(1), reservation(1_000, 4_000), reading);
                found.extend(one.map(|one| {
                    (
                        self.now / SECOND,
                        one.plain.map(|plain| plain.0 / 1_000_000_000),
                    )
                }));
            }
            found
        }

        fn is_plain(&mut self) -> bool {
            self.standstills
                .is_plain(Nanos::from_millis(self.now), id(1))
        }
    }

    fn stands(_: u64) -> Reading {
        Reading {
            is_ready: true,
            run: Nanos(7),
        }
    }

    fn runs(now: u64) -> Reading {
        Reading {
            is_ready: true,
            run: Nanos(now),
        }
    }

    fn sleeps(_: u64) -> Reading {
        Reading {
            is_ready: false,
            ..stands(0)
        }
    }

    #[test]
    fn running_or_sleeping_threads_are_never_at_standstill() {
        let mut bench = Bench::default();
        assert_eq!(bench.pass(100_000, runs), []);
        assert_eq!(bench.pass(100_000, sleeps), []);
        let now_and_then = |now: u64| {
            if (now / SECOND).is_multiple_of(3) {
                sleeps(now)
            } else {
                stands(now)
            }
        };
        assert_eq!(bench.pass(1_000, now_and_then), []);
        assert_eq!(bench.pass(1_000, |now| runs(now / (2 * SECOND))), []);
    }

    #[test]
    fn a_standstill_removes_the_class_ever_longer_then_for_good() {
        let mut bench = Bench::default();
        // 2 s, ten periods and what 10 ms too much take are 2.08 s; seen each second from 1 on.
        assert_eq!(bench.pass(4, stands), [(4, Some(10))]);
        assert!(bench.is_plain());
        assert_eq!(bench.pass(10 + 2, stands), []);
        assert_eq!(bench.pass(2, stands), [(17, Some(100))]);
        assert_eq!(bench.pass(100 + 3, stands), [(120, Some(1_000))]);
        assert_eq!(bench.pass(1_000 + 3, stands), [(1_123, None)]);
        assert!(bench.standstills.has_given_up(id(1)));
        assert_eq!(bench.pass(1_000_000, stands), []);
        assert!(bench.is_plain());
        bench.standstills.retain(|thread| thread != id(1));
        assert!(!bench.is_plain());
    }

    #[test]
    fn an_hour_without_standstill_resets_the_backoff() {
        let mut bench = Bench::default();
        assert_eq!(bench.pass(4, stands), [(4, Some(10))]);
        assert_eq!(bench.pass(3_610, runs), []);
        assert_eq!(bench.pass(4, stands), [(3_618, Some(10))]);
        assert_eq!(bench.pass(60, runs), []);
        assert_eq!(bench.pass(4, stands), [(3_682, Some(100))]);
    }

    #[test]
    fn a_machine_that_was_stopped_or_a_long_debt_is_no_standstill() {
        let mut bench = Bench::default();
        bench.pass(1, stands);
        bench.now += 3_600 * SECOND;
        assert_eq!(bench.pass(1, stands), []);
        assert_eq!(bench.pass(1, runs), []);
        // A thousandth of a CPU: 10 ms too much are paid for 10 s, and ten periods are 40 s.
        let small = reservation(4_000, 4_000_000);
        let mut standstills = Standstills::default();
        let mut look = |second| standstills.look(Nanos::from_secs(second), id(1), small, stands(0));
        assert!((0..52).all(|second| look(second).is_none()));
        assert_eq!(look(52).unwrap().stood, Nanos::from_secs(52));
    }
}

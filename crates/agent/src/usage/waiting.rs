//! The waits of a thread for a CPU, from readings of its counters. Pure.
//!
//! The kernel adds a wait to its counter when the wait ends. So the counter may grow by what was
//! waited before the interval, and does not grow while a thread still waits. Each reading limits
//! the sum to the time that has passed without the thread running, and a thread that is ready in
//! several readings, and has not run between them, still waits.

use tailbound_sys::thread::Schedstat;
use tailbound_units::Nanos;

/// A running thread's counter of CPU time grows with each tick, at least every 10 ms.
const TICKS: Nanos = Nanos::from_millis(20);

/// Reading of a thread.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reading {
    pub(super) at: Nanos,
    pub(super) counters: Schedstat,
    /// The thread is ready to run, or runs.
    pub(super) is_ready: bool,
}

/// The waits of a thread since the first reading.
#[derive(Debug, Clone, Copy)]
pub(super) struct Waiting {
    first: Reading,
    last: Reading,
    /// The waits that have ended.
    ended: Nanos,
    /// The first of the readings up to the last that found it ready, and its counters unchanged.
    still_since: Option<Nanos>,
}

impl Waiting {
    pub(super) fn since(first: Reading) -> Self {
        Self {
            first,
            last: first,
            ended: Nanos::ZERO,
            still_since: first.is_ready.then_some(first.at),
        }
    }

    /// Adds a reading, no earlier than the one before.
    pub(super) fn read(&mut self, reading: Reading) {
        let more = reading.counters.wait.since(self.last.counters.wait);
        let has_changed = reading.counters != self.last.counters;
        self.last = reading;
        self.ended = self.ended.saturating_add(more).min(self.idle());
        self.still_since = match self.still_since {
            _ if !reading.is_ready => None,
            Some(since) if !has_changed => Some(since),
            _ => Some(reading.at),
        };
    }

    /// Returns the moment of the last reading.
    pub(super) fn last_at(&self) -> Nanos {
        self.last.at
    }

    /// Returns the counters of the last reading.
    pub(super) fn counters(&self) -> Schedstat {
        self.last.counters
    }

    /// The time since the first reading.
    pub(super) fn passed(&self) -> Nanos {
        self.last.at.since(self.first.at)
    }

    /// The time since the first reading in which it did not run.
    fn idle(&self) -> Nanos {
        let ran = self.last.counters.run.since(self.first.counters.run);
        self.passed().saturating_sub(ran)
    }

    /// The wait that goes on.
    fn going_on(&self) -> Option<Nanos> {
        let wait = self.last.at.since(self.still_since?);
        (wait >= TICKS).then_some(wait)
    }

    /// Returns the time that it waited, never more than has passed.
    pub(super) fn total(&self) -> Nanos {
        let going_on = self.going_on().unwrap_or_default();
        self.ended.saturating_add(going_on).min(self.idle())
    }

    /// Returns the mean of its waits.
    pub(super) fn mean(&self) -> Nanos {
        let ended = self.last.counters.count;
        let ended = ended.saturating_sub(self.first.counters.count);
        let waits = ended.saturating_add(self.going_on().is_some().into());
        Nanos(self.total().0.checked_div(waits).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Nanos = Nanos::from_millis;

    /// Readings in milliseconds: at, ran, waited, times run, and whether it is ready.
    fn waiting(readings: &[(u64, u64, u64, u64, bool)]) -> (Nanos, Nanos) {
        let reading = |(at, run, wait, count, is_ready): (u64, u64, u64, u64, bool)| Reading {
            at: MS(at),
            counters: Schedstat {
                run: MS(run),
                wait: MS(wait),
                count,
            },
            is_ready,
        };
        let mut waiting = Waiting::since(reading(readings[0]));
        for one in &readings[1..] {
            waiting.read(reading(*one));
        }
        (waiting.total(), waiting.mean())
    }

    #[test]
    fn a_wait_that_began_before_the_interval_counts_from_its_start_on() {
        // 430 ms until 30 ms after the start, then it sleeps.
        let seen = waiting(&[
            (1_000, 7, 50, 3, true),
            (1_025, 7, 50, 3, true),
            (1_050, 12, 480, 4, false),
            (1_200, 12, 480, 4, false),
        ]);
        assert_eq!(seen, (MS(45), MS(45)));
        // With two readings it is at most all of the time in which it did not run.
        let seen = waiting(&[(1_000, 7, 50, 3, true), (1_200, 12, 480, 4, true)]);
        assert_eq!(seen, (MS(195), MS(195)));
    }

    #[test]
    fn an_unfinished_wait_counts_before_the_kernel_adds_it() {
        let still = |at| (at, 7, 50, 3, true);
        let seen = waiting(&[still(0), still(25), still(100), still(200)]);
        assert_eq!(seen, (MS(200), MS(200)));
        // It ran at first; since when it waits is known to a reading.
        let seen = waiting(&[
            (0, 0, 50, 3, true),
            (25, 25, 50, 3, true),
            (50, 30, 50, 3, true),
            (75, 30, 50, 3, true),
            (200, 30, 50, 3, true),
        ]);
        assert_eq!(seen, (MS(150), MS(150)));
    }

    #[test]
    fn a_running_or_sleeping_thread_has_no_wait() {
        let runs = |at| (at, 7 + at, 50, 3, true);
        let nothing = (Nanos::ZERO, Nanos::ZERO);
        assert_eq!(waiting(&[runs(0), runs(100), runs(200)]), nothing);
        let sleeps = |at| (at, 7, 50, 3, false);
        assert_eq!(waiting(&[sleeps(0), sleeps(100), sleeps(200)]), nothing);
        // It was woken just now.
        assert_eq!(
            waiting(&[sleeps(0), sleeps(100), (200, 7, 50, 3, true)]),
            nothing
        );
        // Its counter is a tick behind.
        assert_eq!(
            waiting(&[(0, 7, 50, 3, true), (4, 7, 50, 3, true)]),
            nothing
        );
    }

    #[test]
    fn waits_that_ended_have_their_mean() {
        let seen = waiting(&[
            (0, 0, 100, 10, false),
            (100, 20, 130, 14, false),
            (200, 40, 140, 20, false),
        ]);
        assert_eq!(seen, (MS(40), MS(4)));
    }
}

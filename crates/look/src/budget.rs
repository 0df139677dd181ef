//! The CPU budget of the measurement: when its costly programs are attached.
//!
//! A program at a tracepoint costs most by being called at all, so the budget is kept by detaching:
//! the programs are attached for a part of the time, and within that part everything is examined.
//! Their cost is counted by the kernel for 50 ms of each interval in which they are attached,
//! as counting costs time, too. No clock, no I/O: [`Budget::poll`] returns the next step, and the
//! caller takes it.

use std::collections::VecDeque;
use tailbound_units::Nanos;

/// The time for which the cost is counted.
const COUNT_TIME: Nanos = Nanos::from_millis(50);
/// The time from one count to the next while the programs stay attached.
const COUNT_INTERVAL: Nanos = Nanos::from_secs(1);
/// The same after a count that was above the budget.
const RECOUNT_INTERVAL: Nanos = Nanos::from_millis(100);
/// The shortest time that the programs are attached: most slow requests are shorter by far.
const MIN_ATTACHED: Nanos = Nanos::from_millis(250);
/// The programs are attached for at least one in this many parts of the time.
const MAX_PARTS: u64 = 64;
/// The programs that are detached have at least one in this many parts of the budget.
const MIN_LEFT: u64 = 4;
const SECOND: u128 = 1_000_000_000;

/// A step that the caller takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Attach the programs.
    Attach,
    /// Begin to count the run time of the programs, as the kernel does when asked.
    BeginCount,
    /// End that, and [report](Budget::report) the result.
    EndCount,
    /// Detach the programs.
    Detach,
}

/// The run time that was counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cost {
    /// The time for which it was counted.
    pub time: Nanos,
    /// The run time of programs that stay attached.
    pub steady: Nanos,
    /// The run time of programs that are detached.
    pub costly: Nanos,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Attached, and counted from `next` on.
    Attached {
        next: Nanos,
    },
    Counting {
        until: Nanos,
    },
    /// The result of the count was not reported yet.
    Counted,
    /// Attached until then.
    Leaving {
        until: Nanos,
    },
    Detached {
        until: Nanos,
    },
}

/// Keeps a budget.
#[derive(Debug)]
pub struct Budget {
    /// The run time that is allowed in a second.
    limit: Nanos,
    phase: Phase,
    /// The begin of this interval in which the programs are attached; `None` while they are not.
    since: Option<Nanos>,
    /// The intervals before in which they were attached.
    before: VecDeque<(Nanos, Nanos)>,
    /// The run time in a second of programs that stay attached.
    steady: Nanos,
    /// The run time in a second of the others while they are attached.
    costly: Nanos,
    /// The same by the last count alone.
    last: Option<(Nanos, Nanos)>,
}

impl Budget {
    /// A budget of a run time in each second, for programs that are attached since `now`.
    pub fn new(limit: Nanos, now: Nanos) -> Self {
        Self {
            limit,
            phase: Phase::Attached { next: now },
            since: Some(now),
            before: VecDeque::new(),
            steady: Nanos::ZERO,
            costly: Nanos::ZERO,
            last: None,
        }
    }

    /// Returns the next step that is due, to be called again until there is none.
    pub fn poll(&mut self, now: Nanos) -> Option<Step> {
        match self.phase {
            Phase::Attached { next } if now >= next => {
                let until = now.saturating_add(COUNT_TIME);
                self.phase = Phase::Counting { until };
                Some(Step::BeginCount)
            }
            Phase::Counting { until } if now >= until => {
                self.phase = Phase::Counted;
                Some(Step::EndCount)
            }
            Phase::Leaving { until } if now >= until => {
                self.detach(now);
                Some(Step::Detach)
            }
            Phase::Detached { until } if now >= until => {
                self.since = Some(now);
                self.phase = Phase::Attached { next: now };
                Some(Step::Attach)
            }
            _ => None,
        }
    }

    fn detach(&mut self, now: Nanos) {
        let since = self.since.take().unwrap_or(now);
        self.before.push_back((since, now));
        // It was cheap enough for all but the last part of a long interval.
        let attached = now.since(since).min(COUNT_INTERVAL);
        let until = now.saturating_add(self.pause(attached));
        self.phase = Phase::Detached { until };
    }

    /// The pause that an attached time of this length needs.
    fn pause(&self, attached: Nanos) -> Nanos {
        // If the steady ones take it all, something is examined nevertheless.
        let left = self
            .limit
            .saturating_sub(self.steady)
            .max(Nanos(self.limit.0 / MIN_LEFT));
        let left = u128::from(left.0);
        let costly = u128::from(self.costly.0);
        if costly <= left {
            return Nanos::ZERO;
        }
        let attached = u128::from(attached.0);
        let whole = attached * costly / left.max(1);
        let whole = whole.min(attached * u128::from(MAX_PARTS));
        Nanos(u64::try_from(whole - attached).unwrap_or(u64::MAX))
    }

    /// Takes the cost that was counted; `None` if it could not be, and then the programs stay attached.
    /// It falls by halves, as load comes in bursts, and rises to what two counts in a row agree on: a
    /// hypervisor that takes the CPU within one run makes a single count too large.
    pub fn report(&mut self, cost: Option<Cost>, now: Nanos) {
        if let Some(cost) = cost {
            let in_a_second = |run: Nanos| {
                let time = u128::from(run.0) * SECOND / u128::from(cost.time.0.max(1));
                Nanos(u64::try_from(time).unwrap_or(u64::MAX))
            };
            let (steady, costly) = (in_a_second(cost.steady), in_a_second(cost.costly));
            let last = self
                .last
                .replace((steady, costly))
                .unwrap_or((steady, costly));
            let smooth = |before: Nanos, now: Nanos, last: Nanos| {
                now.min(last)
                    .max(Nanos(before.0 / 2 + now.0 / 2).min(before))
            };
            self.steady = smooth(self.steady, steady, last.0);
            self.costly = smooth(self.costly, costly, last.1);
        }
        let since = self.since.unwrap_or(now);
        self.phase = if self.pause(COUNT_INTERVAL) == Nanos::ZERO {
            let is_doubtful = self
                .last
                .is_some_and(|(steady, costly)| steady.saturating_add(costly) > self.limit);
            let interval = if is_doubtful {
                RECOUNT_INTERVAL
            } else {
                COUNT_INTERVAL
            };
            let next = now.saturating_add(interval);
            Phase::Attached { next }
        } else {
            let until = now.max(since.saturating_add(MIN_ATTACHED));
            Phase::Leaving { until }
        };
    }

    /// The run time in a second of all programs while they are attached, by the last counts.
    pub fn cost(&self) -> Nanos {
        self.steady.saturating_add(self.costly)
    }

    /// The part of an interval in which the programs were attached.
    pub fn attached(&self, from: Nanos, until: Nanos) -> Nanos {
        let before = self.before.iter().copied();
        let current = self.since.map(|since| (since, until.max(since)));
        let overlap = |(begin, end): (Nanos, Nanos)| end.min(until).since(begin.max(from).min(end));
        Nanos(before.chain(current).map(|it| overlap(it).0).sum())
    }

    /// Returns true if the programs were attached in all of an interval.
    pub fn covers(&self, from: Nanos, until: Nanos) -> bool {
        let mut before = self.before.iter();
        self.since.is_some_and(|since| since <= from)
            || before.any(|(begin, end)| *begin <= from && until <= *end)
    }

    /// Forgets intervals that ended before a moment.
    pub fn forget(&mut self, moment: Nanos) {
        self.before.retain(|(_, end)| *end > moment);
    }
}

#[cfg(test)]
mod tests;

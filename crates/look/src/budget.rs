//! The CPU budget of the measurement: when its costly programs are attached.
//!
//! A program at a tracepoint costs most by being called at all, so the budget is kept by detaching:
//! the programs are attached for a part of the time, and within that part everything is examined.
//! Their cost is counted by the kernel for 50 ms of each interval in which they are attached,
//! as counting costs time, too. The CPU time of the process that reads the measurements is a part of
//! the budget.
//!
//! Programs that time soft interrupts run once for many packets if there are many, so they stay attached if
//! they are cheap; else they are detached with the programs of packets.
//!
//! Programs of waits for a CPU run at each switch between threads. They stay attached while those of packets
//! are detached, for as long as the rest of the budget lasts.
//!
//! No clock, no I/O: [`Budget::poll`] returns the next step, and the caller takes it.

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
const MIN_LEFT: u64 = 8;
/// The programs of soft interrupts stay attached if they take one in this many parts of what is left to them
/// and to those of packets, or less. The first number is for those that did before.
const CHEAP_PART: [u64; 2] = [2, 3];
/// The CPU time of the process is charged up to one in this many parts of the budget: above that, a smaller
/// sample would leave too little to judge.
const MAX_OWN: u64 = 2;
/// The seconds over which the CPU time of the process is averaged.
const OWN_SECONDS: usize = 10;
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
    /// Detach the programs of packets, and those of soft interrupts unless [they are
    /// kept](Budget::keeps_interrupts).
    Detach,
    /// Detach the programs of soft interrupts, too, which were kept and have become costly.
    DetachInterrupts,
    /// Detach all programs: what was left of the budget is used up.
    DetachWaits,
}

/// The run time that was counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cost {
    /// The time for which it was counted.
    pub time: Nanos,
    /// The run time of programs of waits for a CPU.
    pub waits: Nanos,
    /// The run time of programs that time soft interrupts.
    pub interrupts: Nanos,
    /// The run time of programs of packets.
    pub packets: Nanos,
}

impl Cost {
    /// The same in a second.
    fn rates(&self) -> Rates {
        let Self { time, .. } = *self;
        Rates([self.waits, self.interrupts, self.packets].map(|run| in_a_second(run, time)))
    }
}

/// Run times in a second: of programs of waits, of those that time soft interrupts, and of those of packets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Rates([Nanos; 3]);

impl Rates {
    fn sum(self) -> Nanos {
        self.0.into_iter().fold(Nanos::ZERO, Nanos::saturating_add)
    }

    /// These after a count, `now`, that followed another, `last`: they fall by halves, as load comes in bursts,
    /// and rise to what two counts in a row agree on.
    fn after(self, now: Self, last: Self) -> Self {
        let smooth = |at: usize| {
            let (before, now, last) = (self.0[at], now.0[at], last.0[at]);
            now.min(last)
                .max(Nanos(before.0 / 2 + now.0 / 2).min(before))
        };
        Self(std::array::from_fn(smooth))
    }
}

fn in_a_second(run: Nanos, time: Nanos) -> Nanos {
    let time = u128::from(run.0) * SECOND / u128::from(time.0.max(1));
    Nanos(u64::try_from(time).unwrap_or(u64::MAX))
}

/// The intervals in which programs were attached.
#[derive(Debug)]
pub struct Spans {
    /// The begin of this interval; `None` while they are detached.
    since: Option<Nanos>,
    /// The intervals before.
    before: VecDeque<(Nanos, Nanos)>,
}

impl Spans {
    const fn since(now: Nanos) -> Self {
        Self {
            since: Some(now),
            before: VecDeque::new(),
        }
    }

    /// Begins an interval unless one has begun.
    fn begin(&mut self, now: Nanos) {
        self.since.get_or_insert(now);
    }

    /// Ends the interval, if one has begun; returns its begin.
    fn end(&mut self, now: Nanos) -> Nanos {
        let Some(since) = self.since.take() else {
            return now;
        };
        self.before.push_back((since, now));
        since
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
    /// The programs of packets are detached, and the others counted from `next` on.
    Detached {
        next: Nanos,
    },
    /// The same, and the programs of soft interrupts are due to be detached.
    Dropping,
    /// All are detached.
    Resting,
}

/// A pause of the programs of packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Pause {
    /// The moment at which the programs of waits are detached, too, if it is before the end.
    waits_until: Nanos,
    /// The end.
    until: Nanos,
}

/// Keeps a budget.
#[derive(Debug)]
pub struct Budget {
    /// The CPU time that is allowed in a second.
    limit: Nanos,
    phase: Phase,
    packets: Spans,
    interrupts: Spans,
    waits: Spans,
    /// True if programs that time soft interrupts are cheap enough to stay attached.
    keeps_interrupts: bool,
    /// The last pause.
    pause: Pause,
    /// The run times while all programs are attached.
    rates: Rates,
    /// The same by the last count alone.
    last: Option<Rates>,
    began: Nanos,
    /// The CPU time of the process at the end of each of the last seconds, with the moment.
    spent: VecDeque<(Nanos, Nanos)>,
    /// The CPU time of the process in a second.
    own: Nanos,
}

impl Budget {
    /// A budget of a CPU time in each second, for programs that are attached since `now`.
    pub fn new(limit: Nanos, now: Nanos) -> Self {
        Self {
            limit,
            phase: Phase::Attached { next: now },
            packets: Spans::since(now),
            interrupts: Spans::since(now),
            waits: Spans::since(now),
            keeps_interrupts: false,
            pause: Pause {
                waits_until: now,
                until: now,
            },
            rates: Rates::default(),
            last: None,
            began: now,
            spent: VecDeque::new(),
            own: Nanos::ZERO,
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
            Phase::Dropping => {
                self.interrupts.end(now);
                let next = self.pause.until;
                self.phase = Phase::Detached { next };
                Some(Step::DetachInterrupts)
            }
            Phase::Detached { .. } | Phase::Resting if now >= self.pause.until => {
                self.packets.begin(now);
                self.interrupts.begin(now);
                self.waits.begin(now);
                self.phase = Phase::Attached { next: now };
                Some(Step::Attach)
            }
            Phase::Detached { .. } if now >= self.pause.waits_until => {
                self.interrupts.end(now);
                self.waits.end(now);
                self.phase = Phase::Resting;
                Some(Step::DetachWaits)
            }
            Phase::Detached { next } if self.keeps_interrupts && now >= next => {
                let until = now.saturating_add(COUNT_TIME);
                self.phase = Phase::Counting { until };
                Some(Step::BeginCount)
            }
            _ => None,
        }
    }

    fn detach(&mut self, now: Nanos) {
        let since = self.packets.end(now);
        if !self.keeps_interrupts {
            self.interrupts.end(now);
        }
        // It was cheap enough for all but the last part of a long interval.
        let attached = now.since(since).min(COUNT_INTERVAL);
        let pause = self.pause(attached);
        self.pause = Pause {
            waits_until: now.saturating_add(self.waits_within(attached, pause)),
            until: now.saturating_add(pause),
        };
        let next = now.saturating_add(COUNT_INTERVAL);
        self.phase = Phase::Detached { next };
    }

    /// The part of the budget that is left to programs: at least half of it.
    fn left(&self) -> Nanos {
        self.limit.saturating_sub(self.own)
    }

    /// The same without that of the programs of waits.
    fn left_by_waits(&self) -> Nanos {
        let Rates([waits, ..]) = self.rates;
        self.left().saturating_sub(waits)
    }

    /// The pause of the programs of packets that an attached time of this length needs.
    fn pause(&self, attached: Nanos) -> Nanos {
        let Rates([_, interrupts, packets]) = self.rates;
        let (kept, detached) = if self.keeps_interrupts {
            (interrupts, packets)
        } else {
            (Nanos::ZERO, interrupts.saturating_add(packets))
        };
        // If the others take it all, something is examined nevertheless.
        let least = Nanos(self.limit.0 / MIN_LEFT);
        let left = self.left_by_waits().saturating_sub(kept).max(least);
        let whole = |rate: Nanos, left: Nanos| {
            u128::from(attached.0) * u128::from(rate.0) / u128::from(left.0.max(1))
        };
        // All programs are detached for the rest of it if they have to.
        let whole = whole(detached, left).max(whole(self.rates.sum(), self.left()));
        let longest = u128::from(attached.0) * u128::from(MAX_PARTS);
        let pause = whole.min(longest).saturating_sub(attached.0.into());
        Nanos(u64::try_from(pause).unwrap_or(u64::MAX))
    }

    /// The part of a pause in which the programs of waits stay attached, and those of soft interrupts if they
    /// are kept: until the budget of the attached time before and of the pause is used up.
    fn waits_within(&self, attached: Nanos, pause: Nanos) -> Nanos {
        let Rates([waits, interrupts, _]) = self.rates;
        let kept = if self.keeps_interrupts {
            interrupts
        } else {
            Nanos::ZERO
        };
        let budget = u128::from(self.left().0) * u128::from(attached.saturating_add(pause).0);
        let spent = u128::from(self.rates.sum().0) * u128::from(attached.0);
        let time = budget.saturating_sub(spent) / u128::from(waits.saturating_add(kept).0.max(1));
        Nanos(u64::try_from(time).unwrap_or(u64::MAX)).min(pause)
    }

    /// Takes the cost that was counted; `None` if it could not be, and then the programs stay attached.
    /// It rises to what two counts in a row agree on, since a hypervisor that takes the CPU within one run
    /// makes a single count too large.
    pub fn report(&mut self, cost: Option<Cost>, now: Nanos) {
        let kept = self.keeps_interrupts;
        if let Some(cost) = cost {
            self.count(&cost);
        }
        let Some(since) = self.packets.since else {
            self.phase = if kept && !self.keeps_interrupts {
                Phase::Dropping
            } else {
                let next = now.saturating_add(COUNT_INTERVAL);
                Phase::Detached { next }
            };
            return;
        };
        self.phase = if self.pause(COUNT_INTERVAL) == Nanos::ZERO {
            let is_doubtful = self
                .last
                .is_some_and(|last| last.sum().saturating_add(self.own) > self.limit);
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

    fn count(&mut self, cost: &Cost) {
        let mut rates = cost.rates();
        let last = self.last.unwrap_or(rates);
        if self.packets.since.is_none() {
            // It was not counted.
            rates.0[2] = last.0[2];
        }
        self.last = Some(rates);
        self.rates = self.rates.after(rates, last);
        let Rates([_, interrupts, _]) = self.rates;
        let part = CHEAP_PART[usize::from(!self.keeps_interrupts)];
        self.keeps_interrupts = interrupts.0.saturating_mul(part) <= self.left_by_waits().0;
    }

    /// Takes the CPU time of the process until now. The time of its first second, in which everything is read
    /// for the first time, is not counted.
    pub fn spend(&mut self, time: Nanos, now: Nanos) {
        let last = self.spent.back().map_or(self.began, |(at, _)| *at);
        if now.since(last) < COUNT_INTERVAL {
            return;
        }
        self.spent.push_back((now, time));
        if self.spent.len() > OWN_SECONDS + 1 {
            self.spent.pop_front();
        }
        if let Some((at, before)) = self.spent.front() {
            let own = in_a_second(time.since(*before), now.since(*at));
            self.own = own.min(Nanos(self.limit.0 / MAX_OWN));
        }
    }

    /// The CPU time in a second of all programs while they are attached, by the last counts, and of the
    /// process.
    pub fn cost(&self) -> Nanos {
        self.rates.sum().saturating_add(self.own)
    }

    /// Returns true if programs that time soft interrupts stay attached with those of waits when those of
    /// packets do not.
    pub const fn keeps_interrupts(&self) -> bool {
        self.keeps_interrupts
    }

    /// The intervals in which packets were examined.
    pub const fn packets(&self) -> &Spans {
        &self.packets
    }

    /// The intervals in which soft interrupts were timed.
    pub const fn interrupts(&self) -> &Spans {
        &self.interrupts
    }

    /// The intervals in which waits for a CPU were examined.
    pub const fn waits(&self) -> &Spans {
        &self.waits
    }

    /// Forgets intervals that ended before a moment.
    pub fn forget(&mut self, moment: Nanos) {
        for spans in [&mut self.packets, &mut self.interrupts, &mut self.waits] {
            spans.before.retain(|(_, end)| *end > moment);
        }
    }
}

#[cfg(test)]
mod tests;

//! The probe of one vCPU: from sleeps to a verdict.

use crate::config::Stop;
use crate::rule::Rule;
use crate::verdict::{NodeVerdict, Reason, ReasonedVerdict};
use crate::witness::{Cause, Ledger, StealFault, Witness};
use serde::Serialize;
use tailbound_units::Nanos;

/// A sleep, on a monotonic clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// Start of the sleep.
    pub begin: Nanos,
    /// Moment when the thread ran again.
    pub end: Nanos,
}

/// Counts of sleeps, of late ones, and of their causes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Number of sleeps.
    pub samples: u64,
    /// The late ones.
    pub late: u64,
    /// Late because other threads of this guest ran.
    pub ours: u64,
    /// Late because the hypervisor ran others.
    pub stolen: u64,
    /// Late because the CPU quota of the probe's control group was used up.
    pub quota: u64,
    /// Late without an explanation.
    pub unexplained: u64,
}

/// Limitation of a verdict.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Note {
    /// The thread's run-queue wait cannot be read: what this guest does itself
    /// looks like its neighbours' doing.
    NoWait,
    /// Neither the vCPU's use nor its steal can be read.
    NoCpu,
    /// Steal is zero since boot: this hypervisor reports none, or has not stolen
    /// yet. Late sleeps of its making are then unexplained.
    NoSteal,
    /// Steal made no sense and was not believed: its late sleeps are unexplained.
    Steal(StealFault),
    /// The CPU quota of the probe's control group was used up meanwhile.
    Quota {
        /// The CPU time in each period.
        runtime: Nanos,
        /// The period.
        period: Nanos,
    },
    /// A sleep of this length: the guest was paused or migrated, or its clock was set. It counts as
    /// one late sleep.
    Pause(Nanos),
}

/// Readings take at most one part in this number of the time: `/proc/stat` is long on large guests.
const READINGS: u64 = 500;
/// Longest interval between readings, independent of their cost.
const MAX_READING_INTERVAL: Nanos = Nanos::from_secs(1);
/// Shortest sleep that counts as a pause of the VM.
const MIN_PAUSE: Nanos = Nanos::from_secs(1);

/// A probe of one vCPU. Feed it each sleep with [`Probe::sample`] until that
/// returns a verdict.
///
/// Each late sleep counts against GOOD, as in Algorithm 1. It counts against the neighbours unless
/// this guest caused it: because the thread waited in its own run queue, because its CPU quota was
/// used up, or, if the guest used more of the vCPU than [`crate::Config::busy`], because the delay
/// has no explanation. If the two counts lead to different answers the verdict is INCONCLUSIVE. The
/// probe stops with this verdict as soon as the guest's own late sleeps exceed the high mark.
#[derive(Debug, Clone)]
pub struct Probe {
    rule: Rule,
    ledger: Ledger,
    counts: Counts,
    begin: Nanos,
    /// The end of the last sleep.
    now: Nanos,
    due: Nanos,
    /// Duration of a reading, if known.
    reading: Option<Nanos>,
    /// True if a reading followed the last sleep.
    has_read: bool,
    longest: Nanos,
}

impl Probe {
    /// Returns a probe that begins `now`, on the clock of its samples. Later readings of
    /// the witness are compared with those that it has now.
    pub fn new(rule: Rule, now: Nanos, witness: &mut impl Witness) -> Self {
        let mut probe = Self {
            rule,
            ledger: Ledger::default(),
            counts: Counts::default(),
            begin: now,
            now,
            due: now,
            reading: None,
            has_read: true,
            longest: Nanos::ZERO,
        };
        probe.look(witness);
        probe
    }

    /// Handles one sleep. Reads the witness after each late one. Other readings follow at intervals
    /// of at least [`crate::Config::late`], or at longer intervals if readings are slow. Without a
    /// reading the call takes a few comparisons.
    ///
    /// Returns `Some` at the end; no sleep may follow.
    pub fn sample(
        &mut self,
        sample: Sample,
        witness: &mut impl Witness,
    ) -> Option<ReasonedVerdict> {
        if sample.begin < self.now || sample.end < sample.begin {
            let by = self
                .now
                .since(sample.begin)
                .max(sample.begin.since(sample.end));
            return Some(inconclusive(Reason::Backwards { by }));
        }
        if std::mem::take(&mut self.has_read) {
            // Nothing else happens between two sleeps.
            let took = sample.begin.since(self.now);
            self.reading = Some(self.reading.map_or(took, |least| least.min(took)));
        }
        self.now = sample.end;
        self.counts.samples += 1;
        let duration = sample.end.since(sample.begin);
        if duration >= self.rule.config().late {
            self.late(duration, witness);
            return self.decide();
        }
        self.ledger
            .in_time(duration.since(self.rule.config().sleep));
        if self.now >= self.due {
            let by = self.look(witness);
            if by > Nanos::ZERO {
                return Some(inconclusive(Reason::Suspended { by }));
            }
        } else if self.progress() < self.rule.good_at(self.counts.late) {
            return None;
        }
        self.decide()
    }

    /// Returns how many sleeps of the whole run this one has behind it, by their number or by
    /// the time.
    fn progress(&self) -> u64 {
        let elapsed = self.now.since(self.begin);
        self.rule.progress(self.counts.samples, elapsed)
    }

    /// Takes the readings while nothing is late; returns the time for which the guest was
    /// suspended.
    fn look(&mut self, witness: &mut impl Witness) -> Nanos {
        self.ledger.thread(self.counts.samples, true, witness);
        self.ledger.throttled(self.counts.samples, true, witness);
        self.ledger.cpu(self.now, witness);
        self.read();
        self.ledger.suspended(witness)
    }

    /// Sets the time of the next readings. The steal before the start of a late sleep must be small
    /// compared with the threshold of lateness.
    fn read(&mut self) {
        self.has_read = true;
        let reading = self.reading.unwrap_or_default();
        let apart = Nanos(reading.as_nanos().saturating_mul(READINGS));
        let apart = apart.max(self.rule.config().late).min(MAX_READING_INTERVAL);
        self.due = self.now.saturating_add(apart);
    }

    fn late(&mut self, duration: Nanos, witness: &mut impl Witness) {
        self.counts.late += 1;
        self.longest = self.longest.max(duration);
        let excess = duration.since(self.rule.config().sleep);
        let wait = self.ledger.thread(self.counts.samples, false, witness);
        let throttled = self.ledger.throttled(self.counts.samples, false, witness);
        let steal = self.ledger.cpu(self.now, witness);
        self.read();
        match self.ledger.cause(excess, wait, steal, throttled) {
            Cause::Ours => self.counts.ours += 1,
            Cause::Quota => self.counts.quota += 1,
            Cause::Stolen => self.counts.stolen += 1,
            Cause::Unexplained => self.counts.unexplained += 1,
        }
        if self.ledger.fault().is_some() {
            // What was believed before is no better.
            self.counts.unexplained += std::mem::take(&mut self.counts.stolen);
        }
    }

    fn decide(&self) -> Option<ReasonedVerdict> {
        let config = self.rule.config();
        let Counts {
            samples,
            late,
            stolen,
            ..
        } = self.counts;
        let against = self.against();
        let own = late - against;
        if against > config.high_mark {
            return Some(ReasonedVerdict {
                outcome: NodeVerdict::Bad,
                reason: Reason::Many {
                    late: against,
                    stolen,
                    samples,
                },
            });
        }
        if own > config.high_mark {
            return Some(inconclusive(self.own(own)));
        }
        let progress = self.progress();
        if progress < self.rule.good_at(late) {
            let over = self.now.since(self.begin) >= config.time_limit;
            return over.then(|| self.time_is_over());
        }
        let outcome = self.rule.answer(late);
        if outcome != self.rule.answer(against) {
            return Some(inconclusive(self.own(own)));
        }
        let reason = match config.stop {
            Stop::Early { confidence } if progress < config.samples => Reason::Few {
                late,
                samples,
                confidence,
            },
            _ => Reason::Whole { late, samples },
        };
        Some(ReasonedVerdict { outcome, reason })
    }

    /// Returns the number of late sleeps that count against the neighbours.
    fn against(&self) -> u64 {
        let busy = self
            .busy()
            .is_some_and(|busy| busy > self.rule.config().busy);
        let doubtful = if busy { self.counts.unexplained } else { 0 };
        self.counts.late - self.counts.ours - self.counts.quota - doubtful
    }

    /// Returns the reason of a verdict that `own` late sleeps of this guest's decide.
    fn own(&self, own: u64) -> Reason {
        if let Some(quota) = self.ledger.used_up_quota()
            && self.counts.quota.saturating_mul(2) >= own
        {
            return Reason::Quota {
                by_quota: self.counts.quota,
                late: self.counts.late,
                runtime: quota.runtime,
                period: quota.period,
            };
        }
        Reason::Own {
            own,
            late: self.counts.late,
            busy_percent: (self.busy().unwrap_or(0.0) * 100.0).round() as u8,
        }
    }

    fn time_is_over(&self) -> ReasonedVerdict {
        let config = self.rule.config();
        inconclusive(Reason::TimeLimit {
            samples: self.counts.samples,
            wanted: config.samples,
            limit: config.time_limit,
        })
    }

    /// Returns the verdict of a run that is broken off now.
    pub fn interrupt(&self) -> ReasonedVerdict {
        inconclusive(Reason::Interrupted {
            samples: self.counts.samples,
        })
    }

    /// Returns the counts so far.
    pub const fn counts(&self) -> Counts {
        self.counts
    }

    /// Returns the share of the vCPU that others in this guest used so far; `None` before
    /// half a second, or where it cannot be read.
    pub fn busy(&self) -> Option<f64> {
        self.ledger.busy()
    }

    /// Returns what limits the verdict.
    pub fn notes(&self) -> Vec<Note> {
        let ledger = &self.ledger;
        let steal = match ledger.fault() {
            Some(fault) => Some(Note::Steal(fault)),
            None if !ledger.knows_cpu() => Some(Note::NoCpu),
            None => {
                (ledger.total_steal().unwrap_or_default() == Nanos::ZERO).then_some(Note::NoSteal)
            }
        };
        let wait = (!ledger.knows_thread()).then_some(Note::NoWait);
        let pause = (self.longest >= MIN_PAUSE).then_some(Note::Pause(self.longest));
        let quota = ledger.used_up_quota().map(|quota| Note::Quota {
            runtime: quota.runtime,
            period: quota.period,
        });
        [wait, steal, quota, pause].into_iter().flatten().collect()
    }
}

fn inconclusive(reason: Reason) -> ReasonedVerdict {
    ReasonedVerdict {
        outcome: NodeVerdict::Inconclusive,
        reason,
    }
}

#[cfg(test)]
mod tests;

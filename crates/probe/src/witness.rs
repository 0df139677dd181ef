//! The cause of a late sleep.
//!
//! A sleep has one of four causes. Another thread of the guest ran (*ours*): the run-queue wait
//! grew. The hypervisor ran another guest (*stolen*): the steal grew. The CPU quota of the control
//! group was used up (*quota*): the throttled time grew. No reading explains it (*unexplained*):
//! the hypervisor reports no steal, or a timer was late.
//!
//! A reading explains a late sleep if it grew by at least half of the sleep's excess. The run-queue
//! wait must exceed its usual growth by that. Steal must exceed the excess of the timely sleeps
//! since its last reading; its usual growth is not learnt, because a neighbour may be in step with
//! the readings. Steal is checked first, because a thread in a run queue of a vCPU without a CPU
//! waits, too. The quota comes before the run-queue wait, which most kernels also count while the
//! group is throttled.

use tailbound_units::Nanos;

/// Times of a thread so far (`/proc/thread-self/schedstat`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ThreadTime {
    /// Time on a CPU.
    pub run: Nanos,
    /// Time in a run queue.
    pub wait: Nanos,
}

/// Times of a vCPU so far (its line in `/proc/stat`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CpuTime {
    /// Time in which it computed for threads and interrupts of this guest.
    pub busy: Nanos,
    /// Time in which it could have computed, and the hypervisor ran others. `None` if the kernel
    /// does not count steal.
    pub steal: Option<Nanos>,
}

/// The CPU quota of the probe's control group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuotaTime {
    /// The CPU time of all its threads together in each period.
    pub runtime: Nanos,
    /// The period.
    pub period: Nanos,
    /// Time for which the kernel has throttled the group so far, summed up over CPUs.
    pub throttled: Nanos,
}

/// Readings of the machine besides how long sleeps took. Each reading may be missing: a
/// guest without `/proc` is judged, too, but no late sleep is attributed.
pub trait Witness {
    /// Returns the times of the sleeping thread so far.
    fn thread(&mut self) -> Option<ThreadTime>;
    /// Returns the times of the thread's vCPU so far.
    fn cpu(&mut self) -> Option<CpuTime>;
    /// Returns the time for which the guest was suspended since it booted.
    fn suspended(&mut self) -> Option<Nanos>;
    /// The quota that limits the thread, the tightest of several; none by default.
    fn quota(&mut self) -> Option<QuotaTime> {
        None
    }
}

/// A witness without any reading.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoWitness;

impl Witness for NoWitness {
    fn thread(&mut self) -> Option<ThreadTime> {
        None
    }
    fn cpu(&mut self) -> Option<CpuTime> {
        None
    }
    fn suspended(&mut self) -> Option<Nanos> {
        None
    }
}

/// Reason why steal is not reliable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StealFault {
    /// The total went back, as it does on some hosts after a live migration.
    Backwards,
    /// Steal grew by more than the time that passed.
    MoreThanTime,
}

/// The cause of a late sleep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    Ours,
    Stolen,
    Quota,
    Unexplained,
}

/// `/proc/stat` shows ticks of 10 ms: two readings may be off by one each.
const TICKS: Nanos = Nanos::from_millis(20);
/// A timer and an idle state make a sleep that much too long; what takes longer may be steal.
const TIMER: Nanos = Nanos::from_micros(100);
/// The difference of two clocks is never exact; a suspension takes far longer.
const SUSPENDED: Nanos = Nanos::from_millis(1);
/// Spans below this are too short for a share that is counted in ticks.
const SHORTEST_SPAN: Nanos = Nanos::from_millis(500);

/// A total that grows, and how fast it does when nothing is late.
#[derive(Debug, Clone, Copy, Default)]
struct Growth {
    previous: Option<(u64, Nanos)>,
    quiet_span: u64,
    usual: Nanos,
}

impl Growth {
    /// Takes a reading after `place` sleeps. Returns the growth since the last reading, beyond the
    /// usual growth.
    fn read(&mut self, place: u64, total: Nanos, quiet: bool) -> Nanos {
        let Some((before, old)) = self.previous.replace((place, total)) else {
            return Nanos::ZERO;
        };
        let (span, growth) = (place.saturating_sub(before), total.since(old));
        if quiet {
            self.quiet_span = self.quiet_span.saturating_add(span);
            self.usual = self.usual.saturating_add(growth);
            return Nanos::ZERO;
        }
        let usual = u128::from(self.usual.as_nanos()) * u128::from(span)
            / u128::from(self.quiet_span.max(1));
        growth.saturating_sub(Nanos(u64::try_from(usual).unwrap_or(u64::MAX)))
    }
}

/// All readings so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ledger {
    wait: Growth,
    throttled: Growth,
    quota: Option<QuotaTime>,
    /// The held-up time at the first reading.
    throttled_before: Option<Nanos>,
    /// Steal since the last reading that may be hidden in sleeps in time.
    lost: Nanos,
    run: Nanos,
    first: Option<(Nanos, CpuTime, Nanos)>,
    last: Option<(Nanos, CpuTime, Nanos)>,
    suspended: Option<Nanos>,
    fault: Option<StealFault>,
}

impl Ledger {
    /// Reads the thread's times; returns how much longer than usual it waited.
    pub(crate) fn thread(
        &mut self,
        samples: u64,
        quiet: bool,
        witness: &mut impl Witness,
    ) -> Nanos {
        let Some(time) = witness.thread() else {
            return Nanos::ZERO;
        };
        self.run = time.run;
        self.wait.read(samples, time.wait, quiet)
    }

    /// Reads the quota; returns for how much longer than usual the group was held up.
    pub(crate) fn throttled(
        &mut self,
        samples: u64,
        quiet: bool,
        witness: &mut impl Witness,
    ) -> Nanos {
        let Some(quota) = witness.quota() else {
            return Nanos::ZERO;
        };
        self.quota = Some(quota);
        self.throttled_before.get_or_insert(quota.throttled);
        self.throttled.read(samples, quota.throttled, quiet)
    }

    /// Returns the quota, if it was used up since the start.
    pub(crate) fn used_up_quota(&self) -> Option<QuotaTime> {
        let before = self.throttled_before?;
        self.quota.filter(|quota| quota.throttled > before)
    }

    /// Records a sleep in time that took `excess` too long: part of the excess may be steal.
    pub(crate) fn in_time(&mut self, excess: Nanos) {
        if excess >= TIMER {
            self.lost = self.lost.saturating_add(excess);
        }
    }

    /// Reads the vCPU's times. Returns the steal since the last reading, without the steal that may
    /// be hidden in sleeps in time.
    pub(crate) fn cpu(&mut self, at: Nanos, witness: &mut impl Witness) -> Nanos {
        let Some(time) = witness.cpu() else {
            return Nanos::ZERO;
        };
        let lost = std::mem::take(&mut self.lost);
        let reading = (at, time, self.run);
        let previous = self.last.replace(reading);
        self.first.get_or_insert(reading);
        let (
            Some(steal),
            Some((
                before,
                CpuTime {
                    steal: Some(old), ..
                },
                _,
            )),
        ) = (time.steal, previous)
        else {
            return Nanos::ZERO;
        };
        if steal < old {
            self.fault = Some(StealFault::Backwards);
        } else if steal.since(old) > at.since(before).saturating_add(TICKS) {
            self.fault = Some(StealFault::MoreThanTime);
        }
        steal.since(old).saturating_sub(lost)
    }

    /// Returns how long the guest was suspended since the start.
    pub(crate) fn suspended(&mut self, witness: &mut impl Witness) -> Nanos {
        let Some(total) = witness.suspended() else {
            return Nanos::ZERO;
        };
        let before = *self.suspended.get_or_insert(total);
        match total.since(before) {
            inexact if inexact < SUSPENDED => Nanos::ZERO,
            time => time,
        }
    }

    /// Returns the cause of a sleep that took `excess` too long.
    pub(crate) fn cause(
        &self,
        excess: Nanos,
        wait: Nanos,
        steal: Nanos,
        throttled: Nanos,
    ) -> Cause {
        let half = Nanos(excess.as_nanos().div_ceil(2));
        if steal >= half && self.fault.is_none() {
            Cause::Stolen
        } else if throttled >= half {
            Cause::Quota
        } else if wait >= half {
            Cause::Ours
        } else {
            Cause::Unexplained
        }
    }

    /// Returns why steal is not trusted, if it is not.
    pub(crate) const fn fault(&self) -> Option<StealFault> {
        self.fault
    }

    /// Returns the last reading of steal, since boot.
    pub(crate) fn total_steal(&self) -> Option<Nanos> {
        self.last.and_then(|(_, time, _)| time.steal)
    }

    /// Returns whether the thread's times could be read.
    pub(crate) const fn knows_thread(&self) -> bool {
        self.wait.previous.is_some()
    }

    /// Returns whether the vCPU's times could be read.
    pub(crate) const fn knows_cpu(&self) -> bool {
        self.last.is_some()
    }

    /// Returns the share of the vCPU that others in this guest used, once enough time has
    /// passed.
    pub(crate) fn busy(&self) -> Option<f64> {
        let ((from, first, own_before), (to, last, own)) = self.first.zip(self.last)?;
        let span = to.since(from);
        if span < SHORTEST_SPAN {
            return None;
        }
        let others = last.busy.since(first.busy).since(own.since(own_before));
        Some((others.as_nanos() as f64 / span.as_nanos() as f64).min(1.0))
    }
}

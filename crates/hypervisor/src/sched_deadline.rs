//! Linux's `SCHED_DEADLINE`: global earliest deadline first over constant bandwidth servers.
//!
//! Each vCPU has `runtime` of CPU time in each `period`, by `deadline` after the period began. A
//! vCPU that has used it up is *throttled*: it waits for the end of the period even if pCPUs are
//! idle (a hard server). A vCPU that wakes before its deadline keeps its remaining runtime if that
//! is at most its share until the deadline. If it is more, the deadline decides: with the deadline
//! at the period's end the vCPU receives a full runtime and a new deadline; with an earlier
//! deadline it receives only that share (the revised rule). A vCPU that wakes between its deadline
//! and the period's end waits for the latter.
//!
//! The kernel checks at each tick whether a runtime is used up, and with the feature `HRTICK_DL`
//! (off by default) also by a timer. With ticks alone a vCPU runs for up to a tick longer, and pays
//! for that later: its deadline moves on by a period, and its runtime grows by one, until it is
//! positive again. The next time that the vCPU is throttled it waits until that far deadline.
//!
//! The rules are those of `kernel/sched/deadline.c` in Linux 6.18, its rounding included. There
//! each CPU has a queue, and vCPUs are pushed and pulled between them so that the earliest
//! deadlines run; here there is one queue. The model excludes inheritance of deadlines, the fair
//! server, and threads without a reservation, which run only on CPUs that no thread with a
//! reservation needs.

#[cfg(test)]
mod tests;

use crate::reservation::Deadline;
use crate::timers::Timers;
use crate::{Current, Host, PcpuId, PcpuSet, Scheduler, Slice, VcpuId, Wake};
use tailbound_units::Nanos;
use thiserror::Error;

/// Times at which the kernel checks for used-up runtimes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Enforcement {
    /// At each tick of the pCPU.
    Tick {
        /// Interval between ticks: 4 ms at HZ = 250.
        every: Nanos,
        /// The moment of a tick.
        at: Nanos,
    },
    /// By a timer at the exact moment.
    Timer,
}

/// Reservations that the kernel refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum SchedDeadlineError {
    /// The number of reservations is not that of vCPUs.
    #[error("{reservations} reservations for {vcpus} vCPUs")]
    Count {
        /// Number of passed reservations.
        reservations: usize,
        /// Number of the host's vCPUs.
        vcpus: usize,
    },
    /// Not 1024 ns <= runtime <= deadline <= period.
    #[error("vCPU {0}: it takes 1024ns <= runtime <= deadline <= period")]
    Reservation(u32),
    /// Ticks without a time between them.
    #[error("the time between two ticks is above zero")]
    Tick,
}

/// The shortest runtime (`DL_SCALE`).
const SHORTEST: Nanos = Nanos(1 << 10);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Blocked or paused.
    Off,
    Queued,
    /// Runnable, and throttled.
    Throttled,
    Running,
}

#[derive(Debug, Clone)]
struct Vcpu {
    affinity: PcpuSet,
    /// pCPU of its last run.
    home: PcpuId,
    given: Deadline,
    /// Share of a pCPU that it may reclaim from others, in thousandths.
    reclaims: Option<u64>,
    place: Place,
    deadline: Nanos,
    /// Remaining runtime as of `paid_to`, in nanoseconds; negative after an overrun.
    runtime: i128,
    paid_to: Nanos,
    /// True if it waits for the end of its period, awake or asleep.
    is_throttled: bool,
    /// True if it never ran.
    is_new: bool,
}

impl Vcpu {
    /// Returns the start of its next period (`dl_next_period`).
    fn next_period(&self) -> Nanos {
        self.deadline + self.given.period - self.given.deadline
    }

    fn begin_period(&mut self, now: Nanos) {
        self.deadline = now + self.given.deadline;
        self.runtime = self.given.runtime.0.into();
    }

    /// Returns whether the remaining runtime exceeds its share until the deadline
    /// (`dl_entity_overflow`).
    fn has_too_much(&self, now: Nanos) -> bool {
        let scaled = |time: Nanos| i128::from(time.0 >> 10);
        let left = scaled(self.given.deadline) * (self.runtime >> 10);
        left > scaled(self.deadline - now) * scaled(self.given.runtime)
    }

    /// The rules for one that wakes (`dl_check_constrained_dl`, `update_dl_entity`).
    fn wake(&mut self, now: Nanos) {
        let is_implicit = self.given.deadline == self.given.period;
        let is_over = self.deadline < now;
        if std::mem::take(&mut self.is_new) {
            self.begin_period(now);
        } else if !is_implicit && is_over && now < self.next_period() {
            self.is_throttled = true;
            self.runtime = self.runtime.min(0);
        } else if is_over || (is_implicit && self.has_too_much(now)) {
            self.begin_period(now);
        } else if self.has_too_much(now) {
            let share = (self.given.runtime.0 << 20) / self.given.deadline.0;
            let laxity = self.deadline - now;
            self.runtime = (i128::from(share) * i128::from(laxity.0)) >> 20;
        }
    }

    /// Refills the runtime (`replenish_dl_entity`).
    fn replenish(&mut self, now: Nanos) {
        while self.runtime <= 0 {
            self.deadline += self.given.period;
            self.runtime += i128::from(self.given.runtime.0);
        }
        if self.deadline < now {
            self.begin_period(now);
        }
        self.is_throttled = false;
    }

    /// Pays for what it has run.
    fn pay(&mut self, now: Nanos) {
        let ran = i128::from((now - self.paid_to).0);
        self.runtime -= match self.reclaims {
            Some(share) => ran * self.charged() / self.lasting(share),
            None => ran,
        };
        self.paid_to = now;
    }

    /// Returns the time for which it can run with its remaining runtime.
    fn left(&self) -> Nanos {
        let left = self.runtime.max(0);
        let left = match self.reclaims {
            Some(share) => (left * self.lasting(share) + self.charged() - 1) / self.charged(),
            None => left,
        };
        Nanos(u64::try_from(left).unwrap_or(u64::MAX))
    }

    /// Returns the runtime that is charged for [`Self::lasting`] of time when it reclaims
    /// (`grub_reclaim`): its bandwidth divided by the share, while all others of its pCPU sleep.
    fn charged(&self) -> i128 {
        i128::from(self.given.runtime.0) * 1000
    }

    fn lasting(&self, share: u64) -> i128 {
        i128::from(self.given.period.0) * i128::from(share)
    }
}

/// Linux's `SCHED_DEADLINE`.
#[derive(Debug, Clone)]
pub struct SchedDeadline {
    enforcement: Enforcement,
    vcpus: Vec<Vcpu>,
    current: Vec<Option<VcpuId>>,
    /// Waiting vCPUs that are not throttled, by deadline; first come, first served among equals.
    queue: Vec<VcpuId>,
    /// Starts of the next periods of throttled vCPUs.
    replenishments: Timers,
    /// pCPUs that are raised and have not been asked yet.
    tickled: PcpuSet,
}

impl SchedDeadline {
    /// Returns the scheduler of `host`, with a reservation for each vCPU.
    pub fn new(
        host: &Host,
        reservations: &[Deadline],
        enforcement: Enforcement,
    ) -> Result<Self, SchedDeadlineError> {
        if reservations.len() != host.vcpus().len() {
            return Err(SchedDeadlineError::Count {
                reservations: reservations.len(),
                vcpus: host.vcpus().len(),
            });
        }
        let is_wrong = |given: &Deadline| !given.is_possible() || given.runtime < SHORTEST;
        if let Some(vcpu) = reservations.iter().position(is_wrong) {
            return Err(SchedDeadlineError::Reservation(vcpu as u32));
        }
        if matches!(enforcement, Enforcement::Tick { every, .. } if every == Nanos::ZERO) {
            return Err(SchedDeadlineError::Tick);
        }
        let vcpus = host.vcpus().iter().zip(reservations);
        Ok(Self {
            enforcement,
            vcpus: vcpus
                .map(|(vcpu, &given)| Vcpu {
                    affinity: vcpu.affinity,
                    home: vcpu.home,
                    given,
                    reclaims: None,
                    place: Place::Off,
                    deadline: Nanos::ZERO,
                    runtime: 0,
                    paid_to: Nanos::ZERO,
                    is_throttled: false,
                    is_new: true,
                })
                .collect(),
            current: vec![None; host.pcpus() as usize],
            queue: Vec::new(),
            replenishments: Timers::new(host.vcpus().len()),
            tickled: PcpuSet::new(),
        })
    }

    /// Permits `vcpu` to exceed its runtime (`SCHED_FLAG_RECLAIM`), up to `share` thousandths of
    /// each pCPU on which it has the only reservation.
    #[must_use]
    pub fn reclaiming(mut self, vcpu: VcpuId, share: u64) -> Self {
        self.vcpus[vcpu.index()].reclaims = Some(share.clamp(1, 1000));
        self
    }

    /// Returns the deadline of `vcpu`, by which it has what is left of its runtime if
    /// [`Pool`](crate::reservation::Pool) keeps it.
    pub fn deadline(&self, vcpu: VcpuId) -> Nanos {
        self.vcpus[vcpu.index()].deadline
    }

    fn enqueue(&mut self, vcpu: VcpuId) {
        let row = &mut self.vcpus[vcpu.index()];
        row.place = Place::Queued;
        let deadline = row.deadline;
        let at = self.queue.partition_point(|&other| {
            let other = &self.vcpus[other.index()];
            other.deadline <= deadline
        });
        self.queue.insert(at, vcpu);
    }

    /// Raises the pCPU that should take `vcpu`, if it waits: the one it ran on or else another
    /// if that idles, or else the one whose vCPU has the latest deadline, if that is later.
    fn tickle(&mut self, vcpu: VcpuId, raise: &mut PcpuSet) {
        let row = &self.vcpus[vcpu.index()];
        let mut left = row.affinity;
        for tickled in self.tickled.iter() {
            left.remove(tickled);
        }
        let mut at = Some(row.home).filter(|&home| left.contains(home));
        let mut target = None;
        let mut latest = row.deadline;
        while let Some(pcpu) = at.or_else(|| left.next_after(row.home)) {
            let Some(running) = self.current[pcpu.index()] else {
                target = Some(pcpu);
                break;
            };
            let deadline = self.deadline(running);
            if deadline > latest {
                latest = deadline;
                target = Some(pcpu);
            }
            left.remove(pcpu);
            at = left.next_after(pcpu);
        }
        if let Some(pcpu) = target {
            self.tickled.insert(pcpu);
            raise.insert(pcpu);
        }
    }

    /// Ends the run of a vCPU that has used up its runtime (`update_curr_dl_se`). It continues
    /// immediately if it ran past the end of its period.
    fn throttle(&mut self, now: Nanos, vcpu: VcpuId) {
        let row = &mut self.vcpus[vcpu.index()];
        if row.next_period() < now {
            row.replenish(now);
        } else {
            row.is_throttled = true;
            self.replenishments.set(vcpu.index(), row.next_period());
        }
    }

    fn until(&self, now: Nanos, vcpu: VcpuId) -> Nanos {
        match self.enforcement {
            Enforcement::Timer => now.saturating_add(self.vcpus[vcpu.index()].left()),
            Enforcement::Tick { every, at } => {
                let since = (now.0 + every.0 - at.0 % every.0) % every.0;
                now.saturating_add(every - Nanos(since))
            }
        }
    }
}

impl Scheduler for SchedDeadline {
    fn wake(&mut self, now: Nanos, vcpu: VcpuId, _cause: Wake, raise: &mut PcpuSet) {
        let row = &mut self.vcpus[vcpu.index()];
        if !row.is_throttled {
            row.wake(now);
        }
        if row.is_throttled {
            row.place = Place::Throttled;
            self.replenishments.set(vcpu.index(), row.next_period());
            return;
        }
        self.enqueue(vcpu);
        self.tickle(vcpu, raise);
    }

    fn sleep(&mut self, _now: Nanos, vcpu: VcpuId, raise: &mut PcpuSet) {
        let row = &mut self.vcpus[vcpu.index()];
        match row.place {
            Place::Running => {
                raise.insert(row.home);
                return;
            }
            Place::Queued => self.queue.retain(|&queued| queued != vcpu),
            Place::Throttled | Place::Off => {}
        }
        row.place = Place::Off;
    }

    fn schedule(
        &mut self,
        now: Nanos,
        pcpu: PcpuId,
        current: Option<Current>,
        raise: &mut PcpuSet,
    ) -> Slice {
        self.tickled.remove(pcpu);
        if let Some(Current { vcpu, yielded, .. }) = current {
            let row = &mut self.vcpus[vcpu.index()];
            row.pay(now);
            if yielded {
                // The rest of its runtime goes (`yield_task_dl`).
                row.runtime = row.runtime.min(0);
            }
            if row.runtime <= 0 {
                self.throttle(now, vcpu);
            }
        }
        let goes_on = current
            .filter(|current| current.runnable && !self.vcpus[current.vcpu.index()].is_throttled);
        let fits = |&vcpu: &VcpuId| self.vcpus[vcpu.index()].affinity.contains(pcpu);
        let waiting = self.queue.iter().copied().find(fits);
        let next = match (goes_on, waiting) {
            (Some(current), Some(other)) if self.deadline(other) < self.deadline(current.vcpu) => {
                Some(other)
            }
            (Some(current), _) => Some(current.vcpu),
            (None, waiting) => waiting,
        };
        let until = next.map(|vcpu| {
            let row = &mut self.vcpus[vcpu.index()];
            if row.place == Place::Queued {
                self.queue.retain(|&queued| queued != vcpu);
            }
            row.place = Place::Running;
            row.home = pcpu;
            row.paid_to = now;
            self.until(now, vcpu)
        });
        self.current[pcpu.index()] = next;
        if let Some(Current { vcpu, runnable, .. }) = current
            && next != Some(vcpu)
        {
            let row = &mut self.vcpus[vcpu.index()];
            if !runnable {
                row.place = Place::Off;
            } else if row.is_throttled {
                row.place = Place::Throttled;
            } else {
                self.enqueue(vcpu);
                self.tickle(vcpu, raise);
            }
        }
        Slice { next, until }
    }

    fn poll_at(&self) -> Option<Nanos> {
        let at = self.replenishments.earliest();
        (at < Nanos::MAX).then_some(at)
    }

    fn timer(&mut self, now: Nanos, raise: &mut PcpuSet) {
        while let Some(slot) = self.replenishments.pop(now) {
            let vcpu = VcpuId(slot as u32);
            let row = &mut self.vcpus[slot];
            row.replenish(now);
            if row.place == Place::Throttled {
                self.enqueue(vcpu);
                self.tickle(vcpu, raise);
            }
        }
    }
}

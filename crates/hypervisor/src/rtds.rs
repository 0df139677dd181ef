//! Xen's RTDS: global earliest deadline first over deferrable servers.
//!
//! Each vCPU has a budget of CPU time in each of its periods. One queue for all pCPUs is sorted by
//! the end of the current period, the *deadline*. A vCPU that has used up its budget waits for the
//! next period. Budget is kept while a vCPU sleeps (a deferrable server), and the rest at the end
//! of a period is lost. The rules are those of `xen/common/sched/rt.c` in Xen 4.17, the defaults
//! included. Yields are ignored, as there.
//!
//! The model excludes changes of parameters at run time, pools of pCPUs, and the admission control
//! of later releases; over-committed vCPUs miss deadlines. Periods and budgets with total
//! utilisation U and largest utilisation u on m pCPUs miss no deadline if U <= m - (m - 1) u
//! (Goossens, Funk and Baruah, Real-Time Systems 25, 2003), every vCPU may run everywhere, and none
//! has extra time. With extra time deadlines can be missed: when the budget of a vCPU that waits
//! for extra time is replenished, Xen raises no pCPU, so the vCPU waits on although it would go
//! first.

#[cfg(test)]
mod tests;

use crate::timers::Timers;
use crate::{Current, Host, PcpuId, PcpuSet, Scheduler, Slice, VcpuId, Wake};
use serde::{Deserialize, Serialize};
use tailbound_units::Nanos;
use thiserror::Error;

/// The shortest period and the smallest budget (`RTDS_MIN_PERIOD`,
/// `RTDS_MIN_BUDGET`).
const SHORTEST: Nanos = Nanos::from_micros(10);

/// A vCPU's reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Reservation {
    /// Time between replenishments, at least 10 us.
    pub period: Nanos,
    /// CPU time per period, at least 10 us and at most the period.
    pub budget: Nanos,
    /// Runs on with a used-up budget, after all vCPUs that have budget.
    pub extratime: bool,
}

impl Default for Reservation {
    /// Returns 4 ms in 10 ms and extra time, Xen's default for a vCPU (before 4.10 without extra
    /// time).
    fn default() -> Self {
        Self {
            period: Nanos::from_millis(10),
            budget: Nanos::from_millis(4),
            extratime: true,
        }
    }
}

/// Reservations that Xen refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum RtdsError {
    /// The number of reservations is not that of vCPUs.
    #[error("{reservations} reservations for {vcpus} vCPUs")]
    Count {
        /// Number of passed reservations.
        reservations: usize,
        /// Number of the host's vCPUs.
        vcpus: usize,
    },
    /// A period that is too short.
    #[error("vCPU {0}: the period is at least 10us, not {1}")]
    Period(u32, Nanos),
    /// A budget that is too small, or larger than the period.
    #[error("vCPU {0}: the budget is from 10us to the period, not {1}")]
    Budget(u32, Nanos),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Blocked or paused.
    Off,
    Queued,
    /// Waits for its next period.
    Depleted,
    Running,
}

#[derive(Debug, Clone)]
struct Vcpu {
    affinity: PcpuSet,
    /// pCPU of its last run.
    home: PcpuId,
    given: Reservation,
    place: Place,
    /// The end of its period.
    deadline: Nanos,
    /// Remaining budget as of `paid_to`.
    budget: Nanos,
    paid_to: Nanos,
    /// Number of budgets that it has used in this period, with extra time.
    level: u32,
    /// True if it used up its budget, and no pCPU was raised for the new one yet.
    depleted: bool,
}

impl Vcpu {
    /// The smaller goes first.
    fn rank(&self) -> (u32, Nanos) {
        (self.level, self.deadline)
    }

    /// Enters the period that `now` is in.
    fn replenish(&mut self, now: Nanos) {
        let period = self.given.period.0;
        let periods = (now - self.deadline).0 / period + 1;
        self.deadline += Nanos(periods.saturating_mul(period));
        // What it has run since `paid_to` was of the last period.
        self.paid_to = now;
        self.budget = self.given.budget;
        self.level = 0;
    }

    /// Pays for what it has run.
    fn pay(&mut self, now: Nanos) {
        self.budget = self.budget.saturating_sub(now - self.paid_to);
        self.paid_to = now;
        if self.budget > Nanos::ZERO {
            return;
        }
        if self.given.extratime {
            self.level = self.level.saturating_add(1);
            self.budget = self.given.budget;
        } else {
            self.depleted = true;
        }
    }
}

/// Xen's RTDS.
#[derive(Debug, Clone)]
pub struct Rtds {
    vcpus: Vec<Vcpu>,
    current: Vec<Option<VcpuId>>,
    /// Waiting vCPUs with budget, by rank; first come, first served among equals.
    queue: Vec<VcpuId>,
    /// Ends of the periods of vCPUs that are not asleep.
    replenishments: Timers,
    /// pCPUs that are raised and have not been asked yet.
    tickled: PcpuSet,
    /// Buffer that is reused to avoid allocations.
    replenished: Vec<VcpuId>,
}

impl Rtds {
    /// The scheduler of `host`, with a reservation for each vCPU.
    pub fn new(host: &Host, reservations: &[Reservation]) -> Result<Self, RtdsError> {
        if reservations.len() != host.vcpus().len() {
            return Err(RtdsError::Count {
                reservations: reservations.len(),
                vcpus: host.vcpus().len(),
            });
        }
        for (vcpu, given) in (0..).zip(reservations) {
            if given.period < SHORTEST {
                return Err(RtdsError::Period(vcpu, given.period));
            }
            if given.budget < SHORTEST || given.budget > given.period {
                return Err(RtdsError::Budget(vcpu, given.budget));
            }
        }
        let vcpus = host.vcpus().iter().zip(reservations);
        Ok(Self {
            vcpus: vcpus
                .map(|(vcpu, &given)| Vcpu {
                    affinity: vcpu.affinity,
                    home: vcpu.home,
                    given,
                    place: Place::Off,
                    deadline: Nanos::ZERO,
                    budget: Nanos::ZERO,
                    paid_to: Nanos::ZERO,
                    level: 0,
                    depleted: false,
                })
                .collect(),
            current: vec![None; host.pcpus() as usize],
            queue: Vec::new(),
            replenishments: Timers::new(host.vcpus().len()),
            tickled: PcpuSet::new(),
            replenished: Vec::new(),
        })
    }

    /// The end of the period that `vcpu` is in, if it is not asleep.
    pub fn deadline(&self, vcpu: VcpuId) -> Nanos {
        self.vcpus[vcpu.index()].deadline
    }

    fn rank(&self, vcpu: VcpuId) -> (u32, Nanos) {
        self.vcpus[vcpu.index()].rank()
    }

    fn enqueue(&mut self, vcpu: VcpuId) {
        let row = &mut self.vcpus[vcpu.index()];
        if row.budget == Nanos::ZERO {
            row.place = Place::Depleted;
            return;
        }
        row.place = Place::Queued;
        let rank = row.rank();
        let at = self.queue.partition_point(|&other| {
            let other = &self.vcpus[other.index()];
            other.rank() <= rank
        });
        self.queue.insert(at, vcpu);
    }

    fn dequeue(&mut self, vcpu: VcpuId) {
        let row = &mut self.vcpus[vcpu.index()];
        if row.place == Place::Queued {
            self.queue.retain(|&queued| queued != vcpu);
        }
        row.place = Place::Off;
    }

    /// Raises the pCPU that should take `vcpu`, if it waits: the one it ran on
    /// or else another if that idles, or else the one whose vCPU has the latest
    /// deadline, if that is later.
    fn tickle(&mut self, vcpu: VcpuId, raise: &mut PcpuSet) {
        let row = &self.vcpus[vcpu.index()];
        if row.place != Place::Queued {
            return;
        }
        let mut left = row.affinity;
        for tickled in self.tickled.iter() {
            left.remove(tickled);
        }
        let mut at = Some(row.home).filter(|&home| left.contains(home));
        let mut target = None;
        let mut latest = row.rank();
        while let Some(pcpu) = at.or_else(|| left.next_after(row.home)) {
            let Some(running) = self.current[pcpu.index()] else {
                target = Some(pcpu);
                break;
            };
            if self.rank(running) > latest {
                latest = self.rank(running);
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
}

impl Scheduler for Rtds {
    fn wake(&mut self, now: Nanos, vcpu: VcpuId, _cause: Wake, raise: &mut PcpuSet) {
        let row = &mut self.vcpus[vcpu.index()];
        if now >= row.deadline {
            row.replenish(now);
        }
        self.replenishments.set(vcpu.index(), row.deadline);
        self.enqueue(vcpu);
        self.tickle(vcpu, raise);
    }

    fn sleep(&mut self, _now: Nanos, vcpu: VcpuId, raise: &mut PcpuSet) {
        let row = &self.vcpus[vcpu.index()];
        if row.place == Place::Running {
            raise.insert(row.home);
        } else {
            self.dequeue(vcpu);
            self.replenishments.set(vcpu.index(), Nanos::MAX);
        }
    }

    fn schedule(
        &mut self,
        now: Nanos,
        pcpu: PcpuId,
        current: Option<Current>,
        raise: &mut PcpuSet,
    ) -> Slice {
        self.tickled.remove(pcpu);
        if let Some(current) = current {
            self.vcpus[current.vcpu.index()].pay(now);
        }
        let goes_on = current.filter(|current| {
            current.runnable && self.vcpus[current.vcpu.index()].budget > Nanos::ZERO
        });
        let fits = |&vcpu: &VcpuId| self.vcpus[vcpu.index()].affinity.contains(pcpu);
        let waiting = self.queue.iter().copied().find(fits);
        let next = match (goes_on, waiting) {
            (Some(current), Some(other)) if self.rank(current.vcpu) >= self.rank(other) => {
                Some(other)
            }
            (Some(current), _) => Some(current.vcpu),
            (None, waiting) => waiting,
        };
        let until = next.map(|vcpu| {
            if self.vcpus[vcpu.index()].place == Place::Queued {
                self.dequeue(vcpu);
            }
            let row = &mut self.vcpus[vcpu.index()];
            row.place = Place::Running;
            row.home = pcpu;
            row.paid_to = now;
            now.saturating_add(row.budget)
        });
        self.current[pcpu.index()] = next;
        if let Some(Current { vcpu, runnable, .. }) = current
            && next != Some(vcpu)
        {
            if runnable {
                self.enqueue(vcpu);
                self.tickle(vcpu, raise);
            } else {
                self.vcpus[vcpu.index()].place = Place::Off;
                self.replenishments.set(vcpu.index(), Nanos::MAX);
            }
        }
        Slice { next, until }
    }

    fn poll_at(&self) -> Option<Nanos> {
        let at = self.replenishments.earliest();
        (at < Nanos::MAX).then_some(at)
    }

    fn timer(&mut self, now: Nanos, raise: &mut PcpuSet) {
        let mut replenished = std::mem::take(&mut self.replenished);
        while let Some(slot) = self.replenishments.pop(now) {
            let vcpu = VcpuId(slot as u32);
            self.vcpus[slot].replenish(now);
            if self.vcpus[slot].place != Place::Running {
                self.dequeue(vcpu);
                self.enqueue(vcpu);
            }
            replenished.push(vcpu);
        }
        // The latest deadline first, as Xen collects them.
        while let Some(vcpu) = replenished.pop() {
            let row = &mut self.vcpus[vcpu.index()];
            self.replenishments.set(vcpu.index(), row.deadline);
            let was_depleted = std::mem::take(&mut row.depleted);
            if row.place == Place::Running {
                let rank = row.rank();
                let first = self.queue.first().copied();
                if let Some(first) = first.filter(|&first| self.rank(first) < rank) {
                    self.tickle(first, raise);
                }
            } else if was_depleted {
                self.tickle(vcpu, raise);
            }
        }
        self.replenished = replenished;
    }
}

//! Xen's credit2 scheduler, in its main rules.
//!
//! One queue for up to 16 pCPUs is sorted by credit. All burn credit while they
//! run, the heavier a vCPU the slower; when the first has none left, all get
//! the same amount again. There are no classes and no BOOST: a vCPU that slept
//! has more credit than the ones that ran, and preempts for that. Read
//! `schedule`, then `candidate` and `runtime`. The rules are those of
//! `xen/common/sched/credit2.c` in Xen 4.17 with its default parameters.
//!
//! Left out: balancing load between queues and its load averages (a vCPU stays
//! in the queue of its first pCPU), soft affinity, and what depends on cores and
//! threads (all pCPUs are cores of one thread, and 16 neighbours share a queue).

mod budget;
#[cfg(test)]
mod tests;

use crate::timers::Timers;
use crate::{Current, DomainId, Host, PcpuId, PcpuSet, Scheduler, Slice, VcpuId, Wake};
use budget::Domain;
use serde::{Deserialize, Serialize};
use tailbound_units::Nanos;

/// Credit of a vCPU after a reset, which happens when the first vCPU has used up its credit
/// (`CSCHED2_CREDIT_INIT`). Credit is nanoseconds of the heaviest vCPU of the queue.
const CREDIT_INIT: i64 = 10_000_000;
/// Limit on debt; a larger debt is forgiven (`CSCHED2_CREDIT_MIN`).
const CREDIT_MIN: i64 = -CREDIT_INIT;
/// Limit on the saved credit above [`CREDIT_INIT`] (`CSCHED2_CARRYOVER_MAX`).
const CARRYOVER: i64 = 500_000;
/// Lead in credit that a vCPU from another pCPU needs (`CSCHED2_MIGRATE_RESIST`), and the credit
/// that it receives for moving (`CSCHED2_MIGRATE_COMPENSATION`).
const MIGRATE_RESIST: i64 = 500_000;
const MIGRATE_COMPENSATION: i64 = 50_000;
/// The shortest and the longest time until the next decision.
const MIN_TIMER: Nanos = Nanos::from_micros(500);
const MAX_TIMER: Nanos = Nanos::from_millis(10);
/// Tolerance of the ratelimit: a vCPU that has run for the ratelimit less this can be preempted by
/// a wake (`CSCHED2_RATELIMIT_TICKLE_TOLERANCE`).
const RATELIMIT_TOLERANCE: Nanos = Nanos::from_micros(50);
/// pCPUs that share a queue (`sched_credit2_max_cpus_runqueue`).
const QUEUE_PCPUS: u32 = 16;

/// Xen's credit2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Credit2Config {
    /// Shortest run before another vCPU may preempt; 0: no limit.
    pub ratelimit: Nanos,
}

impl Default for Credit2Config {
    /// 1 ms, as in Xen.
    fn default() -> Self {
        Self {
            ratelimit: Nanos::from_millis(1),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Blocked or paused.
    Off,
    Queued,
    Running,
    /// The domain has used up its cap.
    Parked,
}

#[derive(Debug, Clone)]
struct Vcpu {
    domain: DomainId,
    affinity: PcpuSet,
    /// pCPU of its last run, whose queue it joins.
    home: PcpuId,
    place: Place,
    weight: u64,
    credit: i64,
    /// The remainder of burning, in parts of a credit by weight.
    residual: u64,
    /// While it runs: up to when it has paid, and since when it runs.
    paid_to: Nanos,
    entered: Nanos,
    /// The pCPU that was raised to take it.
    tickled: Option<PcpuId>,
    /// CPU time that it may use before it takes more from its domain's budget; none: no cap.
    budget: Option<i64>,
}

/// A queue and the pCPUs that share it.
#[derive(Debug, Clone)]
struct Queue {
    pcpus: PcpuSet,
    /// Waiting vCPUs, most credit first; first come, first served among equals.
    waiting: Vec<VcpuId>,
    /// vCPUs of the queue, and their largest weight.
    members: Vec<VcpuId>,
    max_weight: u64,
    /// pCPUs that are raised and have not been asked yet.
    tickled: PcpuSet,
    resets: u64,
}

/// Xen's credit2 scheduler.
#[derive(Debug, Clone)]
pub struct Credit2 {
    config: Credit2Config,
    vcpus: Vec<Vcpu>,
    domains: Vec<Domain>,
    queues: Vec<Queue>,
    current: Vec<Option<VcpuId>>,
    replenishments: Timers,
}

impl Credit2 {
    /// Returns a scheduler for `host`.
    pub fn new(config: Credit2Config, host: &Host) -> Self {
        let weight = |domain: DomainId| u64::from(host.domains()[domain.index()].weight);
        let domains = budget::domains(host);
        let vcpus: Vec<Vcpu> = host
            .vcpus()
            .iter()
            .map(|vcpu| Vcpu {
                domain: vcpu.domain,
                affinity: vcpu.affinity,
                home: vcpu.home,
                place: Place::Off,
                weight: weight(vcpu.domain),
                credit: CREDIT_INIT,
                residual: 0,
                paid_to: Nanos::ZERO,
                entered: Nanos::ZERO,
                tickled: None,
                budget: domains[vcpu.domain.index()].cap().map(|_| 0),
            })
            .collect();
        let queue = |index: u32| {
            let here = |&(_, vcpu): &(u32, &Vcpu)| vcpu.home.0 / QUEUE_PCPUS == index;
            let members = (0..).zip(&vcpus).filter(here);
            let first = index * QUEUE_PCPUS;
            let end = (first + QUEUE_PCPUS).min(host.pcpus());
            Queue {
                pcpus: (first..end).map(PcpuId).collect(),
                waiting: Vec::new(),
                max_weight: members
                    .clone()
                    .map(|(_, vcpu)| vcpu.weight)
                    .max()
                    .unwrap_or(1),
                members: members.map(|(id, _)| VcpuId(id)).collect(),
                tickled: PcpuSet::new(),
                resets: 0,
            }
        };
        let queues = (0..host.pcpus().div_ceil(QUEUE_PCPUS)).map(queue).collect();
        let mut replenishments = Timers::new(domains.len());
        for (slot, domain) in domains.iter().enumerate() {
            if domain.cap().is_some() {
                replenishments.set(slot, budget::PERIOD);
            }
        }
        Self {
            config,
            domains,
            queues,
            current: vec![None; host.pcpus() as usize],
            replenishments,
            vcpus,
        }
    }

    /// Returns what `vcpu` may use before all get more, in nanoseconds of the heaviest
    /// vCPU of its queue, as of its last payment; negative: what it owes.
    pub fn credit(&self, vcpu: VcpuId) -> i64 {
        self.vcpus[vcpu.index()].credit
    }

    /// Returns how often all vCPUs that share a queue with `pcpu` got credit.
    pub fn resets(&self, pcpu: PcpuId) -> u64 {
        self.queues[queue_of(pcpu)].resets
    }

    fn row(&mut self, vcpu: VcpuId) -> &mut Vcpu {
        &mut self.vcpus[vcpu.index()]
    }

    /// Subtracts the used CPU time of `vcpu`, which runs, from its credit: the time itself for the
    /// heaviest vCPU of a queue, more for others in inverse proportion to their weight.
    fn burn(&mut self, now: Nanos, vcpu: VcpuId) {
        let row = &mut self.vcpus[vcpu.index()];
        let used = now - row.paid_to;
        row.paid_to = now;
        let due = used.0 * self.queues[queue_of(row.home)].max_weight + row.residual;
        row.residual = due % row.weight;
        row.credit = (row.credit - (due / row.weight).cast_signed()).max(CREDIT_MIN);
        if let Some(budget) = &mut row.budget {
            *budget -= used.0.cast_signed();
        }
    }

    fn enqueue(&mut self, vcpu: VcpuId) {
        let row = &mut self.vcpus[vcpu.index()];
        row.place = Place::Queued;
        let (credit, queue) = (row.credit, queue_of(row.home));
        let waiting = &mut self.queues[queue].waiting;
        let at = waiting.partition_point(|other| self.vcpus[other.index()].credit >= credit);
        waiting.insert(at, vcpu);
    }

    fn dequeue(&mut self, vcpu: VcpuId, place: Place) {
        let row = &mut self.vcpus[vcpu.index()];
        if row.place == Place::Queued {
            let waiting = &mut self.queues[queue_of(row.home)].waiting;
            waiting.retain(|&queued| queued != vcpu);
        }
        row.place = place;
    }

    fn raise(&mut self, pcpu: PcpuId, raise: &mut PcpuSet) {
        self.queues[queue_of(pcpu)].tickled.insert(pcpu);
        raise.insert(pcpu);
    }

    /// Raises the pCPU that should take `vcpu`, which was just queued: an idle
    /// one, the one it ran on first, or else one whose vCPU it may preempt.
    fn tickle(&mut self, now: Nanos, vcpu: VcpuId, raise: &mut PcpuSet) {
        let Vcpu { home, affinity, .. } = self.vcpus[vcpu.index()];
        let queue = &self.queues[queue_of(home)];
        let allowed = queue.pcpus.and(&affinity);
        let free: PcpuSet = allowed
            .iter()
            .filter(|&pcpu| !queue.tickled.contains(pcpu))
            .collect();
        let idle = |pcpu: &PcpuId| self.current[pcpu.index()].is_none();
        let idlers: PcpuSet = free.iter().filter(idle).collect();
        let target = if idlers.contains(home) {
            Some(home)
        } else {
            idlers.next_after(home)
        };
        let target = target.or_else(|| self.weakest(now, vcpu, home, free));
        if let Some(pcpu) = target {
            self.row(vcpu).tickled = Some(pcpu);
            self.raise(pcpu, raise);
        }
    }

    /// Whom of those that run on `pcpus`, all busy, `vcpu` should preempt: the
    /// one on its own pCPU if it may, or the one with the least credit.
    fn weakest(
        &mut self,
        now: Nanos,
        vcpu: VcpuId,
        home: PcpuId,
        pcpus: PcpuSet,
    ) -> Option<PcpuId> {
        if pcpus.contains(home) && self.lead(now, vcpu, home) > 0 {
            return Some(home);
        }
        let mut best = (0, None);
        for pcpu in pcpus.iter().filter(|&pcpu| pcpu != home) {
            let lead = self.lead(now, vcpu, pcpu) - MIGRATE_RESIST;
            if lead > best.0 {
                best = (lead, Some(pcpu));
            }
        }
        best.1
    }

    /// Returns the lead in credit of `vcpu` over the vCPU that runs on `pcpu`; at most 0 if the
    /// latter has not run for the ratelimit.
    fn lead(&mut self, now: Nanos, vcpu: VcpuId, pcpu: PcpuId) -> i64 {
        let Some(running) = self.current[pcpu.index()] else {
            return 0;
        };
        let ran = now - self.vcpus[running.index()].entered;
        let limit = self.config.ratelimit;
        if limit > RATELIMIT_TOLERANCE && ran <= limit - RATELIMIT_TOLERANCE {
            return 0;
        }
        self.burn(now, running);
        self.vcpus[vcpu.index()].credit - self.vcpus[running.index()].credit
    }

    /// Returns the next vCPU on `pcpu`: `current`, which may go on, or the first in the queue that
    /// may run here and has more credit.
    fn candidate(&mut self, now: Nanos, pcpu: PcpuId, current: Option<Current>) -> Option<VcpuId> {
        if let Some(Current { vcpu, yielded, .. }) = current
            && !yielded
            && now - self.vcpus[vcpu.index()].entered < self.config.ratelimit
        {
            return Some(vcpu);
        }
        let yields = current.is_some_and(|current| current.yielded);
        let current = current.map(|current| current.vcpu);
        // Nobody is weaker than idle.
        let credit = current.map_or(i64::MIN / 2, |vcpu| self.vcpus[vcpu.index()].credit);
        loop {
            let queue = &self.queues[queue_of(pcpu)];
            let takes = |vcpu: &&VcpuId| {
                let row = &self.vcpus[vcpu.index()];
                let awaited = row
                    .tickled
                    .is_some_and(|other| other != pcpu && queue.tickled.contains(other));
                let resisted = row.home != pcpu && credit + MIGRATE_RESIST > row.credit;
                row.affinity.contains(pcpu) && !awaited && !resisted
            };
            let first = queue.waiting.iter().find(takes).copied();
            let stronger = |first: &VcpuId| yields || self.vcpus[first.index()].credit > credit;
            let Some(first) = first.filter(stronger) else {
                return current;
            };
            // One that finds its domain's budget used up is parked, and the next is asked.
            if self.grab_budget(first) {
                return Some(first);
            }
        }
    }

    /// Adds credit to all that share a queue with `next`, which has none.
    fn reset(&mut self, now: Nanos, next: VcpuId, raise: &mut PcpuSet) {
        let row = &self.vcpus[next.index()];
        let index = queue_of(row.home);
        let gift = if row.credit == CREDIT_MIN {
            2 * CREDIT_INIT
        } else {
            CREDIT_INIT
        };
        let members = std::mem::take(&mut self.queues[index].members);
        for &vcpu in &members {
            let row = &self.vcpus[vcpu.index()];
            if self.current[row.home.index()] == Some(vcpu) {
                let home = row.home;
                self.burn(now, vcpu);
                if self.vcpus[vcpu.index()]
                    .budget
                    .is_some_and(|left| left <= 0)
                {
                    self.raise(home, raise);
                }
            }
            let row = self.row(vcpu);
            row.credit = (row.credit + gift).min(CREDIT_INIT + CARRYOVER);
        }
        self.queues[index].members = members;
        self.queues[index].resets += 1;
    }

    /// Returns the run time of `vcpu` on `pcpu` until the next decision: until it has no more
    /// credit than the next in the queue, or none.
    fn runtime(&self, now: Nanos, pcpu: PcpuId, vcpu: VcpuId) -> Nanos {
        let row = &self.vcpus[vcpu.index()];
        let queue = &self.queues[queue_of(pcpu)];
        let shortest = MIN_TIMER.max(self.config.ratelimit.saturating_sub(now - row.entered));
        let next = queue.waiting.first();
        let next = next.map_or(0, |next| self.vcpus[next.index()].credit.max(0));
        let lead = (row.credit - next).max(0).cast_unsigned();
        let mut time = lead * row.weight / queue.max_weight;
        if let Some(budget) = row.budget {
            time = time.min(budget.max(0).cast_unsigned());
        }
        Nanos(time).min(MAX_TIMER).max(shortest)
    }

    /// Records that `vcpu`, which ran, stopped.
    fn stop(&mut self, now: Nanos, vcpu: VcpuId, runnable: bool, raise: &mut PcpuSet) {
        let parked = self.vcpus[vcpu.index()].place == Place::Parked;
        if !runnable {
            self.row(vcpu).place = Place::Off;
        }
        if !parked {
            self.return_budget(now, vcpu, raise);
            if runnable {
                self.enqueue(vcpu);
                self.tickle(now, vcpu, raise);
            }
        }
    }
}

impl Scheduler for Credit2 {
    fn wake(&mut self, now: Nanos, vcpu: VcpuId, _cause: Wake, raise: &mut PcpuSet) {
        self.enqueue(vcpu);
        self.tickle(now, vcpu, raise);
    }

    fn sleep(&mut self, _now: Nanos, vcpu: VcpuId, raise: &mut PcpuSet) {
        let Vcpu { place, home, .. } = self.vcpus[vcpu.index()];
        if place == Place::Running {
            self.raise(home, raise);
        } else {
            self.dequeue(vcpu, Place::Off);
        }
    }

    fn schedule(
        &mut self,
        now: Nanos,
        pcpu: PcpuId,
        current: Option<Current>,
        raise: &mut PcpuSet,
    ) -> Slice {
        self.queues[queue_of(pcpu)].tickled.remove(pcpu);
        let mut goes_on = current.filter(|current| current.runnable);
        if let Some(Current { vcpu, .. }) = current {
            self.burn(now, vcpu);
            if goes_on.is_some() && !self.grab_budget(vcpu) {
                goes_on = None;
            }
        }
        let next = self.candidate(now, pcpu, goes_on);
        let stopped = current.filter(|current| next != Some(current.vcpu));
        self.current[pcpu.index()] = next;
        if let Some(vcpu) = next {
            if self.vcpus[vcpu.index()].place == Place::Queued {
                self.dequeue(vcpu, Place::Running);
                self.row(vcpu).entered = now;
            }
            let first = self.queues[queue_of(pcpu)].waiting.first();
            let first = first.map_or(i64::MIN, |first| self.vcpus[first.index()].credit);
            let row = self.row(vcpu);
            row.paid_to = now;
            let credit = row.credit;
            if first.max(credit) <= 0 {
                self.reset(now, vcpu, raise);
            }
            let row = self.row(vcpu);
            row.tickled = None;
            if row.home != pcpu {
                row.credit += MIGRATE_COMPENSATION;
                row.home = pcpu;
            }
        }
        let until = next.map(|vcpu| now + self.runtime(now, pcpu, vcpu));
        if let Some(Current { vcpu, runnable, .. }) = stopped {
            self.stop(now, vcpu, runnable, raise);
        }
        Slice { next, until }
    }

    fn poll_at(&self) -> Option<Nanos> {
        let at = self.replenishments.earliest();
        (at < Nanos::MAX).then_some(at)
    }

    fn timer(&mut self, now: Nanos, raise: &mut PcpuSet) {
        while let Some(slot) = self.replenishments.pop(now) {
            self.replenishments.set(slot, now + budget::PERIOD);
            self.replenish(now, slot, raise);
        }
    }
}

/// The queue that `pcpu` shares.
const fn queue_of(pcpu: PcpuId) -> usize {
    (pcpu.0 / QUEUE_PCPUS) as usize
}

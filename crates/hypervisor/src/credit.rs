//! Xen's credit scheduler, from 3.3 to 4.17.
//!
//! Read [`CreditConfig::xen`] for the differences between releases, then the four methods in the
//! order of a vCPU's life: `wake` and `tickle` here, `schedule` here, `runqueue` for queues and
//! stealing, `accounting` for the classes. The rules are those of `xen/common/sched_credit.c` (4.13
//! and later `xen/common/sched/credit.c`); releases 3.3, 4.2 and 4.17 were read in full. In Xen
//! some results depend on the pCPU that handles an interrupt or wins a lock. The model has one
//! order for them: see [`Scheduler`].
//!
//! Long tails have the following cause. A vCPU that wakes with credit left is boosted, and BOOST
//! preempts all classes except BOOST. A tick takes BOOST from the running vCPU, but no pCPU
//! reschedules then. A vCPU in BOOST therefore waits until the running one blocks, until its slice
//! ends, or until another vCPU wakes in BOOST.

mod accounting;
#[cfg(test)]
mod amounts;
mod compose;
mod config;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod rules;
mod runqueue;
#[cfg(test)]
mod vectors;

pub use config::{
    AccountingTimer, Boost, CreditConfig, Debit, Push, Ratelimit, Steal, Surplus, Tickle, WeightOf,
    XenVersion, Yielding,
};

use crate::{Current, DomainId, Host, PcpuId, PcpuSet, Scheduler, Slice, VcpuId, Wake};
use compose::Reserve;
use std::collections::VecDeque;
use tailbound_units::Nanos;

/// Shortest timer of the ratelimit (`CSCHED_MIN_TIMER`).
const MIN_TIMER: Nanos = Nanos::from_micros(100);

/// Priority class; within a class the order is first come, first served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// With its credit used up.
    Over,
    /// With credit left.
    Under,
    /// Woke with credit left, and no tick has found it running since.
    Boost,
}

/// Credit account of a vCPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Account {
    /// Priority class.
    pub class: Class,
    /// Remaining credit, 10 a millisecond; negative: debt.
    pub credit: i64,
    /// True if it earns: a tick has found it running since it last had more than a slice's worth.
    pub active: bool,
    /// True if its domain's cap keeps it from running.
    pub parked: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Blocked, paused, or parked.
    Off,
    Queued,
    Running,
}

#[derive(Debug, Clone)]
struct Vcpu {
    domain: DomainId,
    affinity: PcpuSet,
    /// pCPU of its queue, or of the queue that it joins when it wakes.
    home: PcpuId,
    place: Place,
    /// False while it is blocked or paused.
    runnable: bool,
    account: Account,
    reserve: Reserve,
    yielded: bool,
    /// True if it moves once its pCPU has switched to another vCPU.
    migrating: bool,
    /// Start of the unpaid CPU time; while it does not run, less the time it stopped, so that the
    /// unpaid time stays with it (Xen's `start_time`).
    unpaid_from: i64,
    /// The part of a credit that is paid for in advance, in millionths.
    residual: i64,
    /// When it last began to run, having not run before.
    entered: Nanos,
    /// Moment of its last stop.
    last_run: Nanos,
}

#[derive(Debug, Clone)]
struct Domain {
    weight: i64,
    cap: i64,
    /// vCPUs of the domain that earn, the latest to begin first.
    active: VecDeque<VcpuId>,
}

#[derive(Debug, Clone)]
struct Pcpu {
    queue: VecDeque<VcpuId>,
    current: Option<VcpuId>,
    /// The accounting after which the queue was last sorted.
    sorted: u64,
    last_tickled: PcpuId,
    last_steal: Option<Nanos>,
}

/// Xen's credit scheduler.
//
// A decision is `leave`, `protected_until`, `put_back`, `pick` and `enter`, in
// this order; a scheduler on top of this one puts its own choice between them.
#[derive(Debug, Clone)]
pub struct Credit {
    config: CreditConfig,
    /// True if queues are sorted by credit within a class.
    sorted_fully: bool,
    vcpus: Vec<Vcpu>,
    domains: Vec<Domain>,
    pcpus: Vec<Pcpu>,
    all: PcpuSet,
    idlers: PcpuSet,
    /// Domains with active vCPUs.
    active: VecDeque<DomainId>,
    /// The sum of weights of what is active.
    weight: i64,
    balance: i64,
    accountings: u64,
    ticks: u64,
    next_tick: Nanos,
    next_accounting: Nanos,
    last_victim: PcpuId,
    /// Buffers that are reused to avoid allocations.
    scratch: (Vec<DomainId>, Vec<VcpuId>),
}

impl Credit {
    /// Returns a scheduler for `host`.
    pub fn new(config: CreditConfig, host: &Host) -> Self {
        let config = config.clipped();
        let vcpus = host.vcpus().iter().map(|vcpu| Vcpu {
            domain: vcpu.domain,
            affinity: vcpu.affinity,
            home: vcpu.home,
            place: Place::Off,
            runnable: false,
            account: Account {
                class: Class::Under,
                credit: 0,
                active: false,
                parked: false,
            },
            reserve: Reserve::default(),
            yielded: false,
            migrating: false,
            unpaid_from: 0,
            residual: 0,
            entered: Nanos::ZERO,
            last_run: Nanos::ZERO,
        });
        let domains = host.domains().iter().map(|domain| Domain {
            weight: i64::from(domain.weight),
            cap: i64::from(domain.cap),
            active: VecDeque::new(),
        });
        let pcpus = (0..host.pcpus()).map(|id| Pcpu {
            queue: VecDeque::new(),
            current: None,
            sorted: 0,
            last_tickled: PcpuId(id),
            last_steal: None,
        });
        Self {
            sorted_fully: false,
            vcpus: vcpus.collect(),
            domains: domains.collect(),
            pcpus: pcpus.collect(),
            all: host.all_pcpus(),
            idlers: host.all_pcpus(),
            active: VecDeque::new(),
            weight: 0,
            balance: 0,
            accountings: 0,
            ticks: 0,
            next_tick: config.tick(),
            next_accounting: match config.accounting {
                AccountingTimer::Own => config.tslice,
                AccountingTimer::MasterTick => Nanos::MAX,
            },
            last_victim: PcpuId(0),
            scratch: (Vec::new(), Vec::new()),
            config,
        }
    }

    /// Returns its rules and parameters.
    pub fn config(&self) -> &CreditConfig {
        &self.config
    }
    /// Returns what is kept about `vcpu`. CPU time since the last decision or tick is
    /// not paid yet.
    pub fn account(&self, vcpu: VcpuId) -> Account {
        self.vcpus[vcpu.index()].account
    }
    /// Returns the vCPUs that wait on `pcpu`, the next one first.
    pub fn queue(&self, pcpu: PcpuId) -> impl ExactSizeIterator<Item = VcpuId> + '_ {
        self.pcpus[pcpu.index()].queue.iter().copied()
    }
    /// Returns the pCPUs that idle.
    pub fn idlers(&self) -> PcpuSet {
        self.idlers
    }
    /// Returns the number of accountings so far.
    pub fn accountings(&self) -> u64 {
        self.accountings
    }

    fn class(&self, vcpu: VcpuId) -> Class {
        self.vcpus[vcpu.index()].account.class
    }

    /// Returns the class of what `pcpu` runs; idle is below every class.
    fn running_class(&self, pcpu: PcpuId) -> Option<Class> {
        let current = self.pcpus[pcpu.index()].current;
        current.map(|vcpu| self.class(vcpu))
    }

    /// Records that `vcpu` is runnable.
    fn admit(&mut self, vcpu: VcpuId, unboosted: bool, raise: &mut PcpuSet) {
        let row = &mut self.vcpus[vcpu.index()];
        row.runnable = true;
        // One that is parked, or still on its pCPU, is queued when that ends.
        if row.place == Place::Off && !row.account.parked {
            self.release(vcpu, unboosted, raise);
        }
    }

    /// Queues `vcpu`, which is off every pCPU, and raises the pCPUs that must schedule. It is
    /// boosted if it has credit, unless it only `moved` or is just unparked.
    fn release(&mut self, vcpu: VcpuId, moved: bool, raise: &mut PcpuSet) {
        let account = &mut self.vcpus[vcpu.index()].account;
        if account.class == Class::Under && !account.parked && !moved {
            account.class = Class::Boost;
        }
        let head = self.config.boost == Boost::PreemptsHead && !moved;
        let first = head && account.class == Class::Boost;
        self.enqueue(vcpu, first);
        self.tickle(vcpu, raise);
    }

    /// Returns whether `vcpu`, which woke, would preempt the vCPU on `pcpu`: it must have a
    /// strictly higher class, or the option that BOOST preempts BOOST applies.
    fn beats(&self, vcpu: VcpuId, pcpu: PcpuId) -> bool {
        let class = self.class(vcpu);
        let running = self.running_class(pcpu);
        let rival = self.config.boost != Boost::NonePreempts && class == Class::Boost;
        Some(class) > running || (rival && running == Some(Class::Boost))
    }

    /// Raises the pCPUs that should look at `vcpu`, which was just queued.
    pub(crate) fn tickle(&mut self, vcpu: VcpuId, raise: &mut PcpuSet) {
        let Vcpu { home, affinity, .. } = self.vcpus[vcpu.index()];
        let beats = self.beats(vcpu, home);
        let fitting = self.idlers.and(&affinity);
        let mut mask = PcpuSet::new();
        let Some(running) = self.pcpus[home.index()].current else {
            // Its own pCPU idles: nothing else to consider.
            mask.insert(home);
            return self.raise(mask, raise);
        };
        match self.config.tickle {
            Tickle::AllIdlers | Tickle::OneIdler => {
                if beats {
                    mask.insert(home);
                }
                if self.config.tickle == Tickle::AllIdlers {
                    mask = mask.or(&fitting);
                } else if let Some(idler) = self.next_idler(home, fitting) {
                    mask.insert(idler);
                }
            }
            Tickle::IdlerFirst => {
                if let Some(idler) = self.next_idler(home, fitting) {
                    mask.insert(idler);
                } else if beats {
                    mask.insert(home);
                    let row = &mut self.vcpus[running.index()];
                    row.migrating |= match self.config.push {
                        Push::Never => false,
                        Push::Always => !self.idlers.is_empty(),
                        Push::ToIdler => !self.idlers.and(&row.affinity).is_empty(),
                    };
                }
            }
        }
        self.raise(mask, raise);
    }

    /// Returns the next of `fitting` after the last one that was raised for `home`. Xen takes turns
    /// for each pCPU that handles wakes; here that is the home.
    fn next_idler(&mut self, home: PcpuId, fitting: PcpuSet) -> Option<PcpuId> {
        let last = &mut self.pcpus[home.index()].last_tickled;
        let idler = fitting.next_after(*last)?;
        *last = idler;
        Some(idler)
    }

    fn raise(&mut self, mask: PcpuSet, raise: &mut PcpuSet) {
        if self.config.claim_idler {
            for pcpu in mask.iter() {
                self.idlers.remove(pcpu);
            }
        }
        *raise = raise.or(&mask);
    }

    /// Samples who runs, if a tick is due.
    fn tick(&mut self, now: Nanos, raise: &mut PcpuSet) {
        if self.next_tick <= now {
            self.next_tick = now + self.config.tick();
            self.sample_all(now, raise);
        }
    }

    /// Distributes credit, if the accounting's own timer is due.
    fn accounting(&mut self, now: Nanos, raise: &mut PcpuSet) {
        if self.next_accounting <= now {
            self.next_accounting = now + self.config.tslice;
            self.distribute(raise);
        }
    }

    /// Records that `pcpu` is asked while `current` runs there: it pays.
    /// Returns whether it may go on.
    pub(crate) fn leave(&mut self, now: Nanos, current: Current) -> bool {
        self.pay(now, current.vcpu);
        let flagged = current.yielded && self.config.yielding != Yielding::Plain;
        let row = &mut self.vcpus[current.vcpu.index()];
        row.unpaid_from -= signed(now);
        row.runnable = current.runnable;
        row.yielded |= flagged;
        row.last_run = now;
        row.runnable && !row.account.parked && !row.migrating
    }

    /// When `vcpu`, which runs and may go on, can be preempted at the earliest,
    /// if that is not now.
    pub(crate) fn protected_until(&self, now: Nanos, vcpu: VcpuId) -> Option<Nanos> {
        let row = &self.vcpus[vcpu.index()];
        let limit = self.config.ratelimit;
        let runtime = now - row.entered;
        let excused = match self.config.yielding {
            Yielding::Plain | Yielding::Flag => false,
            Yielding::BeatsRatelimit | Yielding::NotStolen => row.yielded,
        };
        if runtime >= limit || excused {
            return None;
        }
        match self.config.ratelimit_rule {
            Ratelimit::None => None,
            Ratelimit::Full => Some(now + limit),
            Ratelimit::Remaining if runtime < MIN_TIMER => Some(now + MIN_TIMER),
            Ratelimit::Remaining => Some(now + (limit - runtime)),
        }
    }

    /// Queues `vcpu`, which has left, if it goes on, and has its yield behind it.
    pub(crate) fn put_back(&mut self, vcpu: VcpuId, goes_on: bool) {
        if goes_on {
            self.enqueue(vcpu, false);
        } else {
            self.vcpus[vcpu.index()].place = Place::Off;
        }
        if self.config.yielding != Yielding::NotStolen {
            self.vcpus[vcpu.index()].yielded = false;
        }
    }

    /// Records that `pcpu` runs `next` from now on. The vCPU that ran there must have left, and
    /// been queued again if it may go on.
    pub(crate) fn enter(&mut self, now: Nanos, pcpu: PcpuId, next: Option<VcpuId>) {
        let before = std::mem::replace(&mut self.pcpus[pcpu.index()].current, next);
        if let Some(vcpu) = next {
            let row = &mut self.vcpus[vcpu.index()];
            row.place = Place::Running;
            row.home = pcpu;
            row.unpaid_from += signed(now);
            if before != next {
                row.entered = now;
            }
            self.idlers.remove(pcpu);
        } else {
            self.idlers.insert(pcpu);
        }
    }
}

impl Scheduler for Credit {
    fn wake(&mut self, _now: Nanos, vcpu: VcpuId, _cause: Wake, raise: &mut PcpuSet) {
        self.admit(vcpu, false, raise);
    }

    fn sleep(&mut self, _now: Nanos, vcpu: VcpuId, raise: &mut PcpuSet) {
        self.vcpus[vcpu.index()].runnable = false;
        self.withdraw(vcpu, raise);
    }

    fn schedule(
        &mut self,
        now: Nanos,
        pcpu: PcpuId,
        current: Option<Current>,
        raise: &mut PcpuSet,
    ) -> Slice {
        if let Some(current) = current {
            let vcpu = current.vcpu;
            let goes_on = self.leave(now, current);
            if goes_on && let Some(until) = self.protected_until(now, vcpu) {
                self.enter(now, pcpu, Some(vcpu));
                return Slice {
                    next: Some(vcpu),
                    until: Some(until),
                };
            }
            self.put_back(vcpu, goes_on);
        }
        let next = self.pick(now, pcpu);
        self.enter(now, pcpu, next);
        if let Some(Current { vcpu, .. }) = current {
            self.migrate(vcpu, raise);
        }
        Slice {
            next,
            until: next.map(|_| now + self.config.tslice),
        }
    }

    fn poll_at(&self) -> Option<Nanos> {
        Some(self.next_tick.min(self.next_accounting))
    }

    fn timer(&mut self, now: Nanos, raise: &mut PcpuSet) {
        self.tick(now, raise);
        self.accounting(now, raise);
    }
}

/// `now` for differences that may be negative; a clock of 292 years.
fn signed(now: Nanos) -> i64 {
    now.0.cast_signed()
}

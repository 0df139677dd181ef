//! EDF + credit: proportional shares with deadlines on top, after Cheng and
//! Wang, `QoS` Scheduling for Latency-sensitive Cloud Applications.
//!
//! Beside its credit queue each pCPU has a queue of *claims*, sorted by deadline (section 3.1.1). A
//! claim entitles a real-time vCPU to one short slice, 0.5 ms of CPU time, that begins by the
//! deadline. A vCPU with a claim also waits in the credit queue, and CPU time from there counts
//! towards its slice. Every 0.5 ms a timer checks the first claim, and the claim's slice begins if
//! its deadline would pass before the next check. A single real-time vCPU therefore never begins
//! late, and several are late by at most the others' slices. All CPU time is paid in credit, so
//! shares stay as the weights. Read `choose` first, then `claims`.
//!
//! The paper leaves the following points open. The model decides them thus:
//! - An *aperiodic* vCPU claims when an event arrives, whether it is blocked, waits, or runs. The
//!   claim ends with its slice or when the vCPU blocks; remaining work continues in the credit
//!   queue. The scheduler cannot distinguish work for the event from other work, and a claim for as
//!   long as there is work would make every busy guest a real-time one. One slice serves all events
//!   that came before it began; later events have one claim of their own, by the deadline of the
//!   first.
//! - A *periodic* vCPU claims at every wake, and again when it must stop: it never waits longer
//!   than its deadline, and has a slice then. With a period, claims begin at least that far apart.
//! - Slices are paid in credit in every class. The accounting forgives debt beyond 300 credits, but
//!   it remembers that of real-time vCPUs and subtracts it from their next income, so no slice is
//!   free and shares hold. A real-time vCPU with much remembered debt claims nothing until it has
//!   paid some, because the others, which lose half of their credit beyond 300, could not save its
//!   excess. The limit is 150 for a periodic vCPU, which claims for ever. It is 600 for an
//!   aperiodic one, because a vCPU whose claims are well below its share owes 150 by chance once in
//!   some hours, and must not miss its deadline then.
//! - In Xen a vCPU earns when a tick, each 10 ms, finds it running. Slices begin with the ticks and
//!   end before the next, so ticks would never find them, and a vCPU that waits behind others with
//!   more credit would never run at a tick. Here a vCPU also earns if it runs for a claim, or if it
//!   must stop although it would go on.
//! - A vCPU with debt (OVER) that an event wakes draws on its reserve (section 3.1.2) as long as
//!   its claim lasts. The reserve is filled from its income and carried over, up to 300 credits,
//!   the bound that Xen sets to other savings; the rest is ordinary credit. It begins full.
//! - Real-time vCPUs are not boosted; the others are, but BOOST never preempts a slice or a claim
//!   that is due.
//! - A pCPU that would idle takes the earliest claim from another pCPU before it steals by credit.

mod claims;
mod config;
#[cfg(test)]
mod tests;

pub use config::{DomainClass, EdfConfig, EdfError};

use crate::timers::Timers;
use crate::{Credit, Current, Host, PcpuId, PcpuSet, Scheduler, Slice, VcpuId, Wake};
use claims::Claims;
use tailbound_units::Nanos;

/// Debt of a periodic vCPU from which on it claims nothing, in halves of a pCPU's credit of a slice
/// and beyond the debt that the accounting leaves.
const MOST_PERIODIC_ARREARS: i64 = 1;
/// The same limit for an aperiodic vCPU.
const MOST_APERIODIC_ARREARS: i64 = 4;

/// The reason why a pCPU runs a vCPU, and until when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// The credit queue's choice, or nothing.
    Credit,
    /// A claim's slice.
    Claim,
    /// The driver domain's.
    Driver {
        /// Moment from which another driver vCPU may run.
        until: Nanos,
    },
}

/// The credit scheduler with deadlines.
#[derive(Debug, Clone)]
pub struct EdfCredit {
    config: EdfConfig,
    credit: Credit,
    claims: Claims,
    /// Current turn of each pCPU.
    turns: Vec<Turn>,
    /// pCPUs of driver domains.
    driver_pcpus: PcpuSet,
    /// Moments at which a pCPU's first claim is due. The 0.5 ms timer is set only for those of its
    /// moments that have something to do.
    checks: Timers,
}

impl EdfCredit {
    /// Returns a scheduler for `host`; `classes[i]` is the class of its domain `i`.
    pub fn new(config: EdfConfig, host: &Host, classes: &[DomainClass]) -> Result<Self, EdfError> {
        config.check(host, classes)?;
        let host = config::placed(host, classes)?;
        let mut credit = Credit::new(config.credit, &host);
        credit.order_by_credit();
        let claims = Claims::new(&host, classes, config.slice);
        let mut driver_pcpus = PcpuSet::new();
        for (id, vcpu) in (0..).zip(host.vcpus()) {
            match classes[vcpu.domain.index()] {
                DomainClass::Driver => driver_pcpus.insert(vcpu.home),
                DomainClass::Normal => {}
                DomainClass::Periodic { .. } | DomainClass::Aperiodic { .. } => {
                    credit.set_aside(VcpuId(id), config.reserve);
                }
            }
        }
        Ok(Self {
            config,
            credit,
            claims,
            turns: vec![Turn::Credit; host.pcpus() as usize],
            driver_pcpus,
            checks: Timers::new(host.pcpus() as usize),
        })
    }

    /// Returns the credit scheduler below.
    pub fn credit(&self) -> &Credit {
        &self.credit
    }
    /// Returns when `vcpu` must begin to run at the latest, if it has a claim.
    pub fn deadline(&self, vcpu: VcpuId) -> Option<Nanos> {
        self.claims.deadline(vcpu)
    }
    /// Returns the credit set aside for events that wake `vcpu`.
    pub fn reserve(&self, vcpu: VcpuId) -> i64 {
        self.credit.reserve(vcpu)
    }

    /// The moment after `now` at which the timer next looks.
    fn next_check(&self, now: Nanos) -> Nanos {
        let timer = self.config.timer.0;
        Nanos((now.0 / timer + 1).saturating_mul(timer))
    }

    /// The first claim on `pcpu`, if its deadline passes before the next look.
    fn due(&self, now: Nanos, pcpu: PcpuId) -> Option<VcpuId> {
        let next = self.next_check(now);
        let (deadline, vcpu) = self.claims.first(pcpu)?;
        (deadline < next).then_some(vcpu)
    }

    /// Sets the timer of `pcpu` to the look at which its first claim is due. A look
    /// at this very moment is still to come.
    fn arm(&mut self, now: Nanos, pcpu: PcpuId) {
        if self.checks.at(pcpu.index()) <= now {
            return;
        }
        let timer = self.config.timer.0;
        let at = self.claims.first(pcpu).map_or(Nanos::MAX, |(deadline, _)| {
            Nanos(deadline.0 / timer * timer).max(self.next_check(now))
        });
        self.checks.set(pcpu.index(), at);
    }

    /// Adds a claim of `vcpu`, which is queued or runs, if it may have one. `woken`: by an event.
    fn claim(&mut self, now: Nanos, vcpu: VcpuId, woken: bool) {
        let draws = woken && self.credit.account(vcpu).credit < 0 && self.credit.reserve(vcpu) > 0;
        let halves = match self.claims.class(vcpu) {
            DomainClass::Periodic { .. } => MOST_PERIODIC_ARREARS,
            DomainClass::Aperiodic { .. } | DomainClass::Driver | DomainClass::Normal => {
                MOST_APERIODIC_ARREARS
            }
        };
        if self.credit.is_bankrupt(vcpu, halves) && !draws {
            self.drop_claim(vcpu);
            return;
        }
        self.credit.draw_on_reserve(vcpu, draws);
        self.claims.begin(now, vcpu);
        self.queue_claim(now, vcpu);
    }

    /// Subtracts the CPU time of `vcpu`, which runs on `pcpu`, from its slice, and ends its claim
    /// at the slice's end. Events that came during it have one claim, by the deadline of the first.
    fn settle(&mut self, now: Nanos, pcpu: PcpuId, vcpu: VcpuId) {
        if !self.claims.settle(now, vcpu) {
            return;
        }
        self.credit.draw_on_reserve(vcpu, false);
        if self.turns[pcpu.index()] == Turn::Claim {
            self.turns[pcpu.index()] = Turn::Credit;
        }
        if let Some((first, latest)) = self.claims.take_renewed(now, vcpu) {
            self.claim(first, vcpu, false);
            self.claims.count_from(latest, vcpu);
            self.claims.settle(now, vcpu);
        }
    }

    /// Queues the claim of `vcpu`, if it has one and waits.
    fn queue_claim(&mut self, now: Nanos, vcpu: VcpuId) {
        if self.credit.is_queued(vcpu) {
            let home = self.credit.home(vcpu);
            self.claims.enqueue(vcpu, home);
            self.arm(now, home);
        }
    }

    /// Ends what `vcpu` claims, if anything.
    fn drop_claim(&mut self, vcpu: VcpuId) {
        self.claims.end(vcpu);
        self.credit.draw_on_reserve(vcpu, false);
    }

    /// The first driver vCPU that waits on `pcpu`.
    fn driver(&self, pcpu: PcpuId) -> Option<VcpuId> {
        if !self.driver_pcpus.contains(pcpu) {
            return None;
        }
        let mut queue = self.credit.queue(pcpu);
        queue.find(|&vcpu| self.claims.class(vcpu) == DomainClass::Driver)
    }

    /// Returns the moment until which `vcpu`, which runs on `pcpu`, cannot be preempted.
    fn kept_until(&self, now: Nanos, pcpu: PcpuId, vcpu: VcpuId) -> Option<Nanos> {
        match self.turns[pcpu.index()] {
            Turn::Driver { until } => return Some(until).filter(|&until| now < until),
            _ if self.driver(pcpu).is_some() => return None,
            // Its slice, or one that would have to begin now.
            turn => {
                if let Some((deadline, left)) = self.claims.running(vcpu)
                    && (turn == Turn::Claim || deadline < self.next_check(now))
                {
                    return Some(now + left);
                }
            }
        }
        match self.due(now, pcpu) {
            Some(_) => None,
            None => self.credit.protected_until(now, vcpu),
        }
    }

    /// Removes and returns the next vCPU on `pcpu`: the driver domain, a due claim, a claim that
    /// waits elsewhere while nothing waits here, or the credit queue's choice.
    fn choose(&mut self, now: Nanos, pcpu: PcpuId) -> (Option<VcpuId>, Turn, Option<Nanos>) {
        let tslice = self.credit.config().tslice;
        if let Some(vcpu) = self.driver(pcpu) {
            self.credit.dequeue(vcpu);
            let until = now + tslice;
            return (Some(vcpu), Turn::Driver { until }, Some(until));
        }
        while let Some(vcpu) = self.due(now, pcpu) {
            if self.credit.dequeue(vcpu) {
                self.credit.keep_active(vcpu);
                let until = self.claims.take(vcpu).map(|left| now + left);
                return (Some(vcpu), Turn::Claim, until);
            }
            // Its domain's cap took it out of the credit queue.
            self.drop_claim(vcpu);
        }
        let next = self.pull(pcpu).or_else(|| self.credit.pick(now, pcpu));
        let until = next.map(|vcpu| {
            let left = self.claims.take(vcpu);
            // One that owes and draws on its reserve gets what it claimed.
            let claimed = left.filter(|_| self.credit.draws_on_reserve(vcpu));
            now + claimed.unwrap_or(tslice)
        });
        (next, Turn::Credit, until)
    }

    /// If nothing waits on `pcpu`: takes the earliest claim that waits on
    /// another and may run here.
    fn pull(&mut self, pcpu: PcpuId) -> Option<VcpuId> {
        if self.credit.queue(pcpu).len() > 0 {
            return None;
        }
        let vcpu = self.claims.earliest_for(pcpu)?;
        self.credit.dequeue(vcpu).then_some(vcpu)
    }
}

impl Scheduler for EdfCredit {
    fn wake(&mut self, now: Nanos, vcpu: VcpuId, cause: Wake, raise: &mut PcpuSet) {
        match self.claims.class(vcpu) {
            DomainClass::Normal => self.credit.wake(now, vcpu, cause, raise),
            DomainClass::Driver => {
                self.credit.wake(now, vcpu, cause, raise);
                raise.insert(self.credit.home(vcpu));
            }
            DomainClass::Periodic { .. } => {
                self.credit.wake_unboosted(vcpu, raise);
                self.claim(now, vcpu, cause == Wake::Event);
            }
            DomainClass::Aperiodic { .. } => {
                self.credit.wake_unboosted(vcpu, raise);
                if cause == Wake::Event {
                    self.claim(now, vcpu, true);
                }
            }
        }
    }

    fn notify(&mut self, now: Nanos, vcpu: VcpuId, _raise: &mut PcpuSet) {
        if !matches!(self.claims.class(vcpu), DomainClass::Aperiodic { .. }) {
            return;
        }
        // One that pays from its reserve is asked when its slice ends.
        if !self.credit.is_queued(vcpu) && !self.credit.draws_on_reserve(vcpu) {
            self.settle(now, self.credit.home(vcpu), vcpu);
        }
        if self.claims.deadline(vcpu).is_none() {
            self.claim(now, vcpu, false);
        } else {
            self.claims.renew(now, vcpu);
        }
    }

    fn sleep(&mut self, now: Nanos, vcpu: VcpuId, raise: &mut PcpuSet) {
        self.drop_claim(vcpu);
        self.credit.sleep(now, vcpu, raise);
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
            let goes_on = self.credit.leave(now, current);
            self.settle(now, pcpu, vcpu);
            let kept = goes_on.then(|| self.kept_until(now, pcpu, vcpu)).flatten();
            if let Some(until) = kept {
                self.credit.enter(now, pcpu, Some(vcpu));
                return Slice {
                    next: Some(vcpu),
                    until: Some(until),
                };
            }
            self.credit.put_back(vcpu, goes_on);
            if goes_on {
                self.credit.keep_active(vcpu);
                if self.claims.claims_again(vcpu) {
                    self.claim(now, vcpu, false);
                } else {
                    self.queue_claim(now, vcpu);
                }
            } else {
                self.drop_claim(vcpu);
            }
        }
        let (next, turn, until) = self.choose(now, pcpu);
        self.credit.enter(now, pcpu, next);
        if let Some(vcpu) = next {
            self.claims.count_from(now, vcpu);
        }
        self.turns[pcpu.index()] = turn;
        if let Some(Current { vcpu, .. }) = current {
            self.credit.migrate(vcpu, raise);
            self.queue_claim(now, vcpu);
        }
        self.arm(now, pcpu);
        Slice { next, until }
    }

    fn poll_at(&self) -> Option<Nanos> {
        let checks = self.checks.earliest();
        let at = self.credit.poll_at().map_or(checks, |at| at.min(checks));
        (at < Nanos::MAX).then_some(at)
    }

    fn timer(&mut self, now: Nanos, raise: &mut PcpuSet) {
        self.credit.timer(now, raise);
        while let Some(slot) = self.checks.pop(now) {
            let pcpu = PcpuId(slot as u32);
            if self.due(now, pcpu).is_some() {
                raise.insert(pcpu);
            }
            self.arm(now, pcpu);
        }
    }
}

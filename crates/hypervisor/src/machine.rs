//! The engine: which vCPU runs on which pCPU since when, and what work each has left.
//!
//! Read [`Machine::advance`] and [`Machine::dispatch`] first: one instant is a
//! call of each, with the caller's own changes between them.

use crate::timers::Timers;
use crate::{Current, Host, PcpuId, PcpuSet, Scheduler, VcpuId, Wake};
use serde::{Deserialize, Serialize};
use tailbound_units::Nanos;

/// Costs of a switch of vCPUs, counted as CPU time of the next one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Costs {
    /// Cost if another vCPU ran before on the pCPU.
    pub context_switch: Nanos,
    /// Added if the vCPU last ran on another pCPU.
    pub migration: Nanos,
    /// Added for a cold cache.
    pub cache_refill: Nanos,
}

/// Event of a machine, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// `vcpu` was put on `pcpu`.
    Started {
        /// The vCPU.
        vcpu: VcpuId,
        /// The pCPU.
        pcpu: PcpuId,
        /// The moment, in virtual time.
        at: Nanos,
    },
    /// `vcpu` was taken off `pcpu`.
    Stopped {
        /// The vCPU.
        vcpu: VcpuId,
        /// The pCPU.
        pcpu: PcpuId,
        /// The moment, in virtual time.
        at: Nanos,
        /// True if it had work left.
        runnable: bool,
    },
    /// `vcpu` has done all its work. It blocks at the next
    /// [`Machine::dispatch`] unless it is given more before.
    Done {
        /// The vCPU.
        vcpu: VcpuId,
        /// The moment, in virtual time.
        at: Nanos,
    },
}

/// CPU time and event counts of a vCPU so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct VcpuStats {
    /// Time on a pCPU.
    pub run: Nanos,
    /// The part of it that went into [`Costs`].
    pub overhead: Nanos,
    /// Time it was runnable and did not run, capped ("parked") time included.
    pub waited: Nanos,
    /// Number of starts on a pCPU.
    pub starts: u64,
    /// Number of starts on a different pCPU than the last.
    pub migrations: u64,
    /// Number of stops with work left.
    pub preemptions: u64,
    /// Number of wakes.
    pub wakes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// No work, or paused.
    Blocked,
    Queued,
    Running(PcpuId),
}

#[derive(Debug, Clone)]
struct Vcpu {
    state: State,
    /// Start of this state; while running, moment up to which its run time is counted.
    since: Nanos,
    /// Remaining work, as of [`Vcpu::worked_to`] while it runs. None: no work at all; zero: an end
    /// that was not reported yet.
    work: Option<Nanos>,
    /// Moment up to which work is counted; in the future while a switch is paid for.
    worked_to: Nanos,
    paused: bool,
    yielded: bool,
    last_pcpu: Option<PcpuId>,
    cache_refill: Nanos,
    stats: VcpuStats,
}

#[derive(Debug, Clone, Copy, Default)]
struct Pcpu {
    current: Option<VcpuId>,
    /// The vCPU that ran last, also across idling: its caches hold that one's state.
    last: Option<VcpuId>,
    busy: Nanos,
}

/// pCPUs under a [`Scheduler`], in virtual time.
///
/// A vCPU is runnable as long as it has work: CPU time until a moment that the caller observes
/// ([`Event::Done`]). The caller defines the purpose of the work; [`Simulation`](crate::Simulation)
/// is one caller.
///
/// One instant goes like this, with `now` never beyond [`Machine::poll_at`]:
/// 1. [`Machine::advance`] reports the vCPUs that have finished by now;
/// 2. the caller adds work, wakes, pauses ([`Machine::wake`] and the like);
/// 3. [`Machine::dispatch`] runs the scheduler's timers, then lets every
///    raised pCPU choose (Xen's order of softirqs: `TIMER` before `SCHEDULE`).
#[derive(Debug, Clone)]
pub struct Machine<S> {
    scheduler: S,
    costs: Costs,
    now: Nanos,
    pcpus: Vec<Pcpu>,
    vcpus: Vec<Vcpu>,
    /// Returns when the vCPU that a pCPU runs will have done its work.
    done: Timers,
    slices: Timers,
    raised: PcpuSet,
    finished: Vec<VcpuId>,
    events: u64,
}

impl<S: Scheduler> Machine<S> {
    /// Returns a machine at time 0 with every vCPU of `host` blocked. `scheduler`
    /// must have been made for the same host.
    pub fn new(host: &Host, scheduler: S, costs: Costs) -> Self {
        let vcpu = Vcpu {
            state: State::Blocked,
            since: Nanos::ZERO,
            work: None,
            worked_to: Nanos::ZERO,
            paused: false,
            yielded: false,
            last_pcpu: None,
            cache_refill: costs.cache_refill,
            stats: VcpuStats::default(),
        };
        let pcpus = host.pcpus() as usize;
        Self {
            scheduler,
            costs,
            now: Nanos::ZERO,
            pcpus: vec![Pcpu::default(); pcpus],
            vcpus: vec![vcpu; host.vcpus().len()],
            done: Timers::new(pcpus),
            slices: Timers::new(pcpus),
            raised: PcpuSet::new(),
            finished: Vec::new(),
            events: 0,
        }
    }

    /// Sets a [`Costs::cache_refill`] for `vcpu` alone: what a cold cache costs
    /// depends on how much of it the guest uses.
    pub fn set_cache_refill(&mut self, vcpu: VcpuId, refill: Nanos) {
        self.vcpus[vcpu.index()].cache_refill = refill;
    }

    /// Returns the latest moment that it was advanced to.
    pub fn now(&self) -> Nanos {
        self.now
    }
    /// Returns the policy, for its own getters.
    pub fn scheduler(&self) -> &S {
        &self.scheduler
    }
    /// Returns the number of vCPUs.
    pub fn vcpus(&self) -> usize {
        self.vcpus.len()
    }
    /// Returns the vCPU that `pcpu` runs.
    pub fn current(&self, pcpu: PcpuId) -> Option<VcpuId> {
        self.pcpus[pcpu.index()].current
    }
    /// Returns the pCPU on which `vcpu` runs, if it does.
    pub fn runs_on(&self, vcpu: VcpuId) -> Option<PcpuId> {
        match self.vcpus[vcpu.index()].state {
            State::Running(pcpu) => Some(pcpu),
            State::Blocked | State::Queued => None,
        }
    }
    /// Returns whether `vcpu` has work, paused or not.
    pub fn has_work(&self, vcpu: VcpuId) -> bool {
        self.vcpus[vcpu.index()].work.is_some()
    }
    /// Returns how long `pcpu` was not idle.
    pub fn busy(&self, pcpu: PcpuId) -> Nanos {
        let pcpu = self.pcpus[pcpu.index()];
        let running = pcpu.current.map(|vcpu| &self.vcpus[vcpu.index()]);
        pcpu.busy + running.map_or(Nanos::ZERO, |vcpu| self.now - vcpu.since)
    }
    /// Returns what `vcpu` got up to now.
    pub fn stats(&self, vcpu: VcpuId) -> VcpuStats {
        let vcpu = &self.vcpus[vcpu.index()];
        let mut stats = vcpu.stats;
        let open = self.now.since(vcpu.since);
        match vcpu.state {
            State::Blocked => {}
            State::Queued => stats.waited += open,
            State::Running(_) => {
                stats.run += open;
                // What is booked as overhead but still to be paid.
                stats.overhead = stats.overhead - vcpu.worked_to.since(self.now);
            }
        }
        stats
    }
    /// Returns the number of events so far: wakes, ends of work, scheduler timers and
    /// decisions.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Returns when something is next to be done, if ever.
    pub fn poll_at(&self) -> Option<Nanos> {
        let at = self.next_at();
        (at < Nanos::MAX).then_some(at)
    }

    /// [`Machine::poll_at`] with [`Nanos::MAX`] for never.
    pub(crate) fn next_at(&self) -> Nanos {
        if !self.raised.is_empty() || !self.finished.is_empty() {
            return self.now;
        }
        let own = self.done.earliest().min(self.slices.earliest());
        self.scheduler.poll_at().map_or(own, |at| own.min(at))
    }

    /// Moves time to `now`, which must be neither before the last call nor
    /// beyond [`Machine::poll_at`], and adds an [`Event::Done`] for each vCPU
    /// whose work has ended.
    pub fn advance(&mut self, now: Nanos, events: &mut Vec<Event>) {
        debug_assert!(self.now <= now && now <= self.next_at(), "time is stepped");
        self.now = now;
        while let Some(slot) = self.done.pop(now) {
            // The timer is set exactly while a vCPU runs there.
            if let Some(vcpu) = self.pcpus[slot].current {
                self.events += 1;
                let row = &mut self.vcpus[vcpu.index()];
                row.work = None;
                row.worked_to = now;
                self.finished.push(vcpu);
                events.push(Event::Done { vcpu, at: now });
            }
        }
    }

    /// Adds `work` to the work of `vcpu` ([`Nanos::MAX`]: without end). A blocked vCPU wakes,
    /// because of `cause`, and true is returned. Otherwise the scheduler is notified only if an
    /// event is the cause ([`Scheduler::notify`]).
    pub fn wake(&mut self, vcpu: VcpuId, work: Nanos, cause: Wake) -> bool {
        let left = self.work_left(vcpu).unwrap_or(Nanos::ZERO);
        self.set_work(vcpu, left.saturating_add(work));
        let row = &self.vcpus[vcpu.index()];
        if row.state != State::Blocked {
            if cause == Wake::Event {
                self.notify(vcpu);
            }
            return false;
        }
        if !row.paused {
            self.release(vcpu, cause);
        }
        true
    }

    /// Notifies the scheduler that an event arrived for `vcpu`, which is queued or running.
    pub fn notify(&mut self, vcpu: VcpuId) {
        self.events += 1;
        self.scheduler.notify(self.now, vcpu, &mut self.raised);
    }

    /// Returns what `vcpu` has left to do; `None` when it has no work.
    pub fn work_left(&self, vcpu: VcpuId) -> Option<Nanos> {
        let row = &self.vcpus[vcpu.index()];
        let done = match row.state {
            State::Running(_) => self.now.since(row.worked_to),
            State::Blocked | State::Queued => Nanos::ZERO,
        };
        // Endless work does not shrink.
        row.work.map(|work| {
            if work == Nanos::MAX {
                work
            } else {
                work.saturating_sub(done)
            }
        })
    }

    /// Replaces what `vcpu` has left to do. One without work is not woken by
    /// this ([`Machine::wake`] does that); one that has just finished goes on.
    pub fn set_work(&mut self, vcpu: VcpuId, work: Nanos) {
        let now = self.now;
        let row = &mut self.vcpus[vcpu.index()];
        row.work = Some(work);
        if let State::Running(pcpu) = row.state {
            row.worked_to = row.worked_to.max(now);
            let done_at = row.worked_to.saturating_add(work);
            self.done.set(pcpu.index(), done_at);
        }
    }

    /// Yields the pCPU of `vcpu`, which must be running.
    pub fn yield_now(&mut self, vcpu: VcpuId) {
        if let State::Running(pcpu) = self.vcpus[vcpu.index()].state {
            self.vcpus[vcpu.index()].yielded = true;
            self.raised.insert(pcpu);
        }
    }

    /// Stops `vcpu` until [`Machine::unpause`]. Its work stays.
    pub fn pause(&mut self, vcpu: VcpuId) {
        let now = self.now;
        let row = &mut self.vcpus[vcpu.index()];
        if std::mem::replace(&mut row.paused, true) {
            return;
        }
        match row.state {
            State::Blocked => {}
            State::Queued => {
                row.stats.waited += now - row.since;
                row.state = State::Blocked;
                self.scheduler.sleep(now, vcpu, &mut self.raised);
            }
            State::Running(_) => self.scheduler.sleep(now, vcpu, &mut self.raised),
        }
    }

    /// Ends a pause; `vcpu` wakes if it has work.
    pub fn unpause(&mut self, vcpu: VcpuId) {
        let row = &mut self.vcpus[vcpu.index()];
        let was_paused = std::mem::replace(&mut row.paused, false);
        if was_paused && row.state == State::Blocked && row.work.is_some() {
            self.release(vcpu, Wake::Unpause);
        }
    }

    fn release(&mut self, vcpu: VcpuId, cause: Wake) {
        let row = &mut self.vcpus[vcpu.index()];
        row.state = State::Queued;
        row.since = self.now;
        row.stats.wakes += 1;
        self.events += 1;
        self.scheduler.wake(self.now, vcpu, cause, &mut self.raised);
    }

    /// Ends the instant: blocks vCPUs that have finished, runs the scheduler's timers
    /// and slice ends that are due, and lets raised pCPUs choose.
    pub fn dispatch(&mut self, events: &mut Vec<Event>) {
        let now = self.now;
        while let Some(vcpu) = self.finished.pop() {
            let row = &self.vcpus[vcpu.index()];
            if let (None, State::Running(pcpu)) = (row.work, row.state) {
                self.raised.insert(pcpu);
            }
        }
        if self.scheduler.poll_at().is_some_and(|at| at <= now) {
            self.events += 1;
            self.scheduler.timer(now, &mut self.raised);
        }
        while let Some(slot) = self.slices.pop(now) {
            self.raised.insert(PcpuId(slot as u32));
        }
        while let Some(pcpu) = self.raised.pop() {
            self.schedule(pcpu, events);
        }
    }

    fn schedule(&mut self, pcpu: PcpuId, events: &mut Vec<Event>) {
        self.events += 1;
        let now = self.now;
        let running = self.pcpus[pcpu.index()].current;
        let current = running.map(|vcpu| {
            let row = &mut self.vcpus[vcpu.index()];
            Current {
                vcpu,
                runnable: row.work.is_some() && !row.paused,
                yielded: std::mem::take(&mut row.yielded),
            }
        });
        let slice = self
            .scheduler
            .schedule(now, pcpu, current, &mut self.raised);
        self.slices
            .set(pcpu.index(), slice.until.unwrap_or(Nanos::MAX));
        if slice.next == running {
            return;
        }
        if let Some(current) = current {
            self.stop(pcpu, current, events);
        }
        if let Some(vcpu) = slice.next {
            self.start(pcpu, vcpu, events);
        }
    }

    fn stop(&mut self, pcpu: PcpuId, current: Current, events: &mut Vec<Event>) {
        let now = self.now;
        let Current { vcpu, runnable, .. } = current;
        let left = self.work_left(vcpu);
        let row = &mut self.vcpus[vcpu.index()];
        row.work = left;
        let ran = now - row.since;
        row.stats.run += ran;
        // Overhead that was booked at the start but not reached.
        row.stats.overhead = row.stats.overhead - row.worked_to.since(now);
        row.stats.preemptions += u64::from(runnable);
        row.since = now;
        row.state = if runnable {
            State::Queued
        } else {
            State::Blocked
        };
        self.done.set(pcpu.index(), Nanos::MAX);
        let place = &mut self.pcpus[pcpu.index()];
        place.busy += ran;
        place.current = None;
        events.push(Event::Stopped {
            vcpu,
            pcpu,
            at: now,
            runnable,
        });
    }

    fn start(&mut self, pcpu: PcpuId, vcpu: VcpuId, events: &mut Vec<Event>) {
        let now = self.now;
        let place = &mut self.pcpus[pcpu.index()];
        let row = &mut self.vcpus[vcpu.index()];
        debug_assert_eq!(row.state, State::Queued, "only a queued vCPU is chosen");
        let mut overhead = Nanos::ZERO;
        if place.last != Some(vcpu) {
            overhead += self.costs.context_switch;
            if row.last_pcpu.is_some() {
                overhead += row.cache_refill;
            }
        }
        let migrated = row.last_pcpu.is_some_and(|last| last != pcpu);
        if migrated {
            overhead += self.costs.migration;
            row.stats.migrations += 1;
        }
        row.stats.waited += now - row.since;
        row.stats.overhead += overhead;
        row.stats.starts += 1;
        row.state = State::Running(pcpu);
        row.since = now;
        row.last_pcpu = Some(pcpu);
        row.worked_to = now + overhead;
        place.current = Some(vcpu);
        place.last = Some(vcpu);
        // One that is chosen is runnable, and so has work.
        let work = row.work.unwrap_or(Nanos::ZERO);
        self.done
            .set(pcpu.index(), row.worked_to.saturating_add(work));
        events.push(Event::Started {
            vcpu,
            pcpu,
            at: now,
        });
    }
}

#[cfg(test)]
mod tests;

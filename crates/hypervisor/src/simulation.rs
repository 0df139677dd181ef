//! Guests with workloads on a machine.
//!
//! Read [`Simulation::run`] first, then `Guest`: inside a guest there is a
//! queue of jobs, which go first, and a load, which takes the rest.

use crate::random::Random;
use crate::timers::Timers;
use crate::{Arrivals, Event, Load, Machine, Scheduler, Task, VcpuId, Via, Wake};
use crate::{Workload, WorkloadError};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use tailbound_units::Nanos;

/// How a simulation runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SimulationConfig {
    /// Two runs with the same seed are the same.
    pub seed: u64,
    /// No guest timer fires sooner than this after it is set. Xen's
    /// `timer_slop` is 50 us (`xen/common/timer.c`); 0 turns it off.
    pub timer_slop: Nanos,
}

/// One measurement of a guest's [`Task`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// The vCPU whose task was measured.
    pub vcpu: VcpuId,
    /// When it was complete.
    pub at: Nanos,
    /// How long it took; [`Task`] says from when to when.
    pub took: Nanos,
}

/// Work that a guest does at once.
#[derive(Debug, Clone, Copy)]
struct Job {
    what: What,
    /// The moment from which its latency counts.
    since: Nanos,
    /// CPU time.
    cost: Nanos,
}

#[derive(Debug, Clone, Copy)]
enum What {
    /// Answer a request, or send a frame, and let it out this way.
    Answer(Option<Via>),
    /// Read the clock after a sleep.
    ReadClock,
    /// Do the work between two sleeps.
    BetweenSleeps,
    /// Hand a packet to a guest.
    Inbound(VcpuId),
    /// Hand a guest's packet to the wire.
    Outbound(VcpuId),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doing {
    Nothing,
    Job,
    Load,
}

#[derive(Debug, Clone)]
struct Guest {
    workload: Workload,
    doing: Doing,
    /// The one being done first.
    jobs: VecDeque<Job>,
    /// What the load has left, when it has not all been done and is not being
    /// done.
    load_left: Option<Nanos>,
    /// When the load's period, or the task's sleep, began.
    load_from: Nanos,
    slept_from: Nanos,
    /// When the next frame is due.
    due: Nanos,
}

/// Guests with workloads on a [`Machine`].
#[derive(Debug, Clone)]
pub struct Simulation<S> {
    machine: Machine<S>,
    guests: Vec<Guest>,
    /// A timer for each guest's task and one for its load.
    timers: Timers,
    random: Random,
    timer_slop: Nanos,
    events: Vec<Event>,
    fired: u64,
}

impl<S: Scheduler> Simulation<S> {
    /// Returns a simulation in which the host's vCPU `i` does `workloads[i]`. `machine`
    /// must be new.
    pub fn new(
        machine: Machine<S>,
        workloads: &[Workload],
        config: SimulationConfig,
    ) -> Result<Self, WorkloadError> {
        if workloads.len() != machine.vcpus() {
            return Err(WorkloadError::Count {
                workloads: workloads.len(),
                vcpus: machine.vcpus(),
            });
        }
        for (of, workload) in (0..).zip(workloads) {
            workload.check(of, workloads)?;
        }
        let guest = |&workload| Guest {
            workload,
            doing: Doing::Nothing,
            jobs: VecDeque::new(),
            load_left: None,
            load_from: Nanos::ZERO,
            slept_from: Nanos::ZERO,
            due: Nanos::ZERO,
        };
        let mut simulation = Self {
            machine,
            guests: workloads.iter().map(guest).collect(),
            timers: Timers::new(2 * workloads.len()),
            random: Random::new(config.seed),
            timer_slop: config.timer_slop,
            events: Vec::new(),
            fired: 0,
        };
        for (vcpu, workload) in workloads.iter().enumerate() {
            simulation.begin(vcpu, *workload);
        }
        Ok(simulation)
    }

    /// Returns the machine, for its statistics and the scheduler's.
    pub fn machine(&self) -> &Machine<S> {
        &self.machine
    }

    /// Returns the number of events so far: the machine's, arrivals, and guests'
    /// timers.
    pub fn events(&self) -> u64 {
        self.fired + self.machine.events()
    }

    /// Runs until `end`, handing each sample to `sink` as it is complete.
    /// Can be called again with a later end.
    pub fn run(&mut self, end: Nanos, sink: &mut impl FnMut(Sample)) {
        let mut events = std::mem::take(&mut self.events);
        loop {
            let now = self.machine.next_at().min(self.timers.earliest());
            if now > end {
                break;
            }
            self.machine.advance(now, &mut events);
            for event in events.drain(..) {
                if let Event::Done { vcpu, at } = event {
                    self.done(vcpu, at, sink);
                }
            }
            while let Some(slot) = self.timers.pop(now) {
                self.fired += 1;
                let vcpu = VcpuId(slot as u32 / 2);
                if slot % 2 == 0 {
                    self.task_timer(vcpu, now);
                } else {
                    self.load_timer(vcpu);
                }
            }
            self.machine.dispatch(&mut events);
            events.clear();
        }
        self.events = events;
        if end > self.machine.now() {
            self.machine.advance(end, &mut self.events);
        }
    }

    /// Sets the first timers of a guest.
    fn begin(&mut self, vcpu: usize, workload: Workload) {
        let first = match workload.task {
            Task::None | Task::Driver => Nanos::MAX,
            Task::Server { arrivals, .. } => match arrivals {
                Arrivals::Every { interval, .. } => self.random.up_to(interval),
                Arrivals::Poisson { mean } => self.random.exponential(mean),
                Arrivals::Closed { think, .. } => self.random.up_to(think),
            },
            Task::Sender { period, .. } => self.random.up_to(period),
            Task::SleepLoop { sleep, .. } => {
                let begins = self.random.up_to(sleep);
                self.guests[vcpu].slept_from = begins;
                begins.saturating_add(sleep.max(self.timer_slop))
            }
        };
        self.guests[vcpu].due = first;
        self.timers.set(2 * vcpu, first);
        let first = match workload.load {
            Load::None => Nanos::MAX,
            Load::Endless => Nanos::ZERO,
            Load::DutyCycle { period, .. } => self.random.up_to(period),
            Load::Bursts { sleep, .. } => self.random.up_to(sleep),
        };
        self.timers.set(2 * vcpu + 1, first);
    }

    /// Returns when a timer fires that a guest sets now for `at`.
    fn set_timer(&mut self, slot: usize, at: Nanos) {
        let earliest = self.machine.now().saturating_add(self.timer_slop);
        self.timers.set(slot, at.max(earliest));
    }

    /// Handles the arrival of a request, or a timer of the guest's task.
    fn task_timer(&mut self, vcpu: VcpuId, now: Nanos) {
        let slot = 2 * vcpu.index();
        match self.guests[vcpu.index()].workload.task {
            Task::None | Task::Driver => {}
            Task::Server {
                arrivals,
                service,
                via,
            } => {
                match arrivals {
                    Arrivals::Every { interval, jitter } => {
                        let gap = interval.saturating_add(self.random.up_to(jitter));
                        self.timers.set(slot, now.saturating_add(gap));
                    }
                    Arrivals::Poisson { mean } => {
                        let gap = self.random.exponential(mean);
                        self.timers.set(slot, now.saturating_add(gap));
                    }
                    // When this one is answered.
                    Arrivals::Closed { .. } => {}
                }
                if let Some(Via {
                    vcpu: driver,
                    inbound,
                    ..
                }) = via
                {
                    self.offer(driver, What::Inbound(vcpu), now, inbound, Wake::Event);
                } else {
                    self.offer(vcpu, What::Answer(None), now, service, Wake::Event);
                }
            }
            Task::Sender { period, send, via } => {
                let guest = &mut self.guests[vcpu.index()];
                let due = guest.due;
                guest.due = due.saturating_add(period);
                let next = guest.due;
                self.set_timer(slot, next);
                self.offer(vcpu, What::Answer(via), due, send, Wake::Timer);
            }
            Task::SleepLoop { .. } => {
                let since = self.guests[vcpu.index()].slept_from;
                self.offer(vcpu, What::ReadClock, since, Nanos::ZERO, Wake::Timer);
            }
        }
    }

    /// Handles the end of the load's sleep.
    fn load_timer(&mut self, vcpu: VcpuId) {
        let now = self.machine.now();
        let guest = &mut self.guests[vcpu.index()];
        guest.load_from = now;
        let work = guest.load_burst();
        if guest.doing == Doing::Nothing {
            guest.doing = Doing::Load;
            self.machine.wake(vcpu, work, Wake::Timer);
        } else {
            guest.load_left = Some(work);
        }
    }

    /// Adds a job to a guest's queue. It interrupts the load, and waits behind other
    /// jobs.
    fn offer(&mut self, vcpu: VcpuId, what: What, since: Nanos, cost: Nanos, cause: Wake) {
        let guest = &mut self.guests[vcpu.index()];
        guest.jobs.push_back(Job { what, since, cost });
        let before = std::mem::replace(&mut guest.doing, Doing::Job);
        match before {
            Doing::Nothing => {
                self.machine.wake(vcpu, cost, cause);
                return;
            }
            Doing::Load => {
                guest.load_left = self.machine.work_left(vcpu);
                self.machine.set_work(vcpu, cost);
            }
            Doing::Job => {}
        }
        if cause == Wake::Event {
            self.machine.notify(vcpu);
        }
    }

    /// Handles the end of a guest's work.
    fn done(&mut self, vcpu: VcpuId, now: Nanos, sink: &mut impl FnMut(Sample)) {
        let guest = &mut self.guests[vcpu.index()];
        match guest.doing {
            Doing::Nothing => {}
            Doing::Job => {
                if let Some(job) = guest.jobs.pop_front() {
                    self.finish(vcpu, job, now, sink);
                }
            }
            Doing::Load => self.load_done(vcpu, now),
        }
        let guest = &mut self.guests[vcpu.index()];
        if let Some(job) = guest.jobs.front() {
            guest.doing = Doing::Job;
            self.machine.set_work(vcpu, job.cost);
        } else if let Some(left) = guest.load_left.take() {
            guest.doing = Doing::Load;
            self.machine.set_work(vcpu, left);
        } else {
            guest.doing = Doing::Nothing;
        }
    }

    /// Does what follows from the end of a job of `vcpu`.
    fn finish(&mut self, vcpu: VcpuId, job: Job, now: Nanos, sink: &mut impl FnMut(Sample)) {
        let Job { what, since, .. } = job;
        match what {
            What::Answer(None) => self.answered(vcpu, since, now, sink),
            What::Answer(Some(via)) => {
                let what = What::Outbound(vcpu);
                self.offer(via.vcpu, what, since, via.outbound, Wake::Event);
            }
            What::Outbound(from) => self.answered(from, since, now, sink),
            What::Inbound(to) => {
                if let Task::Server { service, via, .. } = self.guests[to.index()].workload.task {
                    self.offer(to, What::Answer(via), since, service, Wake::Event);
                }
            }
            What::ReadClock => {
                sink(Sample {
                    vcpu,
                    at: now,
                    took: now - since,
                });
                if let Task::SleepLoop { work, .. } = self.guests[vcpu.index()].workload.task {
                    // The machine has nothing of this guest to do at the
                    // moment, so the job is just queued.
                    let what = What::BetweenSleeps;
                    self.offer(vcpu, what, now, work, Wake::Timer);
                }
            }
            What::BetweenSleeps => {
                let guest = &mut self.guests[vcpu.index()];
                guest.slept_from = now;
                if let Task::SleepLoop { sleep, jitter, .. } = guest.workload.task {
                    let sleep = sleep.saturating_add(self.random.up_to(jitter));
                    self.set_timer(2 * vcpu.index(), now.saturating_add(sleep));
                }
            }
        }
    }

    fn answered(&mut self, vcpu: VcpuId, since: Nanos, now: Nanos, sink: &mut impl FnMut(Sample)) {
        sink(Sample {
            vcpu,
            at: now,
            took: now - since,
        });
        if let Task::Server {
            arrivals: Arrivals::Closed { think, jitter },
            ..
        } = self.guests[vcpu.index()].workload.task
        {
            let pause = think.saturating_add(self.random.up_to(jitter));
            self.timers.set(2 * vcpu.index(), now.saturating_add(pause));
        }
    }

    /// Handles the end of a burst of the load: it sleeps, or goes straight on.
    fn load_done(&mut self, vcpu: VcpuId, now: Nanos) {
        let slot = 2 * vcpu.index() + 1;
        let guest = &mut self.guests[vcpu.index()];
        match guest.workload.load {
            Load::None | Load::Endless => {}
            Load::DutyCycle { period, jitter, .. } => {
                let end = guest.load_from.saturating_add(period);
                if now >= end {
                    guest.load_from = now;
                    guest.load_left = Some(guest.load_burst());
                } else {
                    let late = self.random.up_to(jitter);
                    self.set_timer(slot, end.saturating_add(late));
                }
            }
            Load::Bursts { sleep, jitter, .. } => {
                let late = self.random.up_to(jitter);
                self.set_timer(slot, now.saturating_add(sleep).saturating_add(late));
            }
        }
    }
}

impl Guest {
    /// Returns the CPU time of a burst of the load.
    fn load_burst(&self) -> Nanos {
        match self.workload.load {
            Load::None => Nanos::ZERO,
            Load::Endless => Nanos::MAX,
            Load::DutyCycle { busy, .. } => busy,
            Load::Bursts { work, .. } => work,
        }
    }
}

#[cfg(test)]
mod tests;

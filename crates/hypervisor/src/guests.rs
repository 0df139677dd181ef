//! Guests on a machine: in each a queue of jobs, which go first, and a load, which takes
//! the rest.
//!
//! Read [`Guests::next`] first: the caller, which knows the purpose of the jobs, queries it for
//! events and answers with [`Guests::offer`]. [`Simulation`](crate::Simulation) does that for tasks
//! of fixed kinds; a simulator of packets does it for its own.

use crate::random::Random;
use crate::timers::Timers;
use crate::{Event, Load, Machine, Scheduler, VcpuId, Wake};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use tailbound_units::Nanos;

/// Configuration of a simulation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SimulationConfig {
    /// Two runs with the same seed are the same.
    pub seed: u64,
    /// Shortest time from setting a guest timer until it fires. Xen's `timer_slop` is 50 us
    /// (`xen/common/timer.c`); 0 turns it off.
    pub timer_slop: Nanos,
}

/// Event on a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Happening<J> {
    /// A guest has done a job.
    Done {
        /// Its vCPU.
        vcpu: VcpuId,
        /// The time of the completion.
        at: Nanos,
        /// The completed job.
        job: J,
    },
    /// The timer that was set with [`Guests::set_timer`] fired.
    Timer {
        /// vCPU of the timer.
        vcpu: VcpuId,
        /// The time of the timer.
        at: Nanos,
    },
}

/// CPU time of one reading of the clock, for a load that ends by the clock.
const CLOCK_READING_TIME: Nanos = Nanos(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doing {
    Nothing,
    Job,
    Load,
}

#[derive(Debug, Clone)]
struct Guest<J> {
    load: Load,
    doing: Doing,
    /// Jobs with their CPU time; the one being done first.
    jobs: VecDeque<(J, Nanos)>,
    /// Remaining work of the load while the load is interrupted.
    load_left: Option<Nanos>,
    /// Start of the load's period.
    load_from: Nanos,
    /// True while a load by the clock is in the busy part of its period.
    is_spinning: bool,
}

/// Guests on a [`Machine`], each with jobs of type `J` and a [`Load`].
#[derive(Debug, Clone)]
pub struct Guests<S, J> {
    machine: Machine<S>,
    /// Guests by vCPU.
    rows: Vec<Guest<J>>,
    /// A timer for each guest's caller and one for its load.
    timers: Timers,
    random: Random,
    timer_slop: Nanos,
    /// The machine's of this instant, and how many of them were handled.
    events: Vec<Event>,
    handled: usize,
    /// True if the instant has not ended yet.
    is_open: bool,
    /// vCPU whose completed job was reported and which has no next work yet.
    settling: Option<VcpuId>,
    fired: u64,
}

impl<S: Scheduler, J> Guests<S, J> {
    /// Returns guests without load and jobs, one for each vCPU of `machine`, which must be
    /// new.
    pub fn new(machine: Machine<S>, config: SimulationConfig) -> Self {
        let vcpus = machine.vcpus();
        let guest = || Guest {
            load: Load::None,
            doing: Doing::Nothing,
            jobs: VecDeque::new(),
            load_left: None,
            load_from: Nanos::ZERO,
            is_spinning: false,
        };
        Self {
            machine,
            rows: (0..vcpus).map(|_| guest()).collect(),
            timers: Timers::new(2 * vcpus),
            random: Random::new(config.seed),
            timer_slop: config.timer_slop,
            events: Vec::new(),
            handled: 0,
            is_open: false,
            settling: None,
            fired: 0,
        }
    }

    /// Sets the load of a guest. It begins at a moment of its first period.
    pub fn start_load(&mut self, vcpu: VcpuId, load: Load) {
        self.rows[vcpu.index()].load = load;
        let first = match load {
            Load::None => Nanos::MAX,
            Load::Endless => Nanos::ZERO,
            Load::DutyCycle { period, .. } | Load::WallClock { period, .. } => {
                self.random.up_to(period)
            }
            Load::Bursts { sleep, .. } => self.random.up_to(sleep),
        };
        self.timers.set(2 * vcpu.index() + 1, first);
    }

    /// Returns the machine, for its statistics and the scheduler's.
    pub fn machine(&self) -> &Machine<S> {
        &self.machine
    }

    /// Returns the number of events so far: the machine's and those of timers.
    pub fn events(&self) -> u64 {
        self.fired + self.machine.events()
    }

    /// Returns whether a guest has a job that is not done.
    pub fn has_jobs(&self, vcpu: VcpuId) -> bool {
        !self.rows[vcpu.index()].jobs.is_empty()
    }

    /// Returns the random source of loads and timers.
    pub(crate) fn random(&mut self) -> &mut Random {
        &mut self.random
    }

    /// Sets the caller's timer of a guest to exactly `at`; [`Nanos::MAX`] stops it.
    pub fn set_timer(&mut self, vcpu: VcpuId, at: Nanos) {
        self.timers.set(2 * vcpu.index(), at);
    }

    /// Sets the caller's timer of a guest as the guest itself would: it does not fire
    /// sooner than [`SimulationConfig::timer_slop`] after now.
    pub fn set_guest_timer(&mut self, vcpu: VcpuId, at: Nanos) {
        self.set_slot(2 * vcpu.index(), at);
    }

    fn set_slot(&mut self, slot: usize, at: Nanos) {
        let earliest = self.machine.now().saturating_add(self.timer_slop);
        self.timers.set(slot, at.max(earliest));
    }

    /// Returns the moment of the next event; [`Nanos::MAX`] for never.
    pub fn poll_at(&self) -> Nanos {
        self.machine.next_at().min(self.timers.earliest())
    }

    /// Adds a job to a guest's queue: `cost` of CPU time. It interrupts the load, and waits
    /// behind other jobs.
    pub fn offer(&mut self, vcpu: VcpuId, job: J, cost: Nanos, cause: Wake) {
        let guest = &mut self.rows[vcpu.index()];
        guest.jobs.push_back((job, cost));
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

    /// Runs up to what happens next, at `end` at the latest. After `None` the time is
    /// `end`, and nothing is left to be done until then.
    pub fn next(&mut self, end: Nanos) -> Option<Happening<J>> {
        loop {
            if let Some(vcpu) = self.settling.take() {
                self.go_on(vcpu);
            }
            if let Some(event) = self.events.get(self.handled) {
                self.handled += 1;
                if let Event::Done { vcpu, at } = *event
                    && let Some(happening) = self.done(vcpu, at)
                {
                    return Some(happening);
                }
                continue;
            }
            if self.is_open {
                let now = self.machine.now();
                if let Some(slot) = self.timers.pop(now) {
                    self.fired += 1;
                    let vcpu = VcpuId(slot as u32 / 2);
                    if slot % 2 == 0 {
                        return Some(Happening::Timer { vcpu, at: now });
                    }
                    self.load_timer(vcpu);
                    continue;
                }
                self.machine.dispatch(&mut self.events);
                self.is_open = false;
            }
            self.events.clear();
            self.handled = 0;
            let now = self.poll_at();
            if now > end {
                if end > self.machine.now() {
                    self.machine.advance(end, &mut self.events);
                }
                return None;
            }
            self.machine.advance(now, &mut self.events);
            self.is_open = true;
        }
    }

    /// Handles the end of a guest's work; returns the job, if it was one.
    fn done(&mut self, vcpu: VcpuId, at: Nanos) -> Option<Happening<J>> {
        self.settling = Some(vcpu);
        let guest = &mut self.rows[vcpu.index()];
        match guest.doing {
            Doing::Nothing => {}
            Doing::Job => {
                if let Some((job, _)) = guest.jobs.pop_front() {
                    return Some(Happening::Done { vcpu, at, job });
                }
            }
            Doing::Load => self.load_done(vcpu, at),
        }
        None
    }

    /// Assigns the next work to a guest that has finished its last.
    fn go_on(&mut self, vcpu: VcpuId) {
        let guest = &mut self.rows[vcpu.index()];
        if let Some((_, cost)) = guest.jobs.front() {
            guest.doing = Doing::Job;
            self.machine.set_work(vcpu, *cost);
        } else if let Some(left) = guest.load_left.take() {
            guest.doing = Doing::Load;
            self.machine.set_work(vcpu, left);
        } else {
            guest.doing = Doing::Nothing;
        }
    }

    /// Handles the end of the load's sleep, or of the time for which it is busy by the clock.
    fn load_timer(&mut self, vcpu: VcpuId) {
        let now = self.machine.now();
        let guest = &mut self.rows[vcpu.index()];
        if guest.is_spinning {
            // It sees that as soon as it runs.
            if guest.doing == Doing::Load {
                self.machine.set_work(vcpu, CLOCK_READING_TIME);
            } else {
                guest.load_left = Some(CLOCK_READING_TIME);
            }
            return;
        }
        guest.load_from = now;
        let work = guest.load_burst();
        if guest.doing == Doing::Nothing {
            guest.doing = Doing::Load;
            self.machine.wake(vcpu, work, Wake::Timer);
        } else {
            guest.load_left = Some(work);
        }
    }

    /// Handles the end of a burst of the load: it sleeps, or goes straight on.
    fn load_done(&mut self, vcpu: VcpuId, now: Nanos) {
        let slot = 2 * vcpu.index() + 1;
        let guest = &mut self.rows[vcpu.index()];
        match guest.load {
            Load::None | Load::Endless => {}
            Load::DutyCycle { period, jitter, .. } => {
                let end = guest.load_from.saturating_add(period);
                if now >= end {
                    guest.load_from = now;
                    guest.load_left = Some(guest.load_burst());
                } else {
                    let late = self.random.up_to(jitter);
                    self.set_slot(slot, end.saturating_add(late));
                }
            }
            Load::WallClock { busy, .. } if !guest.is_spinning => {
                guest.is_spinning = true;
                guest.load_from = now;
                guest.load_left = Some(Nanos::MAX);
                self.timers.set(slot, now.saturating_add(busy));
            }
            Load::WallClock { period, jitter, .. } => {
                guest.is_spinning = false;
                let end = guest.load_from.saturating_add(period);
                if now >= end {
                    guest.load_left = Some(CLOCK_READING_TIME);
                } else {
                    let late = self.random.up_to(jitter);
                    self.set_slot(slot, end.saturating_add(late));
                }
            }
            Load::Bursts { sleep, jitter, .. } => {
                let late = self.random.up_to(jitter);
                self.set_slot(slot, now.saturating_add(sleep).saturating_add(late));
            }
        }
    }
}

impl<J> Guest<J> {
    /// Returns the CPU time of a burst of the load.
    fn load_burst(&self) -> Nanos {
        match self.load {
            Load::None => Nanos::ZERO,
            Load::Endless => Nanos::MAX,
            Load::DutyCycle { busy, .. } => busy,
            Load::WallClock { .. } => CLOCK_READING_TIME,
            Load::Bursts { work, .. } => work,
        }
    }
}

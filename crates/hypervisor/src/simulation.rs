//! Guests with workloads on a machine.
//!
//! Read [`Simulation::run`] first: [`Guests`] do the work, and the simulation reacts to each
//! completed job.

use crate::{
    Arrivals, Guests, Happening, Machine, Scheduler, SimulationConfig, Task, VcpuId, Via, Wake,
};
use crate::{Workload, WorkloadError};
use tailbound_units::Nanos;

/// Measurement of a guest's [`Task`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// The vCPU whose task was measured.
    pub vcpu: VcpuId,
    /// Moment of completion.
    pub at: Nanos,
    /// Duration; [`Task`] defines its start and end.
    pub took: Nanos,
}

/// Work that a guest does without a pause.
#[derive(Debug, Clone, Copy)]
struct Job {
    what: What,
    /// The moment from which its latency counts.
    since: Nanos,
}

#[derive(Debug, Clone, Copy)]
enum What {
    /// Answer a request or send a frame, which leaves by this path.
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

/// State of a guest's task.
#[derive(Debug, Clone)]
struct Guest {
    workload: Workload,
    /// Start of the task's sleep.
    slept_from: Nanos,
    /// Due time of the next frame, or start of the workflow.
    due: Nanos,
    /// Calls of the workflow that are still to be made, this one included.
    calls: u32,
}

/// Guests with workloads on a [`Machine`].
#[derive(Debug, Clone)]
pub struct Simulation<S> {
    guests: Guests<S, Job>,
    tasks: Vec<Guest>,
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
        let task = |&workload| Guest {
            workload,
            slept_from: Nanos::ZERO,
            due: Nanos::ZERO,
            calls: 0,
        };
        let mut simulation = Self {
            guests: Guests::new(machine, config),
            tasks: workloads.iter().map(task).collect(),
        };
        for (vcpu, workload) in (0..).map(VcpuId).zip(workloads) {
            simulation.begin(vcpu, workload.task, config.timer_slop);
            simulation.guests.start_load(vcpu, workload.load);
        }
        Ok(simulation)
    }

    /// Returns the machine, for its statistics and the scheduler's.
    pub fn machine(&self) -> &Machine<S> {
        self.guests.machine()
    }

    /// Returns the number of events so far: the machine's, arrivals, and guests'
    /// timers.
    pub fn events(&self) -> u64 {
        self.guests.events()
    }

    /// Returns the moment of the next event; [`Nanos::MAX`] for never.
    pub fn poll_at(&self) -> Nanos {
        self.guests.poll_at()
    }

    /// Adds `cost` of work to a guest without a task of its own, as an event or a timer does. A
    /// [`Sample`] reports its end, and the time since `since`.
    pub fn ask(&mut self, vcpu: VcpuId, since: Nanos, cost: Nanos, cause: Wake) {
        self.offer(vcpu, What::Answer(None), since, cost, cause);
    }

    /// Runs until `end`, handing each sample to `sink` as it is complete.
    /// Can be called again with a later end.
    pub fn run(&mut self, end: Nanos, sink: &mut impl FnMut(Sample)) {
        while let Some(happening) = self.guests.next(end) {
            match happening {
                Happening::Done { vcpu, at, job } => self.finish(vcpu, job, at, sink),
                Happening::Timer { vcpu, at } => self.task_timer(vcpu, at),
            }
        }
    }

    /// Sets the first timer of a guest's task.
    fn begin(&mut self, vcpu: VcpuId, task: Task, timer_slop: Nanos) {
        let random = self.guests.random();
        let first = match task {
            Task::None | Task::Driver => Nanos::MAX,
            Task::Server { arrivals, .. } => match arrivals {
                Arrivals::Every { interval, .. } => random.up_to(interval),
                Arrivals::Poisson { mean } | Arrivals::Sequences { mean, .. } => {
                    random.exponential(mean)
                }
                Arrivals::Closed { think, .. } => random.up_to(think),
            },
            Task::Sender { period, .. } => random.up_to(period),
            Task::SleepLoop { sleep, .. } => {
                let begins = random.up_to(sleep);
                self.tasks[vcpu.index()].slept_from = begins;
                begins.saturating_add(sleep.max(timer_slop))
            }
        };
        self.tasks[vcpu.index()].due = first;
        self.guests.set_timer(vcpu, first);
    }

    /// Handles the arrival of a request, or a timer of the guest's task.
    fn task_timer(&mut self, vcpu: VcpuId, now: Nanos) {
        match self.tasks[vcpu.index()].workload.task {
            Task::None | Task::Driver => {}
            Task::Server {
                arrivals,
                service,
                via,
            } => {
                match arrivals {
                    Arrivals::Every { interval, jitter } => {
                        let gap = interval.saturating_add(self.guests.random().up_to(jitter));
                        self.guests.set_timer(vcpu, now.saturating_add(gap));
                    }
                    Arrivals::Poisson { mean } => {
                        let gap = self.guests.random().exponential(mean);
                        self.guests.set_timer(vcpu, now.saturating_add(gap));
                    }
                    // When this one is answered.
                    Arrivals::Closed { .. } => {}
                    Arrivals::Sequences { calls, .. } => {
                        let task = &mut self.tasks[vcpu.index()];
                        if task.calls == 0 {
                            (task.calls, task.due) = (calls, now);
                        }
                    }
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
                let task = &mut self.tasks[vcpu.index()];
                let due = task.due;
                task.due = due.saturating_add(period);
                let next = task.due;
                self.guests.set_guest_timer(vcpu, next);
                self.offer(vcpu, What::Answer(via), due, send, Wake::Timer);
            }
            Task::SleepLoop { .. } => {
                let since = self.tasks[vcpu.index()].slept_from;
                self.offer(vcpu, What::ReadClock, since, Nanos::ZERO, Wake::Timer);
            }
        }
    }

    fn offer(&mut self, vcpu: VcpuId, what: What, since: Nanos, cost: Nanos, cause: Wake) {
        self.guests.offer(vcpu, Job { what, since }, cost, cause);
    }

    /// Does what follows from the end of a job of `vcpu`.
    fn finish(&mut self, vcpu: VcpuId, job: Job, now: Nanos, sink: &mut impl FnMut(Sample)) {
        let Job { what, since } = job;
        match what {
            What::Answer(None) => self.answered(vcpu, since, now, sink),
            What::Answer(Some(via)) => {
                let what = What::Outbound(vcpu);
                self.offer(via.vcpu, what, since, via.outbound, Wake::Event);
            }
            What::Outbound(from) => self.answered(from, since, now, sink),
            What::Inbound(to) => {
                if let Task::Server { service, via, .. } = self.tasks[to.index()].workload.task {
                    self.offer(to, What::Answer(via), since, service, Wake::Event);
                }
            }
            What::ReadClock => {
                sink(Sample {
                    vcpu,
                    at: now,
                    took: now - since,
                });
                if let Task::SleepLoop { work, .. } = self.tasks[vcpu.index()].workload.task {
                    // The machine has nothing of this guest to do at the
                    // moment, so the job is just queued.
                    let what = What::BetweenSleeps;
                    self.offer(vcpu, what, now, work, Wake::Timer);
                }
            }
            What::BetweenSleeps => {
                let task = &mut self.tasks[vcpu.index()];
                task.slept_from = now;
                if let Task::SleepLoop { sleep, jitter, .. } = task.workload.task {
                    let sleep = sleep.saturating_add(self.guests.random().up_to(jitter));
                    self.guests.set_guest_timer(vcpu, now.saturating_add(sleep));
                }
            }
        }
    }

    fn answered(&mut self, vcpu: VcpuId, since: Nanos, now: Nanos, sink: &mut impl FnMut(Sample)) {
        let mut sample = |since, at| {
            sink(Sample {
                vcpu,
                at,
                took: at - since,
            });
        };
        let Task::Server { arrivals, .. } = self.tasks[vcpu.index()].workload.task else {
            sample(since, now);
            return;
        };
        match arrivals {
            Arrivals::Every { .. } | Arrivals::Poisson { .. } => sample(since, now),
            Arrivals::Closed { think, jitter } => {
                sample(since, now);
                let pause = think.saturating_add(self.guests.random().up_to(jitter));
                self.guests.set_timer(vcpu, now.saturating_add(pause));
            }
            Arrivals::Sequences { mean, wire, .. } => {
                let random = self.guests.random();
                let mut next = now.saturating_add(wire[random.below(wire.len())]);
                let task = &mut self.tasks[vcpu.index()];
                task.calls -= 1;
                if task.calls == 0 {
                    // The last answer is on its way, too.
                    sample(task.due, next);
                    next = next.saturating_add(self.guests.random().exponential(mean));
                }
                self.guests.set_timer(vcpu, next);
            }
        }
    }
}

#[cfg(test)]
mod tests;

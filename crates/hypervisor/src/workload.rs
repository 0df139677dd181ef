//! Workloads of guests.
//!
//! A guest has a [`Task`], whose latency is measured, and a [`Load`], which
//! takes the rest. The task's work goes first inside the guest, as an interrupt
//! or an I/O thread does; so what is measured is the hypervisor's scheduling alone.
//!
//! Guests are not in step: everything that is periodic begins at a moment that is
//! uniform over its first period.

use crate::VcpuId;
use serde::{Deserialize, Serialize};
use tailbound_units::Nanos;
use thiserror::Error;

/// Workload of one vCPU.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Workload {
    /// Measured task.
    pub task: Task,
    /// Load that uses CPU time beside the task.
    pub load: Load,
}

/// CPU-bound work.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", deny_unknown_fields, rename_all = "kebab-case")]
pub enum Load {
    /// No CPU-bound work.
    #[default]
    None,
    /// Never sleeps.
    Endless,
    /// `busy` of CPU time in each `period`, then a pause, as `cpulimit` does it (Bobtail, section
    /// 3.2). If a period ends first, the next begins immediately: with `busy` = `period` it never
    /// sleeps.
    DutyCycle {
        /// CPU time used in a period.
        busy: Nanos,
        /// The time from one start to the next.
        period: Nanos,
        /// Each period is longer by a uniform 0 to this, since timers of guests are late by some
        /// microseconds; with 0 the phase against the hypervisor's ticks is constant.
        jitter: Nanos,
    },
    /// Busy until `busy` has passed by the clock, then asleep until the period is over. CPU time
    /// that others take is lost. The period begins when it first runs.
    WallClock {
        /// Busy time in a period, by the clock.
        busy: Nanos,
        /// Time from its first run to the timer that ends its sleep.
        period: Nanos,
        /// Each period is longer by a uniform 0 to this.
        jitter: Nanos,
    },
    /// `work` of CPU time, then a sleep, over and over (Small is Better,
    /// section 5.2: CPU-bound with brief sleeps).
    Bursts {
        /// CPU time of a burst.
        work: Nanos,
        /// Time from the end of a burst to the timer that ends the sleep.
        sleep: Nanos,
        /// Each sleep is longer by a uniform 0 to this.
        jitter: Nanos,
    },
}

/// Arrival process of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", deny_unknown_fields, rename_all = "kebab-case")]
pub enum Arrivals {
    /// One request each `interval`, independent of earlier answers (open loop).
    Every {
        /// The time from one request to the next.
        interval: Nanos,
        /// Each interval is longer by a uniform 0 to this.
        jitter: Nanos,
    },
    /// A Poisson process (open loop).
    Poisson {
        /// The mean gap.
        mean: Nanos,
    },
    /// A synchronous client: the next one `think` after the answer to the last.
    Closed {
        /// Time from an answer to the next request.
        think: Nanos,
        /// Each pause is longer by a uniform 0 to this.
        jitter: Nanos,
    },
    /// Workflows of synchronous calls (Bobtail, section 5.2), each a random time after the last one
    /// ended. A workflow is one sample.
    Sequences {
        /// Mean time from the end of a workflow to the next one.
        mean: Nanos,
        /// Calls of a workflow.
        calls: u32,
        /// Time of a call on the wire, there and back: each of these values with equal probability.
        wire: [Nanos; 3],
    },
}

/// The driver domain (Xen's dom0) through which packets pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Via {
    /// A vCPU whose task is [`Task::Driver`].
    pub vcpu: VcpuId,
    /// Its CPU time for a packet on the way in.
    pub inbound: Nanos,
    /// Its CPU time for a packet on the way out.
    pub outbound: Nanos,
}

/// Measured task of a guest. Each request, frame, or sleep yields a [`Sample`](crate::Sample).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", deny_unknown_fields, rename_all = "kebab-case")]
pub enum Task {
    /// Nothing is measured.
    #[default]
    None,
    /// Answers requests in order. Measured from the request's arrival at the host until its answer
    /// leaves. With a small service time it is a responder to pings.
    Server {
        /// Arrival process of the requests.
        arrivals: Arrivals,
        /// CPU time of one answer.
        service: Nanos,
        /// The driver domain that requests and answers pass; `None`: they go straight
        /// to the guest.
        #[serde(default)]
        via: Option<Via>,
    },
    /// Sends a frame each period by a timer of its own (RTP). Measured from when the frame was due
    /// until it leaves.
    Sender {
        /// The time from one frame to the next.
        period: Nanos,
        /// CPU time to send one.
        send: Nanos,
        /// The driver domain that frames pass; its `inbound` is not used.
        #[serde(default)]
        via: Option<Via>,
    },
    /// Sleeps and reads the clock, repeatedly (Bobtail, algorithm 1). Measured: the wall time from
    /// before the sleep to after it.
    SleepLoop {
        /// Requested duration of a sleep.
        sleep: Nanos,
        /// CPU time from waking until it requests the next sleep.
        work: Nanos,
        /// Each sleep is longer by a uniform 0 to this. In Linux, timers of ordinary threads are up
        /// to 50 us late (the timer slack).
        #[serde(default)]
        jitter: Nanos,
    },
    /// Handles the packets of those that name it in [`Via`], in order.
    Driver,
}

/// A workload that cannot be run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum WorkloadError {
    /// The number of workloads is not that of vCPUs.
    #[error("{workloads} workloads for {vcpus} vCPUs")]
    Count {
        /// Number of passed workloads.
        workloads: usize,
        /// Number of the host's vCPUs.
        vcpus: usize,
    },
    /// A period, gap or burst of zero, with which time would never pass.
    #[error("vCPU {0}: {1} must not be zero")]
    Zero(u32, &'static str),
    /// The CPU time in a period exceeds the period.
    #[error("vCPU {0}: busy is longer than the period")]
    Busy(u32),
    /// `via` names a vCPU that is not there or whose task is another.
    #[error("vCPU {0}: vCPU {1} is no driver domain")]
    NoDriver(u32, u32),
}

impl Workload {
    /// Returns a guest that never sleeps.
    pub const fn hog() -> Self {
        Self {
            task: Task::None,
            load: Load::Endless,
        }
    }

    /// Returns a guest that only does `task`.
    pub const fn task(task: Task) -> Self {
        Self {
            task,
            load: Load::None,
        }
    }

    /// Returns a guest that only does `load`.
    pub const fn load(load: Load) -> Self {
        Self {
            task: Task::None,
            load,
        }
    }
}

impl Workload {
    /// Refuses what cannot be run, as vCPU `of` among `all`.
    pub(crate) fn check(&self, of: u32, all: &[Self]) -> Result<(), WorkloadError> {
        let positive = |value: Nanos, name| match value {
            Nanos::ZERO => Err(WorkloadError::Zero(of, name)),
            _ => Ok(()),
        };
        match self.load {
            Load::None | Load::Endless => {}
            Load::DutyCycle { busy, period, .. } | Load::WallClock { busy, period, .. } => {
                positive(busy, "busy")?;
                if busy > period {
                    return Err(WorkloadError::Busy(of));
                }
            }
            Load::Bursts { work, sleep, .. } => {
                positive(work, "work")?;
                positive(sleep, "sleep")?;
            }
        }
        let via = match self.task {
            Task::None | Task::Driver => None,
            Task::SleepLoop { sleep, .. } => {
                positive(sleep, "sleep")?;
                None
            }
            Task::Sender { period, via, .. } => {
                positive(period, "period")?;
                via
            }
            Task::Server {
                arrivals,
                service,
                via,
            } => {
                match arrivals {
                    Arrivals::Every { interval, .. } => positive(interval, "interval")?,
                    Arrivals::Poisson { mean } => positive(mean, "mean")?,
                    Arrivals::Closed { think, .. } => {
                        positive(think.saturating_add(service), "think plus service")?;
                    }
                    Arrivals::Sequences { mean, calls, .. } => {
                        positive(mean, "mean")?;
                        positive(Nanos(calls.into()), "calls")?;
                    }
                }
                via
            }
        };
        match via {
            Some(via)
                if all.get(via.vcpu.index()).map(|other| other.task) != Some(Task::Driver) =>
            {
                Err(WorkloadError::NoDriver(of, via.vcpu.0))
            }
            _ => Ok(()),
        }
    }
}

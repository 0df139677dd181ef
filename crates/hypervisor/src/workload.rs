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
    /// `busy` of CPU time per `period`, then a pause, like `cpulimit` (Bobtail, section 3.2). With
    /// `busy` = `period` it never sleeps.
    DutyCycle {
        /// CPU time per period.
        busy: Nanos,
        /// Time between starts.
        period: Nanos,
        /// Largest random extension of a period (uniform).
        jitter: Nanos,
    },
    /// Busy until `busy` has passed by the clock, then asleep until the period ends.
    WallClock {
        /// Busy time per period, by the clock.
        busy: Nanos,
        /// Time from the first run to the timer that ends the sleep.
        period: Nanos,
        /// Largest random extension of a period (uniform).
        jitter: Nanos,
    },
    /// `work` of CPU time, then a sleep, repeatedly (Small is Better, section 5.2).
    Bursts {
        /// CPU time of a burst.
        work: Nanos,
        /// Time from a burst's end to the timer that ends the sleep.
        sleep: Nanos,
        /// Largest random extension of a sleep (uniform).
        jitter: Nanos,
    },
}

/// Arrivals of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", deny_unknown_fields, rename_all = "kebab-case")]
pub enum Arrivals {
    /// One request per `interval`, independent of answers (open loop).
    Every {
        /// Time between requests.
        interval: Nanos,
        /// Largest random extension of an interval (uniform).
        jitter: Nanos,
    },
    /// A Poisson process (open loop).
    Poisson {
        /// Mean gap.
        mean: Nanos,
    },
    /// A synchronous client: the next request `think` after an answer.
    Closed {
        /// Time from an answer to the next request.
        think: Nanos,
        /// Largest random extension of a pause (uniform).
        jitter: Nanos,
    },
    /// Workflows of synchronous calls (Bobtail, section 5.2), each a random time after the last. A
    /// workflow is one sample.
    Sequences {
        /// Mean time between workflows.
        mean: Nanos,
        /// Calls of a workflow.
        calls: u32,
        /// Round trips of a call on the wire, with equal probability.
        wire: [Nanos; 3],
    },
}

/// The driver domain (Xen's dom0), which packets pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Via {
    /// A vCPU whose task is [`Task::Driver`].
    pub vcpu: VcpuId,
    /// Its CPU time for an incoming packet.
    pub inbound: Nanos,
    /// Its CPU time for an outgoing packet.
    pub outbound: Nanos,
}

/// A guest's task. Each request, frame, or sleep yields a [`Sample`](crate::Sample).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", deny_unknown_fields, rename_all = "kebab-case")]
pub enum Task {
    /// Nothing is measured.
    #[default]
    None,
    /// Answers requests in order. Measured from the request's arrival at the host to the answer's
    /// departure.
    Server {
        /// Arrivals of requests.
        arrivals: Arrivals,
        /// CPU time per answer.
        service: Nanos,
        /// Driver domain of requests and answers; none.
        #[serde(default)]
        via: Option<Via>,
    },
    /// Sends a frame per period by its own timer (RTP). Measured from the due time to the
    /// departure.
    Sender {
        /// Time between frames.
        period: Nanos,
        /// CPU time per frame.
        send: Nanos,
        /// Driver domain of the frames; `inbound` is not used.
        #[serde(default)]
        via: Option<Via>,
    },
    /// Sleeps and reads the clock, repeatedly (Bobtail, algorithm 1). Measured: the wall time of a
    /// sleep.
    SleepLoop {
        /// Requested time.
        sleep: Nanos,
        /// CPU time from waking to the next sleep.
        work: Nanos,
        /// Largest random extension of a sleep (uniform).
        #[serde(default)]
        jitter: Nanos,
    },
    /// Handles the packets of tasks that name it in [`Via`], in order.
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

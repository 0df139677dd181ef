//! The observed state of threads, control groups and the host: all inputs of a plan except the
//! desired state.

use super::class::{Class, Periodic};
use super::desired::Desired;
use super::guidance::{Guidance, KernelVersion, SliceEnd};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use tailbound_sys::cgroup::{Quota, WeightKind};
use tailbound_sys::cpuset::Cpus;
use tailbound_sys::thread::{Scheduling, ThreadId};
use tailbound_units::Nanos;

/// The part of a thread's state that a class changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadState {
    /// Its scheduling.
    pub scheduling: Scheduling,
    /// Its CPU mask.
    pub cpus: Cpus,
}

/// A root domain: CPUs that the scheduler sees as one. A deadline is admitted to
/// all of them and to no part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Domain {
    /// Its CPUs.
    pub cpus: Cpus,
    /// The reservations in it, by thread.
    pub booked: BTreeMap<ThreadId, Periodic>,
    /// Threads with more than their reservation (`SCHED_FLAG_RECLAIM`).
    pub reclaiming: BTreeSet<ThreadId>,
}

/// The administrator's limits for reservations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// The share of each CPU for real time, in units of 2^-20; `None`: all, and
    /// nothing is checked (`sched_rt_runtime_us` is -1).
    pub share: Option<u64>,
    /// CPU time of the fair server of each CPU, in units of 2^-20.
    pub fair_server: u64,
    /// The periods that the kernel takes: `sched_deadline_period_min_us` to `_max_us`.
    pub periods: RangeInclusive<Nanos>,
    /// Longest run of a thread beyond its runtime: until the next tick, unless a timer stops it
    /// (`HRTICK_DL`).
    pub overrun: Nanos,
    /// The time between two ticks: a timer is set when the kernel next picks a thread, so that a
    /// tick ends the first runtime of one that runs when it gets its reservation.
    pub tick: Nanos,
}

/// Observation of one thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedThread {
    /// Its state; a slice of zero is the kernel's default.
    pub state: ThreadState,
    /// The CPU on which it runs, or ran last.
    pub processor: u32,
    /// The control group in which the kernel permits no real-time class, since the group has no
    /// budget (`RT_GROUP_SCHED`); read only if such a class is desired.
    pub no_real_time: Option<PathBuf>,
    /// The CPUs of its cpuset.
    pub allowed: Cpus,
    /// True if its process belongs to the agent's user.
    pub ours: bool,
    /// True if its nice value counts only within its session: autogroups are on, and it is in no
    /// control group with a weight.
    pub autogrouped: bool,
    /// The CPU quota of its groups that leaves them the smallest share, and which group
    /// has it.
    pub quota: Option<(PathBuf, Quota)>,
}

/// A control group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObservedGroup {
    /// The file of its weight.
    pub kind: WeightKind,
    /// Its weight.
    pub weight: u64,
}

/// The machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedMachine {
    /// Its root domains.
    pub domains: Vec<Domain>,
    /// The administrator's limits for reservations.
    pub limits: Limits,
    /// True if a thread can have its own time slice (Linux 6.12).
    pub slices: bool,
    /// Timers end time slices (`HRTICK`, the default from Linux 7.0 on); otherwise ticks do.
    pub slice_timers: bool,
    /// The version of the kernel.
    pub kernel: KernelVersion,
    /// True if this process may raise any thread (`CAP_SYS_NICE`, in the initial user namespace).
    pub privileged: bool,
}

/// All observations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observed {
    /// The threads that have a desired state; one that is missing has exited.
    pub threads: BTreeMap<ThreadId, ObservedThread>,
    /// The groups that a desired state names.
    pub groups: BTreeMap<PathBuf, ObservedGroup>,
    /// The machine.
    pub machine: ObservedMachine,
}

impl Observed {
    /// Changes the observation to the state after the host's own path has these CPUs for itself:
    /// they are a root domain of their own, with its threads among the `desired`, and all others
    /// have the rest.
    pub(super) fn set_aside(&mut self, cpus: Cpus, desired: &[Desired]) {
        let of_path = desired
            .iter()
            .filter(|wanted| wanted.class == Class::RealTime);
        let of_path: BTreeSet<_> = of_path.map(|wanted| wanted.thread).collect();
        let mut rest = Cpus::default();
        for domain in &mut self.machine.domains {
            domain.cpus = domain.cpus.without(&cpus);
            rest = rest.or(&domain.cpus);
        }
        self.machine
            .domains
            .retain(|domain| !domain.cpus.is_empty());
        self.machine.domains.push(Domain {
            cpus,
            booked: BTreeMap::new(),
            reclaiming: BTreeSet::new(),
        });
        for (thread, seen) in &mut self.threads {
            let its = if of_path.contains(thread) { cpus } else { rest };
            seen.allowed = as_far_as(seen.allowed, its);
            seen.state.cpus = as_far_as(seen.state.cpus, its);
            if !seen.state.cpus.contains(seen.processor) {
                seen.processor = seen.state.cpus.iter().next().unwrap_or(seen.processor);
            }
        }
    }
}

/// Returns the mask `cpus` as a thread has it whose cpuset allows `allowed`: the kernel leaves out
/// all others, such as those that are offline, and a mask without any of them counts for nothing.
pub(super) fn as_far_as(cpus: Cpus, allowed: Cpus) -> Cpus {
    match cpus.and(&allowed) {
        none if none.is_empty() => allowed,
        some => some,
    }
}

impl ObservedMachine {
    /// Returns the guidance for its kernel.
    pub fn guidance(&self) -> &'static Guidance {
        let ends = if self.slice_timers {
            SliceEnd::Timer
        } else {
            SliceEnd::Tick
        };
        Guidance::of(self.kernel, ends)
    }

    /// Returns how many CPUs it has.
    pub fn cpus(&self) -> u32 {
        self.domains.iter().map(|domain| domain.cpus.count()).sum()
    }

    /// Returns the root domain that a CPU belongs to.
    pub fn domain(&self, cpu: u32) -> Option<&Domain> {
        self.domains.iter().find(|domain| domain.cpus.contains(cpu))
    }
}

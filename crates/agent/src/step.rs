//! The steps of a plan: what happens to a thread or a control group, as data and as
//! system calls.

use super::observed::ThreadState;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;
use tailbound_sys::cgroup::WeightKind;
use tailbound_sys::cpuset::Cpus;
use tailbound_sys::thread::{Scheduling, ThreadId};
use tailbound_units::Nanos;

/// The change of one thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadStep {
    /// The thread.
    pub thread: ThreadId,
    /// Its name for people.
    pub name: String,
    /// Its state before.
    pub before: ThreadState,
    /// Its state afterwards.
    pub after: ThreadState,
    /// A CPU to bring it to on the way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub home: Option<u32>,
    /// Its guest's own control group. When the last thread of the guest is restored, the group's
    /// weight is restored, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<PathBuf>,
}

/// The change of one control group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupStep {
    /// Its directory.
    pub directory: PathBuf,
    /// The file of its weight.
    pub kind: WeightKind,
    /// Its weight before.
    pub before: u64,
    /// Its weight afterwards.
    pub after: u64,
}

/// System call on a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// Releases the bandwidth of its reservation; the next call leaves
    /// `SCHED_DEADLINE`.
    Release(Scheduling),
    /// Sets its CPU mask.
    Affinity(Cpus),
    /// Sets how it is scheduled.
    Schedule(Scheduling),
}

impl ThreadStep {
    /// Returns the same step backwards.
    #[must_use]
    pub fn undo(&self) -> Self {
        Self {
            before: self.after,
            after: self.before,
            home: None,
            ..self.clone()
        }
    }

    /// Returns the system calls, in an order that the kernel accepts: a mask changes
    /// only while there is no deadline, and a deadline needs a wide mask.
    pub fn calls(&self) -> Vec<Call> {
        let (before, after) = (self.before.scheduling, self.after.scheduling);
        let moves_cpus = self.before.cpus != self.after.cpus || self.home.is_some();
        let leaves = before.is_deadline() && (!after.is_deadline() || moves_cpus);
        let mut calls = Vec::new();
        if leaves {
            calls.push(Call::Release(before));
            let next = if after.is_deadline() {
                Scheduling {
                    flags: after.flags,
                    ..Scheduling::PLAIN
                }
            } else {
                after
            };
            calls.push(Call::Schedule(next));
        }
        if let Some(home) = self.home {
            calls.push(Call::Affinity(Cpus::one(home)));
        }
        if moves_cpus {
            calls.push(Call::Affinity(self.after.cpus));
        }
        if after.is_deadline() || (!leaves && before != after) {
            calls.push(Call::Schedule(after));
        }
        calls
    }
}

/// Returns true if `seen` matches `wanted`. In both, a slice of zero is the kernel's default.
pub fn same(seen: &ThreadState, wanted: &ThreadState) -> bool {
    seen.cpus == wanted.cpus && same_scheduling(&seen.scheduling, &wanted.scheduling)
}

/// Returns true if the scheduling of `seen` matches `wanted`; see [`same`].
pub fn same_scheduling(seen: &Scheduling, wanted: &Scheduling) -> bool {
    let comparable = |state: &Scheduling| Scheduling {
        // Where the policy has none, older kernels report what was last set.
        nice: if state.is_share() { state.nice } else { 0 },
        deadline: if state.is_deadline() {
            state.deadline
        } else {
            Nanos::ZERO
        },
        period: if state.is_deadline() {
            state.period
        } else {
            Nanos::ZERO
        },
        ..*state
    };
    comparable(seen) == comparable(wanted)
}

impl fmt::Display for ThreadStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            thread,
            name,
            before,
            after,
            home,
            ..
        } = self;
        write!(f, "thread {thread} ({name}): ")?;
        let mut separator = "";
        if !same_scheduling(&before.scheduling, &after.scheduling) {
            write!(f, "{} -> {}", before.scheduling, after.scheduling)?;
            separator = ", ";
        }
        if before.cpus != after.cpus {
            write!(f, "{separator}CPUs {} -> {}", before.cpus, after.cpus)?;
        }
        match home {
            Some(home) => write!(f, ", at home on CPU {home}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for GroupStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            directory,
            kind,
            before,
            after,
        } = self;
        write!(
            f,
            "group {}: {} {before} -> {after}",
            directory.display(),
            kind.file()
        )
    }
}

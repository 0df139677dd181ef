//! The agent itself: observes, plans, applies, restores.

mod path;

use super::apply::{ApplyError, ApplyResult, Restored, apply, restore};
use super::desired::Desired;
use super::guest::Guest;
use super::journal::{Changes, Journal, JournalError};
use super::kernel::Linux;
use super::observer::Observer;
use super::path::{PathError, PathStep};
use super::plan::{Plan, plan};
use super::plan_error::PlanError;
use super::step::ThreadStep;
use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use tailbound_sys::root::Root;
use tailbound_sys::thread::{Tasks, ThreadId};

/// The reason why threads did not get their class. No thread has changed then, unless the message
/// lists changes.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The host's own path has no CPUs of its own.
    #[error(transparent)]
    Path(#[from] PathError),
    /// No plan is possible; one line for each obstacle.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Plan(Vec<PlanError>),
    /// A step failed.
    #[error(transparent)]
    Apply(#[from] ApplyError),
    /// The state cannot be used.
    #[error(transparent)]
    State(#[from] JournalError),
    /// The machine cannot be read.
    #[error("cannot look at the machine: {0}")]
    Observe(io::Error),
}

/// Sets the classes of threads, and restores them.
#[derive(Debug)]
pub struct Agent {
    kernel: Linux,
    journal: Journal,
}

impl Agent {
    /// Opens an agent with the state at `path`; what a former agent left there can be
    /// restored.
    ///
    /// # Errors
    /// The state cannot be used, or the kernel cannot be looked at.
    pub fn open(path: &Path) -> Result<Self, AgentError> {
        Ok(Self {
            kernel: Linux::new().map_err(AgentError::Observe)?,
            journal: Journal::open(path)?,
        })
    }

    /// Opens an agent that only plans: it reads the state at `path` and does not lock it.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn preview(path: &Path) -> Result<Self, AgentError> {
        Ok(Self {
            kernel: Linux::new().map_err(AgentError::Observe)?,
            journal: Journal::preview(path)?,
        })
    }

    /// Returns the plan for the desired states after the steps `path` for the host's own packet
    /// path; changes nothing.
    ///
    /// # Errors
    /// [`AgentError::Plan`], [`AgentError::Observe`].
    pub fn plan(&mut self, desired: &[Desired]) -> Result<Plan, AgentError> {
        self.plan_after(&[], desired)
    }

    /// Returns the plan for the desired states after the steps `path` for the host's own packet
    /// path; changes nothing.
    ///
    /// # Errors
    /// [`AgentError::Plan`], [`AgentError::Observe`].
    pub fn plan_after(
        &mut self,
        path: &[PathStep],
        desired: &[Desired],
    ) -> Result<Plan, AgentError> {
        self.kernel.observer.forget();
        let mut observed = self
            .kernel
            .observer
            .observe(desired)
            .map_err(AgentError::Observe)?;
        for cpus in path.iter().filter_map(PathStep::takes) {
            observed.set_aside(cpus, desired);
        }
        let originals = self.journal.changes().originals();
        plan(desired, &observed, &originals).map_err(AgentError::Plan)
    }

    /// Returns what reads this machine.
    pub(super) fn observer(&self) -> &Observer {
        &self.kernel.observer
    }

    /// Carries a plan out: all of it, or nothing.
    ///
    /// # Errors
    /// [`AgentError::Apply`], also where this agent only plans.
    pub fn apply(&mut self, plan: &Plan) -> Result<ApplyResult, AgentError> {
        Ok(apply(&mut self.kernel, &mut self.journal, plan)?)
    }

    /// Returns what was changed and not yet restored.
    pub fn changes(&self) -> &Changes {
        self.journal.changes()
    }

    /// Records the groups that weigh the threads of the desired states now, and restores the groups
    /// that weigh none any more.
    ///
    /// # Errors
    /// [`AgentError::State`].
    pub fn regroup(&mut self, desired: &[Desired]) -> Result<Restored, AgentError> {
        self.journal.update(|changes| changes.regroup(desired))?;
        self.restore_some(|_| false)
    }

    /// Restores the threads that `which` picks; see [`Self::restore`].
    ///
    /// # Errors
    /// [`AgentError::State`].
    pub fn restore_some(
        &mut self,
        which: impl Fn(&ThreadStep) -> bool,
    ) -> Result<Restored, AgentError> {
        self.kernel.observer.forget();
        Ok(restore(&mut self.kernel, &mut self.journal, which)?)
    }

    /// Restores those of `guests`' threads that have no desired state any more.
    ///
    /// # Errors
    /// [`AgentError::State`].
    pub fn restore_undesired(
        &mut self,
        guests: &[Guest],
        desired: &[Desired],
    ) -> Result<Restored, AgentError> {
        let wanted: BTreeSet<_> = desired.iter().map(|wanted| wanted.thread).collect();
        let threads = guests.iter().flat_map(|guest| &guest.threads);
        let undesired: BTreeSet<_> = threads
            .map(|thread| thread.id)
            .filter(|thread| !wanted.contains(thread))
            .collect();
        self.restore_some(|step| undesired.contains(&step.thread))
    }

    /// Restores everything that this agent, or a former one with the same state, has changed.
    ///
    /// # Errors
    /// [`AgentError::State`]; what could not be put back is in the result.
    pub fn restore(&mut self) -> Result<Restored, AgentError> {
        self.kernel.observer.forget();
        let mut restored = restore(&mut self.kernel, &mut self.journal, |_| true)?;
        // Last, as it came first: threads were on the CPUs that it left them.
        let path = self.restore_path()?;
        restored.restored += path.restored;
        restored.drifted.extend(path.drifted);
        restored.failed.extend(path.failed);
        Ok(restored)
    }
}

/// Returns the thread with this number, of any process; `None` if it does not exist.
pub fn thread(tid: u32) -> Option<ThreadId> {
    let status = std::fs::read_to_string(format!("/proc/{tid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?;
    let pid = line.trim().parse().ok()?;
    let stat = Tasks::open(&Root::default(), pid).ok()?.stat(tid).ok()??;
    Some(ThreadId {
        pid,
        tid,
        start: stat.start,
    })
}

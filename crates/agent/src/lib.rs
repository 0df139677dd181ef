//! The vCPU agent: gives the threads of guests a class, and takes it back.
//!
//! Read [`plan`] first: from what is wanted ([`plan::Wish`]) and what was seen
//! ([`plan::Observed`]) it makes a [`plan::Plan`], which is data. [`class`] says
//! what can be wanted, [`admission`] what fits and [`refusal`] why not.
//! [`guest`] knows guests by what `/proc` says, [`rule`] says which gets what;
//! [`scan`] reads `/proc`. [`apply`] carries a plan out through a [`kernel::Kernel`] after [`journal`]
//! has written down what was there.

pub mod admission;
pub mod apply;
pub mod calls;
pub mod class;
mod config;
pub mod guest;
pub mod journal;
pub mod kernel;
pub mod metrics;
pub mod observer;
pub mod plan;
mod qmp;
pub mod refusal;
pub mod rule;
pub mod scan;
#[cfg(test)]
mod testing;
pub mod watch;

pub use class::{Aperiodic, Class, Level, Periodic};
pub use config::{OnDrift, VcpuConfig};

pub use apply::{Applied, ApplyError, Restored};
use journal::{Changes, Journal, StateError};
use kernel::Linux;
use plan::{Plan, ThreadStep, Wish};
use refusal::Refusal;
use std::io;
use std::path::Path;
use tailbound_sys::root::Root;
use tailbound_sys::thread::{Tasks, ThreadId};

/// Why threads were not given their class. Nothing has changed then, unless the
/// message says what.
#[derive(Debug, thiserror::Error)]
pub enum VcpuError {
    /// Something stands in the way; one line for each.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Refused(Vec<Refusal>),
    /// A step failed.
    #[error(transparent)]
    Apply(#[from] ApplyError),
    /// The state cannot be used.
    #[error(transparent)]
    State(#[from] StateError),
    /// The system does not let us look.
    #[error("cannot look at the machine: {0}")]
    Observe(io::Error),
}

/// Gives threads their classes, and takes them back.
#[derive(Debug)]
pub struct Agent {
    kernel: Linux,
    journal: Journal,
}

impl Agent {
    /// With the state at `path`; what a former agent left there can be restored.
    ///
    /// # Errors
    /// The state cannot be used, or the kernel cannot be looked at.
    pub fn open(path: &Path) -> Result<Self, VcpuError> {
        Ok(Self {
            kernel: Linux::new().map_err(VcpuError::Observe)?,
            journal: Journal::open(path)?,
        })
    }

    /// One that only plans: it reads what the state at `path` holds, but leaves
    /// it to whoever works with it.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn preview(path: &Path) -> Result<Self, VcpuError> {
        Ok(Self {
            kernel: Linux::new().map_err(VcpuError::Observe)?,
            journal: Journal::preview(path)?,
        })
    }

    /// What would have to be done; changes nothing.
    ///
    /// # Errors
    /// [`VcpuError::Refused`], [`VcpuError::Observe`].
    pub fn plan(&mut self, wishes: &[Wish]) -> Result<Plan, VcpuError> {
        self.kernel.observer.forget();
        let observed = self
            .kernel
            .observer
            .observe(wishes)
            .map_err(VcpuError::Observe)?;
        let originals = self.journal.changes().originals();
        plan::plan(wishes, &observed, &originals).map_err(VcpuError::Refused)
    }

    /// Does it: all of it, or nothing.
    ///
    /// # Errors
    /// [`VcpuError::Apply`], also where this agent only plans.
    pub fn apply(&mut self, plan: &Plan) -> Result<Applied, VcpuError> {
        Ok(apply::apply(&mut self.kernel, &mut self.journal, plan)?)
    }

    /// What was changed and not yet restored.
    pub fn changes(&self) -> &Changes {
        self.journal.changes()
    }

    /// [`Self::restore`], of the threads that `which` picks alone.
    ///
    /// # Errors
    /// [`VcpuError::State`].
    pub fn restore_some(
        &mut self,
        which: impl Fn(&ThreadStep) -> bool,
    ) -> Result<Restored, VcpuError> {
        self.kernel.observer.forget();
        Ok(apply::restore(&mut self.kernel, &mut self.journal, which)?)
    }

    /// Puts everything back that this agent, or a former one with the same state,
    /// has changed.
    ///
    /// # Errors
    /// [`VcpuError::State`]; what could not be put back is in the result.
    pub fn restore(&mut self) -> Result<Restored, VcpuError> {
        self.kernel.observer.forget();
        Ok(apply::restore(&mut self.kernel, &mut self.journal, |_| {
            true
        })?)
    }
}

/// The thread with this number, of whatever process; `None` when there is none.
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

/// A wish for one thread of nobody's guest, as tests and experiments have them.
pub fn wish(thread: ThreadId, class: Class) -> Wish {
    Wish {
        thread,
        name: format!("thread {}", thread.tid),
        class,
        widen: true,
        home: None,
        group: None,
    }
}

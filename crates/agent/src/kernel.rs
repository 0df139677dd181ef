//! The machine: the only part of the agent that makes system calls on threads,
//! behind a trait so that tests can put failures where they like.

use super::observer::Observer;
use super::plan::{Move, ThreadState};
use std::io;
use std::path::Path;
use tailbound_sys::cgroup::{self, WeightKind};
use tailbound_sys::cpuset::set_affinity;
use tailbound_sys::thread::{ThreadId, release_bandwidth, set_scheduling};

/// What the agent does to threads and groups.
pub trait Kernel {
    /// How a thread is; `None` when it is gone, even if its number is used again.
    ///
    /// # Errors
    /// What the system answered.
    fn state(&mut self, thread: ThreadId) -> io::Result<Option<ThreadState>>;
    /// One system call on a thread.
    ///
    /// # Errors
    /// What the system answered.
    fn make(&mut self, thread: ThreadId, step: &Move) -> io::Result<()>;
    /// A group's weight; `None` when the group is gone.
    fn weight(&mut self, directory: &Path, kind: WeightKind) -> Option<u64>;
    /// Gives a group a weight.
    ///
    /// # Errors
    /// What the system answered.
    fn set_weight(&mut self, directory: &Path, kind: WeightKind, weight: u64) -> io::Result<()>;
}

/// The machine we are on.
#[derive(Debug)]
pub struct Linux {
    /// Looks at it.
    pub observer: Observer,
}

impl Linux {
    /// Learns what this kernel has.
    ///
    /// # Errors
    /// As [`Observer::new`].
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            observer: Observer::new()?,
        })
    }
}

impl Kernel for Linux {
    fn state(&mut self, thread: ThreadId) -> io::Result<Option<ThreadState>> {
        Ok(self.observer.look(thread)?.map(|(state, _)| state))
    }

    fn make(&mut self, thread: ThreadId, step: &Move) -> io::Result<()> {
        let ThreadId { tid, .. } = thread;
        match step {
            Move::Release(before) => release_bandwidth(tid, before.flags),
            Move::Affinity(cpus) => set_affinity(tid, cpus),
            Move::Schedule(wanted) => set_scheduling(tid, wanted),
        }
    }

    fn weight(&mut self, directory: &Path, kind: WeightKind) -> Option<u64> {
        cgroup::weight(directory, kind)
    }

    fn set_weight(&mut self, directory: &Path, kind: WeightKind, weight: u64) -> io::Result<()> {
        cgroup::set_weight(directory, kind, weight)
    }
}

/// Whether an error says that a thread or process has ended.
pub(super) fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
        || rustix::io::Errno::from_io_error(error) == Some(rustix::io::Errno::SRCH)
}

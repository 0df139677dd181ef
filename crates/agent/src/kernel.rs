//! The only part of the agent that changes threads and groups, behind a trait so that
//! tests can put failures where they like.

use super::calls::has_exited;
use super::observed::ThreadState;
use super::observer::Observer;
use super::step::Call;
use std::io;
use std::path::Path;
use tailbound_sys::cgroup::{self, WeightKind};
use tailbound_sys::cpuset::set_affinity;
use tailbound_sys::thread::{Scheduling, ThreadId, release_bandwidth, scheduling, set_scheduling};

/// Changes threads and groups, and reads them back.
pub trait Kernel {
    /// Returns a thread's state; `None` when it has exited, even if its number is used
    /// again.
    ///
    /// # Errors
    /// The system's error.
    fn state(&mut self, thread: ThreadId) -> io::Result<Option<ThreadState>>;
    /// Returns how the thread is scheduled that has this one's number now that it has
    /// exited; `None` when none has.
    ///
    /// # Errors
    /// The system's error.
    fn successor(&mut self, thread: ThreadId) -> io::Result<Option<Scheduling>>;
    /// Makes one system call on a thread. The system identifies the thread by its number only, so
    /// the caller checks afterwards whether it is still the same thread.
    ///
    /// # Errors
    /// The system's error.
    fn call(&mut self, thread: ThreadId, call: &Call) -> io::Result<()>;
    /// Returns a group's weight; `None` when the group is gone.
    fn weight(&mut self, directory: &Path, kind: WeightKind) -> Option<u64>;
    /// Sets the weight of a group.
    ///
    /// # Errors
    /// The system's error.
    fn set_weight(&mut self, directory: &Path, kind: WeightKind, weight: u64) -> io::Result<()>;
}

/// The running kernel.
#[derive(Debug)]
pub struct Linux {
    /// Reads its threads and groups.
    pub observer: Observer,
}

impl Linux {
    /// Opens the running kernel.
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

    fn successor(&mut self, thread: ThreadId) -> io::Result<Option<Scheduling>> {
        match scheduling(thread.tid) {
            Ok(seen) => Ok(Some(seen)),
            Err(error) if has_exited(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn call(&mut self, thread: ThreadId, call: &Call) -> io::Result<()> {
        let ThreadId { tid, .. } = thread;
        match call {
            Call::Release(before) => release_bandwidth(tid, before.flags),
            Call::Affinity(cpus) => set_affinity(tid, cpus),
            Call::Schedule(wanted) => set_scheduling(tid, wanted),
        }
    }

    fn weight(&mut self, directory: &Path, kind: WeightKind) -> Option<u64> {
        cgroup::weight(directory, kind)
    }

    fn set_weight(&mut self, directory: &Path, kind: WeightKind, weight: u64) -> io::Result<()> {
        cgroup::set_weight(directory, kind, weight)
    }
}

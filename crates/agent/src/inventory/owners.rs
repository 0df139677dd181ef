//! The owner of a thread that had a CPU: a guest, a program of the host's, or the kernel.

use super::super::text::printable;
use std::collections::HashMap;
use std::sync::Arc;
use tailbound_sys::thread::{PolicyNumber, Stat};
use tailbound_units::Nanos;

/// The unit of start times in `/proc/PID/stat`.
const TICK: u64 = 10_000_000;
/// Largest number of remembered threads that have exited.
const MAX_REMEMBERED: usize = 65_536;

/// The owner of a thread.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owner {
    /// A guest, by its key.
    Guest(Arc<str>),
    /// A program of the host's, by its unit or its process's name.
    Program(String),
    /// A thread of the kernel.
    Kernel(String),
    /// A thread that exited before it was looked at, by the name that it had.
    Exited(String),
}

/// A thread's owner, and how the thread is scheduled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadOwner {
    /// The owner.
    pub owner: Owner,
    /// True if its policy comes before all shares: `SCHED_FIFO`, `SCHED_RR`, `SCHED_DEADLINE`.
    pub is_real_time: bool,
}

/// Returns true if the policy comes before all shares.
pub(super) fn is_real_time(policy: PolicyNumber) -> bool {
    matches!(
        policy,
        PolicyNumber::FIFO | PolicyNumber::RR | PolicyNumber::DEADLINE
    )
}

/// The time between the start of the clock that thread starts are counted by and the monotonic
/// clock's: the time that the host was suspended.
pub(super) fn suspended() -> Nanos {
    use rustix::time::{ClockId, clock_gettime};
    let read = |clock| {
        let time = clock_gettime(clock);
        let whole = u64::try_from(time.tv_sec).unwrap_or(0);
        Nanos::from_secs(whole) + Nanos(u64::try_from(time.tv_nsec).unwrap_or(0))
    };
    let monotonic = read(ClockId::Monotonic);
    read(ClockId::Boottime).saturating_sub(monotonic)
}

/// A time at which a thread ran.
#[derive(Debug, Clone, Copy)]
pub(super) struct RunTime {
    /// The time by the monotonic clock.
    pub(super) monotonic: Nanos,
    /// The time for which the host was suspended so far.
    pub(super) suspended: Nanos,
}

/// Returns true if a thread with this start, in ticks since the boot, could have run at `at`.
pub(super) fn had_started(start: u64, at: RunTime) -> bool {
    start.saturating_mul(TICK) <= at.monotonic.saturating_add(at.suspended).0
}

/// The threads that were looked at, so that they have an owner after they have exited.
#[derive(Debug, Default)]
pub(super) struct OwnerCache(HashMap<u32, (u64, Owner)>);

impl OwnerCache {
    pub(super) fn add(&mut self, tid: u32, start: u64, owner: Owner) {
        if self.0.len() >= MAX_REMEMBERED {
            self.0.clear();
        }
        self.0.insert(tid, (start, owner));
    }

    /// Returns the owner of the thread with this start, or of the last one that was known and
    /// could have run at `at`.
    pub(super) fn of(&self, tid: u32, start: Option<u64>, at: RunTime) -> Option<Owner> {
        let (known, owner) = self.0.get(&tid)?;
        let is_it = match start {
            Some(start) => *known == start,
            None => had_started(*known, at),
        };
        is_it.then(|| owner.clone())
    }
}

/// Returns a name for a host's program: its process's, with that of its unit if there is one.
pub(super) fn program(group: Option<&str>, process: &str) -> String {
    let unit = group.and_then(|group| {
        let mut levels = group.rsplit('/');
        levels.find(|name| name.ends_with(".service"))
    });
    let process = printable(process);
    match unit {
        Some(unit) => format!("{process} ({})", printable(unit)),
        None => process,
    }
}

/// Returns the owner of a thread of the kernel.
pub(super) fn kernel(stat: &Stat) -> Owner {
    Owner::Kernel(printable(&stat.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned(name: &str) -> Owner {
        Owner::Program(name.into())
    }

    #[test]
    fn a_number_that_is_used_again_has_another_owner() {
        let mut remembered = OwnerCache::default();
        remembered.add(7, 500, owned("old"));
        let at = |seconds| RunTime {
            monotonic: Nanos::from_secs(seconds),
            suspended: Nanos::ZERO,
        };
        assert_eq!(remembered.of(7, Some(500), at(9)), Some(owned("old")));
        assert_eq!(remembered.of(7, Some(501), at(9)), None);
        // It has exited; it started 5 s after boot.
        assert_eq!(remembered.of(7, None, at(9)), Some(owned("old")));
        assert_eq!(remembered.of(7, None, at(4)), None);
        assert_eq!(remembered.of(8, None, at(9)), None);
    }

    #[test]
    fn a_thread_that_started_later_did_not_run() {
        let at = |suspended| RunTime {
            monotonic: Nanos::from_secs(1),
            suspended,
        };
        assert!(had_started(100, at(Nanos::ZERO)));
        assert!(!had_started(101, at(Nanos::ZERO)));
        // Starts count the time that the host was suspended.
        assert!(had_started(101, at(Nanos::from_secs(1))));
    }

    #[test]
    fn a_program_is_named_with_its_unit() {
        for (group, name) in [
            (Some("/system.slice/backup.service"), "tar (backup.service)"),
            (Some("/system.slice/cron.service/job"), "tar (cron.service)"),
            (Some("/user.slice/session-3.scope"), "tar"),
            (None, "tar"),
        ] {
            assert_eq!(program(group, "tar"), name);
        }
        assert_eq!(program(None, "\x1b[31m"), r"\u{1b}[31m");
    }
}

//! The host's own packet path: the daemon that forwards the packets of all guests. A wait of its
//! packet loop delays every guest, so the loop precedes guests (Cheng and Wang, *`QoS` Scheduling*,
//! 3.1.3: the driver domain can preempt any other, and is preempted by none).
//!
//! The packet loop has [`Class::RealTime`]: it runs before all threads with a proportional share.
//! Reservations precede it; plans state for how long, unless the path has CPUs of its own:
//! [`partition`] plans that, [`live`] reads and changes cpusets and interrupts,
//! [`Agent`](super::Agent) remembers the previous state.

pub mod live;
pub mod partition;

use super::class::Class;
use super::guest::Guest;
use super::rule::{GuestRule, rule_for};
use serde::Deserialize;
use std::collections::BTreeSet;
use tailbound_document::{Problem, Step};
use tailbound_sys::cpuset::Cpus;

pub use partition::{PathError, PathStep};

/// The control group of the daemon as its unit makes it.
pub const DAEMON_GROUP: &str = "/tailbound.slice/tailbound-host.service";

/// Name of the daemon in guests' metrics and messages.
pub const DAEMON: &str = "tailbound-host";

/// Scheduling of the host's packet loop.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PathConfig {
    /// Control group of `tailbound host`, if the agent is another process;
    /// `/tailbound.slice/tailbound-host.service`.
    pub cgroup: String,
    /// Exclusive CPUs of the loop, not all; none.
    pub cpus: Option<Cpus>,
    /// Interfaces whose interrupts move to these CPUs.
    pub interrupts: Vec<String>,
}

impl Default for PathConfig {
    fn default() -> Self {
        Self {
            cgroup: DAEMON_GROUP.to_owned(),
            cpus: None,
            interrupts: Vec::new(),
        }
    }
}

/// Returns the processes of the daemon among the guests.
pub fn path_of(rules: &[GuestRule], guests: &[Guest]) -> Vec<u32> {
    let is_path = |guest: &&Guest| rule_for(rules, guest).is_some_and(GuestRule::is_path);
    let threads = guests
        .iter()
        .filter(is_path)
        .flat_map(|guest| &guest.threads);
    let pids: BTreeSet<_> = threads.map(|thread| thread.id.pid).collect();
    pids.into_iter().collect()
}

impl PathConfig {
    /// Returns everything wrong with it; `at` is its path in the document.
    pub(crate) fn check(&self, at: &[Step]) -> Vec<Problem> {
        let wrong = |key: &'static str, message: &str| {
            vec![Problem::new(
                &[at, &[Step::Key(key)]].concat(),
                message.to_owned(),
            )]
        };
        match self.cpus {
            Some(cpus) if cpus.is_empty() => {
                wrong("cpus", "no CPU at all; name some, or leave it out")
            }
            None if !self.interrupts.is_empty() => {
                wrong("interrupts", "they are served on `cpus`, which is missing")
            }
            _ => Vec::new(),
        }
    }

    /// Returns the rule that sets the class of the packet loop: for the process `daemon`, or for
    /// the daemon's control group.
    pub(crate) fn rule(&self, daemon: Option<u32>) -> GuestRule {
        let cgroup = daemon.is_none().then(|| self.cgroup.clone());
        GuestRule {
            pid: daemon,
            cgroup,
            label: Some(DAEMON.to_owned()),
            class: Some(Class::RealTime),
            ..GuestRule::default()
        }
    }
}

#[cfg(test)]
mod tests;

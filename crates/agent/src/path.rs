//! The host's own path: the daemon through which the packets of all guests go. A wait of its
//! packet loop is a wait of everybody, so it goes before guests (Cheng and Wang, *`QoS` Scheduling*,
//! 3.1.3: the driver domain can preempt any other, and is preempted by none).
//!
//! The packet loop has [`Class::RealTime`]: it runs before all that have a proportional share.
//! Reservations go before it; [`super::worth`] says for how long they may.

use super::class::Class;
use super::rule::GuestRule;
use serde::Deserialize;

/// The control group of the daemon as its unit makes it.
pub const DAEMON_GROUP: &str = "/tailbound.slice/tailbound-host.service";

/// What guests' metrics and messages call the daemon.
pub const DAEMON: &str = "tailbound-host";

/// What the host's own path gets.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PathConfig {
    /// The daemon's control group, where the agent is a process of its own.
    pub cgroup: String,
}

impl Default for PathConfig {
    fn default() -> Self {
        Self {
            cgroup: DAEMON_GROUP.to_owned(),
        }
    }
}

impl PathConfig {
    /// Returns the rule that gives the packet loop its class: that of the process `daemon`, or of
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

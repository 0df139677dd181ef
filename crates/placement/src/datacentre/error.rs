//! Why a request has no placement.

use crate::host::HostRule;
use tailbound_classes::Fabric;
use tailbound_units::Nanos;

/// Why there is no placement for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PlacementError {
    /// There are not enough slots, CPUs or memory.
    #[error(
        "{wanted} {} not fit: {free} {} free, if CPUs, memory and the hosts' links allow",
        if *wanted == 1 { "machine does" } else { "machines do" },
        if *free == 1 { "slot is" } else { "slots are" }
    )]
    Slots {
        /// The number of machines.
        wanted: u32,
        /// The number of free slots.
        free: u32,
    },
    /// No hosts with enough slots are near enough to each other.
    #[error(
        "a delay of {limit} cannot be promised: the nearest place with enough slots takes {least}"
    )]
    Delay {
        /// The least delay that can be promised.
        least: Nanos,
        /// The requested delay.
        limit: Nanos,
    },
    /// The fabric has no class in which a delay could be promised.
    #[error(
        "no delay can be promised in a fabric of {fabric}: nothing bounds what is served before a \
         frame; leave the delay out, or have switches serve guarantees first"
    )]
    Fabric {
        /// What switches serve first.
        fabric: Fabric,
    },
    /// No host keeps such a guarantee.
    #[error("no host keeps such a guarantee; of the nearest: {rule}")]
    Hosts {
        /// The rule of the host that came nearest.
        rule: HostRule,
    },
    /// There are slots, but wherever they are, a port would carry too much.
    #[error("there are slots, but wherever they are, a port's queue may grow over its capacity")]
    Ports,
    /// There are slots, but not in enough fault domains.
    #[error("the machines cannot be kept apart as asked for")]
    Domains,
    /// The search gave up; there may be a place that it did not try.
    #[error("no place was found among the first {ports} ports")]
    Effort {
        /// The number of ports that were looked at.
        ports: u32,
    },
}

impl PlacementError {
    /// Returns the reason that is nearer to a success; the later one of two that are equally near.
    pub(super) fn nearer(self, other: Self) -> Self {
        let order = |error: &Self| match error {
            Self::Slots { .. } => 0,
            Self::Delay { .. } => 1,
            Self::Domains => 2,
            Self::Ports => 3,
            Self::Effort { .. } => 4,
            // No place was looked for.
            Self::Fabric { .. } | Self::Hosts { .. } => 5,
        };
        match (self, other) {
            (Self::Delay { least: one, .. }, Self::Delay { least: next, .. }) if one <= next => {
                self
            }
            _ if order(&other) >= order(&self) => other,
            _ => self,
        }
    }
}

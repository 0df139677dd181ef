//! Reasons why a request has no placement.

use crate::host::HostRule;
use std::sync::Arc;
use tailbound_classes::Fabric;
use tailbound_units::Nanos;

/// Reason why a request has no placement.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlacementError {
    /// Too few slots, CPUs or memory are free.
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
    /// No hosts with enough slots are within the delay of each other.
    #[error(
        "a delay of {limit} cannot be promised: where there are enough slots, it takes at least \
         {least}"
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
        /// Traffic that the switches serve first.
        fabric: Fabric,
    },
    /// No host keeps such a guarantee.
    #[error("no host keeps such a guarantee; of the nearest, {host}: {rule}")]
    Hosts {
        /// The host that came nearest.
        host: Arc<str>,
        /// The rule of the host that came nearest.
        rule: HostRule,
    },
    /// A host with machines of the tenant does not keep its changed guarantee.
    #[error("the host {host} of its machines does not keep that: {rule}")]
    HostOfMachines {
        /// The host.
        host: Arc<str>,
        /// The rule that the host breaks.
        rule: HostRule,
    },
    /// The CPU that would be reserved for the machines is not there.
    #[error(
        "{wanted} {} not fit with the requested CPU reservation: {fit} would; of the nearest \
            host, {host}: {rule}",
        if *wanted == 1 { "machine does" } else { "machines do" }
    )]
    Cpu {
        /// The number of machines.
        wanted: u32,
        /// Number of machines for which there is room.
        fit: u64,
        /// The host that lacks least for one more.
        host: Arc<str>,
        /// The rule that the host breaks.
        rule: HostRule,
    },
    /// There are enough slots, but every placement breaks a promise: all were tried or excluded.
    #[error(
        "there are slots, but wherever the machines go, the bound of a port's queue is over its \
         capacity or the delay is exceeded; every place was tried or ruled out"
    )]
    Ports,
    /// Wherever the machines go that are missing beside those that stay, a promise breaks: every
    /// place was tried.
    #[error(
        "beside the machines that stay there is no place for the others that keeps every promise; \
         every place was tried"
    )]
    Beside,
    /// A port of this placement would be overloaded.
    #[error("a port's queue may grow over its capacity there")]
    Overload,
    /// First fit found no place, and where more than 64 hosts have room it does not try all.
    #[error(
        "no place was found that keeps every promise; not every place was tried, as more than 64 \
         hosts have room"
    )]
    Unfound,
    /// Every place was tried, and at some the six curves that stand for a port's tenants alone are
    /// over its capacity, not the exact sum of theirs.
    #[error(
        "no place was found that keeps every promise; every place was tried, but there may be one: \
         a port's bound slightly exceeds the worst traffic of its tenants"
    )]
    Unproved,
    /// There are enough slots, but in too few fault domains.
    #[error("the machines cannot be kept apart as asked for")]
    Domains,
    /// The search gave up; there may be a place that it did not try.
    #[error(
        "no place was found before the search gave up, after {looks} looks at ports; not every \
         place was tried"
    )]
    Effort {
        /// Number of checks of ports; most ports are checked more than once.
        looks: u32,
    },
}

impl PlacementError {
    /// Returns the reason that is nearer to a success; the later one of two that are equally near.
    pub(super) fn nearer(self, other: Self) -> Self {
        let order = |error: &Self| match error {
            Self::Slots { .. } => 0,
            Self::Delay { .. } => 1,
            Self::Domains => 2,
            Self::Ports | Self::Beside | Self::Overload | Self::Unfound | Self::Unproved => 3,
            Self::Effort { .. } => 4,
            // No place was looked for.
            Self::Fabric { .. }
            | Self::Hosts { .. }
            | Self::HostOfMachines { .. }
            | Self::Cpu { .. } => 5,
        };
        let stays = match (&self, &other) {
            (Self::Delay { least: one, .. }, Self::Delay { least: next, .. }) => one <= next,
            _ => order(&other) < order(&self),
        };
        if stays { self } else { other }
    }
}

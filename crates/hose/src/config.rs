//! What a host is told at its start, and the times that follow from it.

use crate::ids::{ClassesCode, Epoch, HostId};
use tailbound_units::Nanos;

/// Pairs that one host keeps, whether they are in use or not, in each direction.
pub const MAX_PAIRS: usize = 65_536;

/// A lease is so many intervals long: as many datagrams in a row may be lost.
const LEASE: u64 = 20;
/// How often an idle host is heard, in intervals.
const HEARTBEAT: u64 = 100;
/// How long a pledge holds, in intervals: three heartbeats in a row may be lost.
const PLEDGE: u64 = 600;

/// What a host is told at its start.
#[derive(Debug, Clone)]
pub struct HoseConfig {
    /// Which host this is.
    pub host: HostId,
    /// The classes that it gives frames: hosts of others are not heard.
    pub classes: ClassesCode,
    /// The epoch that it begins with: see [`Epoch::starting`].
    pub epoch: Epoch,
    /// How often rates are exchanged while there is traffic; 1 ms. Leases,
    /// pledges and heartbeats are multiples of it.
    pub interval: Nanos,
    /// The other hosts.
    pub peers: Vec<HostId>,
}

/// How long each thing takes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Times {
    pub(crate) interval: Nanos,
}

impl Times {
    const fn intervals(self, count: u64) -> Nanos {
        Nanos(self.interval.0 * count)
    }

    /// For how long a sender may use a grant, from when it sent the datagram that
    /// the grant answers.
    pub(crate) const fn lease(self) -> Nanos {
        self.intervals(LEASE)
    }

    /// For how long a receiver counts a grant, from when it heard that datagram:
    /// longer than the lease by as much as the other host's clock may be slower.
    pub(crate) const fn lease_counted(self) -> Nanos {
        Nanos(self.lease().0 + self.lease().0 / 16)
    }

    /// How often an idle host is heard.
    pub(crate) const fn heartbeat(self) -> Nanos {
        self.intervals(HEARTBEAT)
    }

    /// For how long a host keeps to a pledge, from the echoed moment.
    pub(crate) const fn pledge(self) -> Nanos {
        self.intervals(PLEDGE)
    }

    /// For how long the other host counts on a pledge: less than it holds by as
    /// much as the clock of the one that pledged may be faster.
    pub(crate) const fn pledge_counted(self) -> Nanos {
        Nanos(self.pledge().0 - self.pledge().0 / 64)
    }
}

//! Configuration of a host, and its times.

use crate::ids::{ClassesCode, Epoch, HostId};
use tailbound_units::Nanos;

/// Largest number of a host's pairs in each direction.
pub const MAX_PAIRS: usize = 65_536;

/// Length of a lease in intervals: this number of successive datagrams may be lost.
const LEASE: u64 = 20;
/// Interval of datagrams of an idle host, in intervals.
const HEARTBEAT: u64 = 100;
/// Length of a pledge in intervals: three successive heartbeats may be lost.
const PLEDGE: u64 = 600;

/// Time for which an unused pair keeps a loan, in intervals.
const LOAN_KEPT: u64 = 50;

/// Configuration of a host.
#[derive(Debug, Clone)]
pub struct HoseConfig {
    /// Id of this host.
    pub host: HostId,
    /// Classes of its frames. Hosts with other classes are ignored.
    pub classes: ClassesCode,
    /// First epoch, see [`Epoch::starting`].
    pub epoch: Epoch,
    /// Interval of the exchange under traffic; 1 ms. Leases, pledges and heartbeats are multiples
    /// of it.
    pub interval: Nanos,
    /// Time for which frames may leave at a former rate after a lower one was set: frames get their
    /// departure times that long ahead. Zero for one that schedules each frame when it leaves; at
    /// most half a lease, 10 intervals.
    pub commitment: Nanos,
    /// The other hosts.
    pub peers: Vec<HostId>,
}

impl HoseConfig {
    /// Returns the durations of the protocol.
    pub(crate) const fn times(&self) -> Times {
        Times {
            interval: self.interval,
            commitment: self.commitment,
        }
    }
}

/// Durations of the protocol.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Times {
    pub(crate) interval: Nanos,
    /// Time for which frames may leave at a former rate.
    pub(crate) commitment: Nanos,
}

impl Times {
    const fn intervals(self, count: u64) -> Nanos {
        Nanos(self.interval.0 * count)
    }

    /// Returns the time for which a sender may use a grant, from the sending of the answered
    /// datagram on.
    pub(crate) const fn lease(self) -> Nanos {
        self.intervals(LEASE)
    }

    /// Returns the time after which no frame may get a departure time by a grant, from the sending of the
    /// answered datagram on: frames that have one leave within the lease.
    pub(crate) const fn usable_lease(self) -> Nanos {
        Nanos(self.lease().0 - self.commitment.0)
    }

    /// Returns the time for which a receiver counts a grant, from the arrival of that datagram on:
    /// longer than the lease by the largest difference of the clocks.
    pub(crate) const fn lease_counted(self) -> Nanos {
        Nanos(self.lease().0 + self.lease().0 / 16)
    }

    /// Returns the time for which an unused pair keeps a loan.
    pub(crate) const fn loan_kept(self) -> Nanos {
        self.intervals(LOAN_KEPT)
    }

    /// Returns the interval of datagrams of an idle host.
    pub(crate) const fn heartbeat(self) -> Nanos {
        self.intervals(HEARTBEAT)
    }

    /// Returns the time for which a host keeps a pledge, from the echoed time on.
    pub(crate) const fn pledge(self) -> Nanos {
        self.intervals(PLEDGE)
    }

    /// Returns the time for which the other host relies on a pledge: shorter than the pledge by the
    /// largest difference of the clocks.
    pub(crate) const fn pledge_counted(self) -> Nanos {
        Nanos(self.pledge().0 - self.pledge().0 / 64)
    }
}

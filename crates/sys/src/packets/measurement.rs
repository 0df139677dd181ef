//! The measurements of a guest: counts, and histograms of times.

use std::collections::BTreeMap;
use tailbound_units::Nanos;

/// The number of buckets in a histogram.
pub const BUCKETS: usize = 128;

/// Times by their length: four buckets to each power of two from 256 ns to 275 s.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Histogram {
    /// The sum of all times, in nanoseconds.
    pub sum: u64,
    /// The longest one, in nanoseconds.
    pub longest: u64,
    /// The number of times in each bucket, modulo 2^32.
    pub counts: [u32; BUCKETS],
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            sum: 0,
            longest: 0,
            counts: [0; BUCKETS],
        }
    }
}

impl Histogram {
    /// Returns the first nanosecond of a bucket.
    pub const fn lower(bucket: usize) -> u64 {
        match bucket.checked_sub(1) {
            None => 0,
            Some(at) => (4 + at as u64 % 4) << (at / 4 + 6),
        }
    }

    /// Returns how many times there are.
    pub fn count(&self) -> u64 {
        self.counts.iter().map(|count| u64::from(*count)).sum()
    }

    /// Returns the mean; 0 without any times.
    pub fn mean(&self) -> Nanos {
        Nanos(self.sum.checked_div(self.count()).unwrap_or(0))
    }

    /// Returns the upper bound of the bucket that `share` (0 to 1) of all times do not exceed, at
    /// most the longest time; 0 without any times.
    pub fn quantile(&self, share: f64) -> Nanos {
        let total = self.count();
        // At least the first one.
        let wanted = ((share * total as f64).ceil() as u64).max(1);
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += u64::from(*count);
            if seen >= wanted {
                return Nanos(Self::lower(bucket + 1).min(self.longest));
            }
        }
        Nanos(0)
    }

    /// Returns the difference since `earlier`; the longest time stays that of the whole.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            sum: self.sum.wrapping_sub(earlier.sum),
            longest: self.longest,
            counts: std::array::from_fn(|at| self.counts[at].wrapping_sub(earlier.counts[at])),
        }
    }
}

/// The direction of a packet, as its guest sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Direction {
    /// To the guest.
    In,
    /// From the guest.
    Out,
}

/// One figure for each direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Both<T> {
    /// To the guest.
    pub inward: T,
    /// From the guest.
    pub outward: T,
}

impl<T> Both<T> {
    pub(super) fn of<R: Copy>(raw: &[R; 2], convert: impl Fn(R) -> T) -> Self {
        Self {
            inward: convert(raw[0]),
            outward: convert(raw[1]),
        }
    }
}

/// The reason of a drop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// A number of the kernel's `enum skb_drop_reason` (Linux 5.17 and later).
    Number(u32),
    /// The address of the kernel's code that dropped the packet.
    Location(u64),
}

/// The sender of the packets that another packet waited behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Occupant {
    /// Only packets of the same sender were sent during the wait.
    OnlyItself,
    /// The guest of this slot.
    Guest(u32),
    /// The host itself, or senders outside.
    Others,
}

/// Waits behind packets of one occupant.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Delay {
    /// The number of packets that waited at least 20 µs.
    pub packets: u64,
    /// The sum of their waits.
    pub wait: Nanos,
}

/// Requests of one kind, and where their time was spent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Requests {
    /// The number of requests that began. The last one of each connection may have no answer yet.
    pub begun: u64,
    /// The whole time of each request that has an answer.
    pub whole: Histogram,
    /// Of requests served, the time in the guest; of requests made, the time beyond the host.
    pub core: Histogram,
    /// Sums, in the order of time: from the first segment of the request to its last one, and
    /// between [the times of an event](super::SlowRequest::times).
    pub spent: [Nanos; 5],
}

/// Everything that was measured of a guest since its slot was first followed. Times and TCP are of
/// sampled flows alone; packets, bytes and drops are of all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Measurement {
    /// Packets at the guest's interfaces; a packet that is still to be segmented counts as one.
    pub packets: Both<u64>,
    /// Their bytes.
    pub bytes: Both<u64>,
    /// Packets that the host dropped, by direction and reason.
    pub drops: BTreeMap<(Direction, Reason), u64>,
    /// Waits in queues of the host's interfaces, one sum for each packet.
    pub queue: Both<Histogram>,
    /// Times in the host, from a packet's first sight to the driver.
    pub host: Both<Histogram>,
    /// Waits in the ring of a TAP until a VMM or vhost takes the packet; or in the backlog of
    /// the guest's network namespace.
    pub ring: Histogram,
    /// Waits of at least 20 µs in a queue, by direction, interface, and sender of most bytes that
    /// were sent before.
    pub behind: BTreeMap<(Direction, u32, Occupant), Delay>,
    /// Requests that the guest served.
    pub served: Requests,
    /// Requests that the guest made.
    pub made: Requests,
    /// Round trips between the host and peers: from a segment's departure to its acknowledgement.
    pub round_trip_outer: Histogram,
    /// Round trips between the host and the guest, delayed acknowledgements included.
    pub round_trip_guest: Histogram,
    /// Segments of TCP with data, SYN or FIN.
    pub segments: Both<u64>,
    /// Segments with data, SYN or FIN that ended below the highest sequence number seen before:
    /// retransmitted, or out of order.
    pub retransmitted: Both<u64>,
    /// Announcements of a closed window, by the sender of that direction.
    pub closed: Both<u64>,
    /// Time for which windows were closed, of those that have opened since.
    pub closed_time: Both<Nanos>,
    /// Waits of a sender for its receiver to read, by the receiver of that direction, from the shortest slow
    /// request's length on. One that goes on is counted once a second, as far as the receiver sends anything.
    pub held: Both<u64>,
    /// Time of those waits.
    pub held_time: Both<Nanos>,
    /// Slow requests that were not reported, since the ring of events was full.
    pub events_lost: u64,
}

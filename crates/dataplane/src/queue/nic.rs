//! The NIC's own queue, bounded in bytes (Small is Better, 3.3: Byte Queue Limits).
//!
//! A model of the transmit ring: the bytes that were sent to it, minus those that a wire of `rate`
//! has transmitted since. It stores no frames. While fewer than `limit` bytes are outstanding one
//! more frame is admitted, so the last one may overshoot, as under BQL. The paper bounds the queue
//! by the bandwidth-delay product: 37,500 B at 1 Gbit/s and 300 us.
//!
//! Outstanding bytes are counted as [`Work`], exactly: no remainder is lost at any rate and any
//! frequency of calls.

use serde::{Deserialize, Serialize};
use tailbound_units::exact::Work;
use tailbound_units::{Bytes, Nanos, Rate};

/// The link behind the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NicConfig {
    /// Rate of the link, at least 1 bit/s.
    pub rate: Rate,
    /// Maximum of outstanding bytes; the link's bytes in 300 us, at least a full frame; at most 1
    /// GB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Bytes>,
    /// Overhead of a frame on the wire; 0, for virtual links. Ethernet: 24 B.
    #[serde(default)]
    pub overhead: Bytes,
}

impl NicConfig {
    /// A full Ethernet frame, without FCS.
    const FULL_FRAME: Bytes = Bytes(1514);
    /// The round trip of the paper's network (3.3).
    const ROUND_TRIP: Nanos = Nanos::from_micros(300);

    /// Creates a wire of `rate` with the default limit.
    pub const fn new(rate: Rate) -> Self {
        Self {
            rate,
            limit: None,
            overhead: Bytes::ZERO,
        }
    }

    /// Bytes that may be outstanding.
    pub fn limit(&self) -> Bytes {
        let product = self.rate.bytes_in(Self::ROUND_TRIP);
        self.limit.unwrap_or(product.max(Self::FULL_FRAME))
    }
}

/// Highest limit: [`Work`] counts it, and the longest packet beyond it.
const MAX_LIMIT: Bytes = Bytes(1_000_000_000);

/// A NIC's queue. The module describes it.
#[derive(Debug)]
pub struct Nic {
    rate: Rate,
    limit: Work,
    overhead: Bytes,
    /// Work that the wire had still to transmit at `as_of`.
    outstanding: Work,
    as_of: Nanos,
}

impl Nic {
    /// Creates an idle wire.
    pub fn new(config: &NicConfig) -> Self {
        Self {
            rate: config.rate.max(Rate(1)),
            limit: Work::of(config.limit().clamp(Bytes(1), MAX_LIMIT)),
            overhead: config.overhead,
            outstanding: Work::ZERO,
            as_of: Nanos::ZERO,
        }
    }

    /// Changes rate and limit, and keeps the outstanding bytes.
    pub fn reconfigure(&mut self, now: Nanos, config: &NicConfig) {
        self.advance(now);
        *self = Self {
            outstanding: self.outstanding,
            as_of: self.as_of,
            ..Self::new(config)
        };
    }

    /// Checks whether a frame may be sent at `now`.
    pub fn admits(&mut self, now: Nanos) -> bool {
        self.advance(now);
        self.outstanding < self.limit
    }

    /// Records a sent packet of `len` bytes, which becomes `frames` frames on the wire.
    pub fn sent(&mut self, now: Nanos, len: usize, frames: usize) {
        self.advance(now);
        let overhead = self.overhead.0.saturating_mul(frames as u64);
        let bytes = Bytes(overhead).saturating_add(Bytes(len as u64));
        self.outstanding = self.outstanding.plus(Work::of(bytes));
    }

    /// The first time at which a frame may be sent.
    pub fn admits_at(&self) -> Nanos {
        if self.outstanding < self.limit {
            return self.as_of;
        }
        // Rounded down, and one more: less than the limit, not as much.
        let wait = self.outstanding.less(self.limit).time(self.rate);
        self.as_of.saturating_add(wait).saturating_add(Nanos(1))
    }

    /// Bytes outstanding at `now`, rounded up.
    pub fn outstanding(&self, now: Nanos) -> Bytes {
        self.left_at(now).bytes()
    }

    fn advance(&mut self, now: Nanos) {
        self.outstanding = self.left_at(now);
        self.as_of = self.as_of.max(now);
    }

    fn left_at(&self, now: Nanos) -> Work {
        let sent = Work::done(self.rate, now.since(self.as_of));
        self.outstanding.less(sent)
    }
}

#[cfg(test)]
mod tests;

//! The NIC's own queue, bounded in bytes (Small is Better, 3.3: Byte Queue
//! Limits).
//!
//! A model of the transmit ring: what was handed over, less what a wire of `rate`
//! has sent since. It keeps no frames. While fewer than `limit` bytes are
//! outstanding one more frame is admitted, so the last one may overshoot, as under
//! BQL. The paper bounds the queue by the bandwidth-delay product: 37,500 B at
//! 1 Gbit/s and 300 us.
//!
//! Outstanding work is counted in bits times nanoseconds a second, so that both
//! a byte (8·10^9) and a nanosecond of the wire (`rate`) are whole numbers: no
//! remainder is lost, whatever the rate and however often it is asked.

use serde::{Deserialize, Serialize};
use tailbound_units::{Bytes, Nanos, Rate};

/// The wire, and how much may wait for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NicConfig {
    /// What the wire sends, at least 1 bit/s.
    pub rate: Rate,
    /// Bytes that may be outstanding. By default what the wire sends in 300 us,
    /// the paper's round trip, and at least one full frame.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Bytes>,
    /// Bytes that the wire spends on a frame beside its own: 24 on Ethernet
    /// (preamble 8, FCS 4, gap 12). 0 by default: what shapes a virtual link
    /// counts the frame alone.
    #[serde(default)]
    pub overhead: Bytes,
}

impl NicConfig {
    /// A full Ethernet frame, without FCS.
    const FULL_FRAME: Bytes = Bytes(1514);
    /// The round trip of the paper's network (3.3).
    const ROUND_TRIP: Nanos = Nanos::from_micros(300);

    /// A wire of `rate` with the default limit.
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

/// Bit-nanoseconds a second in a byte.
const BYTE: u128 = 8_000_000_000;

/// A NIC's queue. See the module.
#[derive(Debug)]
pub struct Nic {
    rate: u128,
    limit: u128,
    overhead: u128,
    /// What the wire had still to send at `as_of`.
    outstanding: u128,
    as_of: Nanos,
}

impl Nic {
    /// A wire that is idle.
    pub fn new(config: &NicConfig) -> Self {
        Self {
            rate: u128::from(config.rate.0.max(1)),
            limit: u128::from(config.limit().0.max(1)) * BYTE,
            overhead: u128::from(config.overhead.0),
            outstanding: 0,
            as_of: Nanos::ZERO,
        }
    }

    /// Takes another rate and limit over; what is outstanding stays.
    pub fn reconfigure(&mut self, now: Nanos, config: &NicConfig) {
        self.advance(now);
        *self = Self {
            outstanding: self.outstanding,
            as_of: self.as_of,
            ..Self::new(config)
        };
    }

    /// Whether a frame may be handed over at `now`.
    pub fn admits(&mut self, now: Nanos) -> bool {
        self.advance(now);
        self.outstanding < self.limit
    }

    /// What will be `frames` frames on the wire, of `len` bytes together, is handed
    /// over.
    pub fn sent(&mut self, now: Nanos, len: usize, frames: usize) {
        self.advance(now);
        self.outstanding += (len as u128 + self.overhead * frames as u128) * BYTE;
    }

    /// The first moment at which a frame may be handed over.
    pub fn admits_at(&self) -> Nanos {
        if self.outstanding < self.limit {
            return self.as_of;
        }
        let wait = (self.outstanding - self.limit) / self.rate + 1;
        let wait = u64::try_from(wait).unwrap_or(u64::MAX);
        self.as_of.saturating_add(Nanos(wait))
    }

    /// Bytes outstanding at `now`, rounded up.
    pub fn outstanding(&self, now: Nanos) -> Bytes {
        let left = self.outstanding.saturating_sub(self.drained_by(now));
        Bytes(left.div_ceil(BYTE) as u64)
    }

    fn advance(&mut self, now: Nanos) {
        self.outstanding = self.outstanding.saturating_sub(self.drained_by(now));
        self.as_of = self.as_of.max(now);
    }

    fn drained_by(&self, now: Nanos) -> u128 {
        u128::from(now.since(self.as_of).0) * self.rate
    }
}

#[cfg(test)]
mod tests;

//! The exact token bucket of a limit.

use super::config::{LONGEST_FRAME, RateLimit};
use tailbound_units::exact::{BYTE_IN_NANOS, TokenBucket};
use tailbound_units::{Bytes, Nanos, WireBytes};

/// A token bucket that a frame may leave as long as nothing is owed to it, whatever its
/// length.
///
/// It is less deep than its limit's depth by one full frame, and the frame that leaves last may
/// owe as much: over any time t, at most `rate · t + depth` bytes leave. Whoever takes
/// frames from a queue need not know how long the next one is.
#[derive(Debug, Clone)]
pub struct Gate {
    bucket: TokenBucket<Nanos>,
    /// When nothing is owed any more.
    opens_at: Nanos,
    /// As long as two full frames take: the most that is owed when a control packet passed.
    most_owed: Nanos,
}

impl Gate {
    /// A full one.
    ///
    /// # Panics
    /// The limit breaks a rule ([`RateLimit::check`]).
    pub fn new(limit: &RateLimit) -> Self {
        let depth = limit.depth().saturating_sub(LONGEST_FRAME);
        let bucket = TokenBucket::new(BYTE_IN_NANOS, limit.rate, WireBytes(depth.0));
        Self {
            bucket: bucket.expect("what breaks a rule is refused before"),
            opens_at: Nanos::ZERO,
            most_owed: limit.rate.time_for(Bytes(2 * LONGEST_FRAME.0)),
        }
    }

    /// Whether a frame may leave at `now`.
    #[inline]
    pub fn is_open(&self, now: Nanos) -> bool {
        self.opens_at <= now
    }

    /// When one may.
    #[inline]
    pub const fn opens_at(&self) -> Nanos {
        self.opens_at
    }

    /// A frame leaves.
    #[inline]
    pub fn charge(&mut self, now: Nanos, len: usize) {
        self.opens_at = self.bucket.charge(now, WireBytes(len as u64)).leaves;
    }

    /// Charges a frame that is to leave at `now` though something may be owed. False, and
    /// nothing charged, where more than two full frames would be.
    pub(super) fn passes(&mut self, now: Nanos, len: usize) -> bool {
        let charged = self.bucket.charge(now, WireBytes(len as u64));
        if charged.leaves.since(now) > self.most_owed {
            self.bucket.refund(charged);
            return false;
        }
        self.opens_at = charged.leaves;
        true
    }

    /// Takes the tokens of the one before, as far as this one holds them, and what it is owed.
    pub(super) fn follow(&mut self, before: &Self, now: Nanos) {
        let fresh = self.bucket;
        self.bucket = before.bucket;
        self.bucket.reconfigure(&fresh, now, now);
        // What a frame of no bytes would wait for.
        self.opens_at = self.bucket.leaves(now, WireBytes(0));
    }

    /// Becomes one of `limit`. It keeps what it holds, as far as it can.
    pub fn reconfigure(&mut self, now: Nanos, limit: &RateLimit) {
        let before = std::mem::replace(self, Self::new(limit));
        self.follow(&before, now);
    }
}

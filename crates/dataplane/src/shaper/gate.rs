//! The exact token bucket of a limit.

use super::config::{LONGEST_FRAME, RateLimit};
use tailbound_units::exact::{BYTE_IN_NANOS, TokenBucket};
use tailbound_units::{Bytes, Nanos, WireBytes};

/// A token bucket that a frame of any length may leave while no tokens are owed.
///
/// Its depth is the limit's less one full frame, and the last frame may owe the same length. So in
/// any time t, at most `rate · t + depth` bytes leave, and a caller that dequeues frames need not
/// know the length of the next one.
#[derive(Debug, Clone)]
pub struct Gate {
    bucket: TokenBucket<Nanos>,
    /// Time at which no tokens are owed.
    opens_at: Nanos,
    /// Time of two full frames: the maximum that is owed after a control packet passed.
    most_owed: Nanos,
}

impl Gate {
    /// Creates a full bucket.
    ///
    /// # Panics
    /// The limit breaks a rule ([`RateLimit::check`]).
    pub fn new(limit: &RateLimit) -> Self {
        let depth = limit.depth().saturating_sub(LONGEST_FRAME);
        let bucket = TokenBucket::new(BYTE_IN_NANOS, limit.rate, WireBytes(depth.0));
        Self {
            bucket: bucket.expect("the rules were checked before"),
            opens_at: Nanos::ZERO,
            most_owed: limit.rate.time_for(Bytes(2 * LONGEST_FRAME.0)),
        }
    }

    /// Checks whether a frame may leave at `now`.
    #[inline]
    pub fn is_open(&self, now: Nanos) -> bool {
        self.opens_at <= now
    }

    /// Time at which the next frame may leave.
    #[inline]
    pub const fn opens_at(&self) -> Nanos {
        self.opens_at
    }

    /// Charges a frame that leaves.
    #[inline]
    pub fn charge(&mut self, now: Nanos, len: usize) {
        self.opens_at = self.bucket.charge(now, WireBytes(len as u64)).leaves;
    }

    /// Charges a control packet that leaves at `now`, even if tokens are owed. Returns false and
    /// charges nothing if more than two full frames would be owed.
    pub(super) fn passes(&mut self, now: Nanos, len: usize) -> bool {
        let charged = self.bucket.charge(now, WireBytes(len as u64));
        if charged.leaves.since(now) > self.most_owed {
            self.bucket.refund(charged);
            return false;
        }
        self.opens_at = charged.leaves;
        true
    }

    /// Takes over the tokens and debts of another bucket, up to this one's depth.
    pub(super) fn follow(&mut self, before: &Self, now: Nanos) {
        let fresh = self.bucket;
        self.bucket = before.bucket;
        self.bucket.reconfigure(&fresh, now, now);
        // Time for which a frame of zero bytes would wait.
        self.opens_at = self.bucket.leaves(now, WireBytes(0));
    }

    /// Changes the limit, and keeps the tokens up to the new depth.
    pub fn reconfigure(&mut self, now: Nanos, limit: &RateLimit) {
        let before = std::mem::replace(self, Self::new(limit));
        self.follow(&before, now);
    }
}

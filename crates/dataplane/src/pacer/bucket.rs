//! One virtual token bucket, exact.
//!
//! The generic cell rate algorithm (ITU-T I.371, virtual scheduling): instead of
//! tokens a bucket keeps when it would be full again, its *theoretical arrival
//! time*. A frame of `L` bytes pushes that back by what the bucket's rate needs
//! for it, and may leave once it is at most the bucket's depth ahead:
//!
//! ```text
//! due = max(due, arrival) + L · link / rate       leaves = max(arrival, due − burst · link / rate)
//! ```
//!
//! Time is counted in bytes of the wire. `due` is a whole number of them and a
//! remainder in units of 1/rate byte, so every term is a whole number of units and
//! nothing is ever rounded away: after any number of frames `due` is exactly the
//! sum of their costs. Only the moment that is handed out is rounded, up to the
//! next byte of the wire, where a frame can begin; nothing is computed from it
//! again in this bucket, so its error of less than one byte never adds up.

use tailbound_units::{Bytes, Rate};

/// A virtual token bucket, in bytes of a wire's time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bucket {
    /// Bits a second, above zero.
    rate: u64,
    /// The burst as a time: whole bytes of the wire, and a rest in 1/rate.
    depth: u64,
    depth_rest: u64,
    /// When the bucket is full again, likewise.
    due: u64,
    rest: u64,
}

/// A frame that may pass a bucket.
#[derive(Debug, Clone, Copy)]
pub(super) struct Passed {
    due: u64,
    rest: u64,
    /// When it leaves.
    pub(super) leaves: u64,
}

/// Longest time that a full burst may stand for, in bytes of the wire: sums of a
/// few of them, and of any moment, stay far inside 64 bits.
const MAX_DEPTH: u128 = 1 << 60;

impl Bucket {
    /// A full bucket of `burst` that fills at `rate`, on a wire of `link`. `None`
    /// where the rate is zero, or the burst would take longer than any clock runs.
    pub(super) fn new(link: Rate, rate: Rate, burst: Bytes) -> Option<Self> {
        let work = u128::from(burst.0) * u128::from(link.0);
        let depth = work.checked_div(u128::from(rate.0))?;
        (depth <= MAX_DEPTH).then(|| Self {
            rate: rate.0,
            depth: depth as u64,
            depth_rest: (work % u128::from(rate.0)) as u64,
            due: 0,
            rest: 0,
        })
    }

    /// When a frame that comes at `arrival` leaves, and the bucket after it. It is
    /// charged only when that is [kept](Self::keep).
    ///
    /// `work` is the frame's bytes times the link's rate. The frame is no longer
    /// than the bucket is deep.
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "once for every frame, where a call costs as much"
    )]
    pub(super) const fn pass(&self, arrival: u64, work: u64) -> Passed {
        let (mut due, mut rest) = (self.due, self.rest);
        if due < arrival {
            (due, rest) = (arrival, 0);
        }
        due += work / self.rate;
        rest += work % self.rate;
        if rest >= self.rate {
            rest -= self.rate;
            due += 1;
        }
        let up = (rest > self.depth_rest) as u64;
        let leaves = (due + up).saturating_sub(self.depth);
        Passed {
            due,
            rest,
            leaves: if leaves > arrival { leaves } else { arrival },
        }
    }

    /// Charges a frame.
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "once for every frame, where a call costs as much"
    )]
    pub(super) const fn keep(&mut self, passed: Passed) {
        self.due = passed.due;
        self.rest = passed.rest;
    }

    /// Takes another rate and burst over at `now`. The tokens of that moment stay,
    /// as far as the new bucket holds them; what was charged beyond them is
    /// forgotten, so `now` is not before the last frame that was charged left.
    pub(super) fn become_like(&mut self, fresh: &Self, now: u64) {
        let owed = match self.due.checked_sub(now) {
            Some(ahead) => u128::from(ahead) * u128::from(self.rate) + u128::from(self.rest),
            None => 0,
        };
        let tokens = self.capacity().saturating_sub(owed).min(fresh.capacity());
        let owed = fresh.capacity() - tokens;
        let rate = u128::from(fresh.rate);
        *self = Self {
            due: now + (owed / rate) as u64,
            rest: (owed % rate) as u64,
            ..*fresh
        };
    }

    /// The burst in bytes times the link's rate.
    const fn capacity(&self) -> u128 {
        self.depth as u128 * self.rate as u128 + self.depth_rest as u128
    }
}

#[cfg(test)]
mod tests;

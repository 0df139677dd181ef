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

use std::num::NonZeroU64;
use tailbound_units::{Position, Rate, WireBytes};

/// A virtual token bucket, in bytes of a wire's time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bucket {
    link: Rate,
    /// Bits a second.
    rate: NonZeroU64,
    /// The burst as a time: whole bytes of the wire, and a rest in 1/rate.
    depth: WireBytes,
    depth_rest: u64,
    /// When the bucket is full again, likewise.
    due: Position,
    rest: u64,
    /// By how much a frame of so many bytes pushes that back, likewise. Most are as
    /// long as the one before.
    len: WireBytes,
    cost: WireBytes,
    cost_rest: u64,
}

/// A frame that was charged to a bucket.
#[derive(Debug, Clone, Copy)]
pub(super) struct Charged {
    /// When the bucket was full again before it.
    due: Position,
    rest: u64,
    /// When it leaves.
    pub(super) leaves: Position,
}

/// Longest time that a full burst may stand for, in bytes of the wire: sums of a
/// few of them, and of any moment, stay far inside 64 bits.
const MAX_DEPTH: u128 = 1 << 60;

impl Bucket {
    /// A full bucket of `burst` that fills at `rate`, on a wire of `link`. `None`
    /// where the rate is zero, or the burst would take longer than any clock runs.
    pub(super) fn new(link: Rate, rate: Rate, burst: WireBytes) -> Option<Self> {
        let work = u128::from(burst.0) * u128::from(link.0);
        let rate = NonZeroU64::new(rate.0)?;
        let (depth, depth_rest) = divide(work, rate);
        (depth <= MAX_DEPTH).then_some(Self {
            link,
            rate,
            depth: WireBytes(depth as u64),
            depth_rest,
            due: Position::ZERO,
            rest: 0,
            len: WireBytes::ZERO,
            cost: WireBytes::ZERO,
            cost_rest: 0,
        })
    }

    /// Charges a frame of `len` bytes that comes at `arrival`. It is no longer than
    /// the bucket is deep.
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "once for every frame, where a call costs as much"
    )]
    pub(super) fn charge(&mut self, arrival: Position, len: WireBytes) -> Charged {
        if len != self.len {
            self.set_cost(len);
        }
        let Self { due, rest, .. } = *self;
        if due < arrival {
            // Full: after a pause, or where another bucket of the chain is slower.
            self.due = arrival + self.cost;
            self.rest = self.cost_rest;
            let leaves = arrival;
            return Charged { due, rest, leaves };
        }
        // Without a branch: which way it goes changes from frame to frame.
        let over = rest + self.cost_rest;
        let (less, below) = over.overflowing_sub(self.rate.get());
        self.due = due + self.cost + WireBytes(u64::from(!below));
        self.rest = if below { over } else { less };
        let up = WireBytes(u64::from(self.rest > self.depth_rest));
        let leaves = (self.due + up).max(arrival + self.depth) - self.depth;
        Charged { due, rest, leaves }
    }

    /// Finds the cost of frames of `len` bytes, at most 64 bits of bits and bits a
    /// second: 2 MB at 1 Tbit/s.
    #[inline(never)]
    fn set_cost(&mut self, len: WireBytes) {
        let work = len.0 * self.link.0;
        self.len = len;
        self.cost = WireBytes(work / self.rate);
        self.cost_rest = work % self.rate;
    }

    /// Takes back what was charged last.
    pub(super) const fn refund(&mut self, charged: Charged) {
        self.due = charged.due;
        self.rest = charged.rest;
    }

    /// Keeps what it holds at `from` until `to`, which is not before it.
    pub(super) fn pause(&mut self, from: Position, to: Position) {
        if self.due >= from {
            self.due += to - from;
        }
    }

    /// Whether it holds `len` bytes at `arrival`.
    pub(super) fn holds(mut self, arrival: Position, len: WireBytes) -> bool {
        len <= self.burst() && self.charge(arrival, len).leaves <= arrival
    }

    /// Takes another rate, burst and link over. The tokens of the moment `from` stay,
    /// as far as the new bucket holds them, and so does what was charged beyond them
    /// for frames that leave later. That moment is `to` on the new link.
    pub(super) fn become_like(&mut self, fresh: &Self, from: Position, to: Position) {
        let owed = match self.due.checked_since(from) {
            Some(ahead) => {
                u128::from(ahead.0) * u128::from(self.rate.get()) + u128::from(self.rest)
            }
            None => 0,
        };
        // Tokens are counted in bytes times the link's rate; both are below 2^104.
        let tokens = self.capacity().cast_signed() - owed.cast_signed();
        let tokens = scale(tokens, fresh.link, self.link);
        let lacks = (fresh.capacity().cast_signed() - tokens).max(0);
        *self = fresh.owing(lacks.unsigned_abs(), to);
    }

    /// The same bucket, full.
    pub(super) fn full(self) -> Self {
        self.owing(0, Position::ZERO)
    }

    /// The same bucket, which has nothing in it at `now`.
    pub(super) fn empty(self, now: Position) -> Self {
        self.owing(self.capacity(), now)
    }

    /// The same bucket, which lacks `owed` bytes times the link's rate at `now`.
    fn owing(self, owed: u128, now: Position) -> Self {
        let (due, rest) = divide(owed, self.rate);
        Self {
            due: now + WireBytes(due as u64),
            rest,
            ..self
        }
    }

    /// Whether it fills at `rate` and holds `burst`.
    pub(super) fn is(&self, rate: Rate, burst: WireBytes) -> bool {
        let work = u128::from(burst.0) * u128::from(self.link.0);
        rate == self.rate() && work == self.capacity()
    }

    /// The burst.
    pub(super) fn burst(&self) -> WireBytes {
        WireBytes((self.capacity() / u128::from(self.link.0)) as u64)
    }

    /// Bits a second.
    pub(super) const fn rate(&self) -> Rate {
        Rate(self.rate.get())
    }

    /// The burst in bytes times the link's rate.
    const fn capacity(&self) -> u128 {
        self.depth.0 as u128 * self.rate.get() as u128 + self.depth_rest as u128
    }
}

/// The quotient and the remainder. Nearly always 64 bits are enough, for a burst of
/// 1.8 GB at 10 Gbit/s, and take a tenth of the time.
fn divide(work: u128, by: NonZeroU64) -> (u128, u64) {
    if let Ok(work) = u64::try_from(work) {
        return ((work / by).into(), work % by);
    }
    let by = u128::from(by.get());
    (work / by, (work % by) as u64)
}

/// `tokens · to / from`, rounded down.
fn scale(tokens: i128, to: Rate, from: Rate) -> i128 {
    if to == from {
        return tokens;
    }
    let (to, from) = (i128::from(to.0), i128::from(from.0));
    // What a bucket holds or is owed is below 2^104, a rate is below 2^40.
    tokens.div_euclid(from) * to + tokens.rem_euclid(from) * to / from
}

#[cfg(test)]
mod tests;

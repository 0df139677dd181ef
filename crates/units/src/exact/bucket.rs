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
//! Here `link` stands for the work of a byte: where a tick is a byte of a wire, the
//! wire's rate. `due` is a whole number of ticks and a remainder in units of 1/rate
//! tick, so every term is a whole number of units and nothing is ever rounded away:
//! after any number of frames `due` is exactly the sum of their costs. Only the moment
//! that is handed out is rounded, up to the next tick, where a frame can begin; nothing
//! is computed from it again in this bucket, so its error of less than one tick never
//! adds up.

use crate::{Nanos, Position, Rate, WireBytes};
use std::num::NonZeroU64;

/// A moment that is counted in ticks.
pub trait Tick: Copy + Ord {
    /// The moment after so many ticks.
    fn after(ticks: u64) -> Self;

    /// How many ticks it is after the first moment.
    fn ticks(self) -> u64;
}

impl Tick for Nanos {
    #[inline]
    fn after(ticks: u64) -> Self {
        Self(ticks)
    }
    #[inline]
    fn ticks(self) -> u64 {
        self.0
    }
}

impl Tick for Position {
    #[inline]
    fn after(ticks: u64) -> Self {
        Self(ticks)
    }
    #[inline]
    fn ticks(self) -> u64 {
        self.0
    }
}

/// A virtual token bucket. See the module.
#[derive(Debug, Clone, Copy)]
pub struct TokenBucket<T> {
    /// The work of a byte.
    byte: u64,
    /// Bits a second, the work of a tick.
    rate: NonZeroU64,
    /// The burst as a time: whole ticks, and a rest in 1/rate.
    depth: u64,
    depth_rest: u64,
    /// When the bucket is full again, likewise.
    due: T,
    rest: u64,
    /// By how much a frame of so many bytes pushes that back, likewise. Most are as
    /// long as the one before.
    len: WireBytes,
    cost: u64,
    cost_rest: u64,
}

/// A frame that was charged to a bucket.
#[derive(Debug, Clone, Copy)]
pub struct Charged<T> {
    /// When the bucket was full again before it.
    due: T,
    rest: u64,
    /// When it leaves.
    pub leaves: T,
}

/// Longest time that a full burst may stand for, in ticks: sums of a few of them, and of
/// any moment, stay far inside 64 bits.
const MAX_DEPTH: u128 = 1 << 60;

impl TokenBucket<Position> {
    /// Returns a full bucket of `burst` that fills at `rate`, in the time of a wire of
    /// `link`. `None` as from [`TokenBucket::new`].
    pub fn on_wire(link: Rate, rate: Rate, burst: WireBytes) -> Option<Self> {
        Self::new(link.0, rate, burst)
    }
}

impl<T: Tick> TokenBucket<T> {
    /// Returns a full bucket of `burst` that fills at `rate`, where a byte is so much
    /// work. `None` where the rate is zero, or the burst would take longer than any
    /// clock runs.
    pub fn new(byte: u64, rate: Rate, burst: WireBytes) -> Option<Self> {
        let work = u128::from(burst.0) * u128::from(byte);
        let rate = NonZeroU64::new(rate.0)?;
        let (depth, depth_rest) = divide(work, rate);
        (depth <= MAX_DEPTH).then_some(Self {
            byte,
            rate,
            depth: depth as u64,
            depth_rest,
            due: T::after(0),
            rest: 0,
            len: WireBytes::ZERO,
            cost: 0,
            cost_rest: 0,
        })
    }

    /// Charges a frame of `len` bytes that comes at `arrival`. It is no longer than
    /// the bucket is deep.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "once for every frame")]
    pub fn charge(&mut self, arrival: T, len: WireBytes) -> Charged<T> {
        if len != self.len {
            self.set_len(len);
        }
        self.charge_again(arrival)
    }

    /// Charges a frame as long as the last one, or as [`TokenBucket::set_len`] says: for a
    /// chain of buckets, where one look at the length is enough for all.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "once for every frame")]
    pub fn charge_again(&mut self, arrival: T) -> Charged<T> {
        let Self { due, rest, .. } = *self;
        if due < arrival {
            // Full: after a pause, or where another bucket of the chain is slower.
            self.due = T::after(arrival.ticks() + self.cost);
            self.rest = self.cost_rest;
            let leaves = arrival;
            return Charged { due, rest, leaves };
        }
        // Without a branch: which way it goes changes from frame to frame.
        let over = rest + self.cost_rest;
        let (less, below) = over.overflowing_sub(self.rate.get());
        let full = due.ticks() + self.cost + u64::from(!below);
        self.due = T::after(full);
        self.rest = if below { over } else { less };
        let up = u64::from(self.rest > self.depth_rest);
        let leaves = (full + up).max(arrival.ticks() + self.depth) - self.depth;
        let leaves = T::after(leaves);
        Charged { due, rest, leaves }
    }

    /// Finds the cost of the frames that follow, of `len` bytes: at most 64 bits of work,
    /// 18 MB at 1 Tbit/s, 2.3 MB in picoseconds.
    #[inline(never)]
    pub fn set_len(&mut self, len: WireBytes) {
        let work = len.0 * self.byte;
        self.len = len;
        self.cost = work / self.rate;
        self.cost_rest = work % self.rate;
    }

    /// Takes back what was charged last.
    pub fn refund(&mut self, charged: Charged<T>) {
        self.due = charged.due;
        self.rest = charged.rest;
    }

    /// Keeps what it holds at `from` until `to`, which is not before it.
    pub fn pause(&mut self, from: T, to: T) {
        if self.due >= from {
            self.due = T::after(self.due.ticks() + (to.ticks() - from.ticks()));
        }
    }

    /// Fills the bucket for a number of ticks that its clock does not count: it is full that many ticks
    /// sooner. A frame of the last length leaves at `left`, before those ticks or after them, and its
    /// bytes are missing from the bucket until then.
    pub fn pass(&mut self, ticks: u64, left: T) {
        let now = (self.due.ticks(), self.rest);
        let sooner = (now.0.saturating_sub(ticks), self.rest);
        let without_the_frame = (left.ticks() + self.cost, self.cost_rest);
        let (due, rest) = sooner.max(now.min(without_the_frame));
        self.due = T::after(due);
        self.rest = rest;
    }

    /// Whether it holds `len` bytes at `arrival`.
    pub fn holds(self, arrival: T, len: WireBytes) -> bool {
        len <= self.burst() && self.leaves(arrival, len) <= arrival
    }

    /// When a frame of `len` bytes that comes at `arrival` would leave.
    pub fn leaves(mut self, arrival: T, len: WireBytes) -> T {
        self.charge(arrival, len).leaves
    }

    /// When the bucket is full again, rounded up.
    pub fn full_at(&self) -> T {
        T::after(self.due.ticks() + u64::from(self.rest > 0))
    }

    /// How many ticks an empty bucket needs to be full, rounded up.
    pub const fn fill_time(&self) -> u64 {
        self.depth + (self.depth_rest > 0) as u64
    }

    /// How many bytes it holds at `now`, rounded down.
    pub fn tokens(&self, now: T) -> WireBytes {
        let tokens = self.capacity().saturating_sub(self.owed(now));
        WireBytes((tokens / u128::from(self.byte)) as u64)
    }

    /// How many bytes it lacks to be full at `now`, rounded up; no more than it can hold.
    pub fn lacks(&self, now: T) -> WireBytes {
        let owed = self.owed(now).min(self.capacity());
        WireBytes(owed.div_ceil(u128::from(self.byte)) as u64)
    }

    /// The work that it lacks to be full at `now`.
    fn owed(&self, now: T) -> u128 {
        match self.due.ticks().checked_sub(now.ticks()) {
            Some(ahead) => u128::from(ahead) * u128::from(self.rate.get()) + u128::from(self.rest),
            None => 0,
        }
    }

    /// Takes another rate, burst and work of a byte over. The tokens of the moment
    /// `from` stay, as far as the new bucket holds them, and so does what was charged
    /// beyond them for frames that leave later. That moment is `to` on the other clock.
    pub fn reconfigure(&mut self, fresh: &Self, from: T, to: T) {
        // Both are below 2^104.
        let tokens = self.capacity().cast_signed() - self.owed(from).cast_signed();
        let tokens = scale(tokens, fresh.byte, self.byte);
        let lacks = (fresh.capacity().cast_signed() - tokens).max(0);
        *self = fresh.owing(lacks.unsigned_abs(), to);
    }

    /// Puts in so many bytes at `now`, as far as it holds them.
    pub fn fill(&mut self, bytes: WireBytes, now: T) {
        let more = u128::from(bytes.0) * u128::from(self.byte);
        *self = self.owing(self.owed(now).saturating_sub(more), now);
    }

    /// The same bucket, full.
    #[must_use]
    pub fn full(self) -> Self {
        self.owing(0, T::after(0))
    }

    /// The same bucket, which has nothing in it at `now`.
    #[must_use]
    pub fn empty(self, now: T) -> Self {
        self.owing(self.capacity(), now)
    }

    /// The same bucket, which lacks so much work at `now`.
    fn owing(self, owed: u128, now: T) -> Self {
        let (due, rest) = divide(owed, self.rate);
        Self {
            due: T::after(now.ticks() + due as u64),
            rest,
            ..self
        }
    }

    /// Whether it fills at `rate` and holds `burst`.
    pub fn is(&self, rate: Rate, burst: WireBytes) -> bool {
        let work = u128::from(burst.0) * u128::from(self.byte);
        rate == self.rate() && work == self.capacity()
    }

    /// The burst.
    pub fn burst(&self) -> WireBytes {
        WireBytes((self.capacity() / u128::from(self.byte)) as u64)
    }

    /// The work of a byte: on a wire, the rate of that.
    pub const fn byte(&self) -> u64 {
        self.byte
    }

    /// Bits a second.
    pub const fn rate(&self) -> Rate {
        Rate(self.rate.get())
    }

    /// The burst as work.
    const fn capacity(&self) -> u128 {
        self.depth as u128 * self.rate.get() as u128 + self.depth_rest as u128
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
fn scale(tokens: i128, to: u64, from: u64) -> i128 {
    if to == from {
        return tokens;
    }
    if let (Ok(tokens), Ok(divisor)) = (i64::try_from(tokens), i64::try_from(from)) {
        // Nearly always: a tenth of the time.
        let (whole, rest) = (tokens.div_euclid(divisor), tokens.rem_euclid(divisor));
        let rest = u128::from(rest.unsigned_abs()) * u128::from(to) / u128::from(from);
        return i128::from(whole) * i128::from(to) + rest.cast_signed();
    }
    let (to, from) = (i128::from(to), i128::from(from));
    // What a bucket holds or is owed is below 2^104, a byte's work is below 2^43.
    tokens.div_euclid(from) * to + tokens.rem_euclid(from) * to / from
}

#[cfg(test)]
mod tests;

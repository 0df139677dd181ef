//! One virtual token bucket, exact.
//!
//! The generic cell rate algorithm (ITU-T I.371, virtual scheduling): instead of tokens, a bucket
//! stores the time at which it will be full again, its *theoretical arrival time*. A frame of `L`
//! bytes delays that time by the time that the bucket's rate needs for `L`. The frame may leave
//! once that time is at most the bucket's depth ahead:
//!
//! ```text
//! due = max(due, arrival) + L · link / rate       leaves = max(arrival, due − burst · link / rate)
//! ```
//!
//! Here `link` is the work of a byte: for ticks that are bytes of a wire, the wire's rate. `due` is
//! a whole number of ticks and a remainder in units of 1/rate tick, so every term is a whole number
//! of units, and rounding loses nothing: after any number of frames, `due` is exactly the sum of
//! their costs. Only the returned moment is rounded, up to the next tick, at which a frame can
//! begin. No later computation in this bucket uses the rounded moment, so its error of less than
//! one tick never accumulates.

use crate::{Nanos, Position, Rate, WireBytes};
use std::num::NonZeroU64;

/// A moment in ticks.
pub trait Tick: Copy + Ord {
    /// The moment `ticks` after the first moment.
    fn after(ticks: u64) -> Self;

    /// The number of ticks after the first moment.
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
    /// The burst as a time: whole ticks, and a remainder in 1/rate.
    depth: u64,
    depth_rest: u64,
    /// The time at which the bucket is full again, as ticks and a remainder.
    due: T,
    rest: u64,
    /// The cost of a frame of `len` bytes, as ticks and a remainder. Most frames have the length of
    /// the previous one.
    len: WireBytes,
    cost: u64,
    cost_rest: u64,
}

/// A frame that was charged to a bucket.
#[derive(Debug, Clone, Copy, Default)]
pub struct Charged<T> {
    /// The time at which the bucket was full again before this frame.
    due: T,
    rest: u64,
    /// The departure time.
    pub leaves: T,
}

/// Longest time of a full burst, in ticks: sums of a few of these times and any moment stay far
/// below 64 bits.
const MAX_DEPTH: u128 = 1 << 60;

impl TokenBucket<Position> {
    /// Returns a full bucket of `burst` that fills at `rate`, in the time of a wire of `link`.
    /// Returns `None` as [`TokenBucket::new`] does.
    pub fn on_wire(link: Rate, rate: Rate, burst: WireBytes) -> Option<Self> {
        Self::new(link.0, rate, burst)
    }
}

impl<T: Tick> TokenBucket<T> {
    /// Returns a full bucket of `burst` that fills at `rate`; `byte` is the work of a byte. Returns
    /// `None` if the rate is zero, or if the burst would take longer than any clock runs.
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

    /// Charges a frame of `len` bytes that arrives at `arrival`. The frame must not be longer than
    /// the bucket is deep.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "once for every frame")]
    pub fn charge(&mut self, arrival: T, len: WireBytes) -> Charged<T> {
        if len != self.len {
            self.set_len(len);
        }
        self.charge_again(arrival)
    }

    /// Charges a frame of the previous length, or of the length of [`TokenBucket::set_len`]: in a
    /// chain of buckets, one comparison of lengths suffices.
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

    /// Charges a frame of `len` bytes that departs at `departure` if it conforms at `arrival`, which
    /// is not later.
    ///
    /// # Errors
    /// The time at which the frame conforms; nothing is charged then.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "once for every frame")]
    pub fn charge_departing(
        &mut self,
        arrival: T,
        departure: T,
        len: WireBytes,
    ) -> Result<Charged<T>, T> {
        if len != self.len {
            self.set_len(len);
        }
        let Self { due, rest, .. } = *self;
        let over = rest + self.cost_rest;
        let (less, below) = over.overflowing_sub(self.rate.get());
        let full = due.ticks() + self.cost + u64::from(!below);
        let sum = if below { over } else { less };
        let conforms = full + u64::from(sum > self.depth_rest);
        if conforms > arrival.ticks() + self.depth {
            return Err(T::after(conforms - self.depth));
        }
        if due < departure {
            // Full when it departs.
            self.due = T::after(departure.ticks() + self.cost);
            self.rest = self.cost_rest;
        } else {
            self.due = T::after(full);
            self.rest = sum;
        }
        Ok(Charged {
            due,
            rest,
            leaves: departure,
        })
    }

    /// Computes the cost of the following frames, of `len` bytes: at most 64 bits of work, 18 MB at
    /// 1 Tbit/s, 2.3 MB in picoseconds.
    #[inline(never)]
    pub fn set_len(&mut self, len: WireBytes) {
        let work = len.0 * self.byte;
        self.len = len;
        self.cost = work / self.rate;
        self.cost_rest = work % self.rate;
    }

    /// Reverts the last charge.
    pub fn refund(&mut self, charged: Charged<T>) {
        self.due = charged.due;
        self.rest = charged.rest;
    }

    /// Freezes the tokens of `from` until `to`, which must not be earlier.
    pub fn pause(&mut self, from: T, to: T) {
        if self.due >= from {
            self.due = T::after(self.due.ticks() + (to.ticks() - from.ticks()));
        }
    }

    /// Fills the bucket for a number of ticks that its clock does not count: it is full that many
    /// ticks sooner, but not before `not_before`. A frame of the last length leaves at `left`,
    /// before or after those ticks, and its bytes are missing from the bucket until then.
    pub fn pass(&mut self, ticks: u64, left: T, not_before: T) {
        let now = (self.due.ticks(), self.rest);
        let sooner = (now.0.saturating_sub(ticks), self.rest);
        let without_the_frame = (left.ticks() + self.cost, self.cost_rest);
        let full = without_the_frame.max((not_before.ticks(), 0));
        let (due, rest) = sooner.max(now.min(full));
        self.due = T::after(due);
        self.rest = rest;
    }

    /// Returns true if the bucket holds `len` bytes at `arrival`.
    pub fn holds(self, arrival: T, len: WireBytes) -> bool {
        len <= self.burst() && self.leaves(arrival, len) <= arrival
    }

    /// Returns the departure time of a frame of `len` bytes that arrives at `arrival`, without
    /// charging it. A later charge of the same length costs less.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "once for every frame")]
    pub fn conforms_at(&mut self, arrival: T, len: WireBytes) -> T {
        if len != self.len {
            self.set_len(len);
        }
        let mut charged = *self;
        charged.charge_again(arrival).leaves
    }

    /// Returns the departure time of a frame of `len` bytes that arrives at `arrival`.
    pub fn leaves(mut self, arrival: T, len: WireBytes) -> T {
        self.charge(arrival, len).leaves
    }

    /// Returns the time at which the bucket is full again, rounded up.
    pub fn full_at(&self) -> T {
        T::after(self.due.ticks() + u64::from(self.rest > 0))
    }

    /// Returns the number of ticks that an empty bucket needs to fill, rounded up.
    pub const fn fill_time(&self) -> u64 {
        self.depth + (self.depth_rest > 0) as u64
    }

    /// Returns the bytes that the bucket holds at `now`, rounded down.
    pub fn tokens(&self, now: T) -> WireBytes {
        let tokens = self.capacity().saturating_sub(self.owed(now));
        WireBytes((tokens / u128::from(self.byte)) as u64)
    }

    /// Returns the bytes that are missing from a full bucket at `now`, rounded up; at most its
    /// capacity.
    pub fn lacks(&self, now: T) -> WireBytes {
        let owed = self.owed(now).min(self.capacity());
        WireBytes(owed.div_ceil(u128::from(self.byte)) as u64)
    }

    /// The work that is missing from a full bucket at `now`.
    fn owed(&self, now: T) -> u128 {
        match self.due.ticks().checked_sub(now.ticks()) {
            Some(ahead) => u128::from(ahead) * u128::from(self.rate.get()) + u128::from(self.rest),
            None => 0,
        }
    }

    /// Adopts another rate, burst and work of a byte. The tokens at the moment `from` stay, as far
    /// as the new bucket holds them, and charges beyond them for later frames stay, too. That
    /// moment is `to` on the other clock.
    pub fn reconfigure(&mut self, fresh: &Self, from: T, to: T) {
        // Both are below 2^104.
        let tokens = self.capacity().cast_signed() - self.owed(from).cast_signed();
        let tokens = scale(tokens, fresh.byte, self.byte);
        let lacks = (fresh.capacity().cast_signed() - tokens).max(0);
        *self = fresh.owing(lacks.unsigned_abs(), to);
    }

    /// Adds `bytes` at `now`, up to the capacity.
    pub fn fill(&mut self, bytes: WireBytes, now: T) {
        let more = u128::from(bytes.0) * u128::from(self.byte);
        *self = self.owing(self.owed(now).saturating_sub(more), now);
    }

    /// Returns this bucket, full.
    #[must_use]
    pub fn full(self) -> Self {
        self.owing(0, T::after(0))
    }

    /// Returns this bucket, empty at `now`.
    #[must_use]
    pub fn empty(self, now: T) -> Self {
        self.owing(self.capacity(), now)
    }

    /// Returns this bucket with `owed` work missing at `now`.
    fn owing(self, owed: u128, now: T) -> Self {
        let (due, rest) = divide(owed, self.rate);
        Self {
            due: T::after(now.ticks() + due as u64),
            rest,
            ..self
        }
    }

    /// Returns true if the bucket fills at `rate` and holds `burst`.
    pub fn is(&self, rate: Rate, burst: WireBytes) -> bool {
        let work = u128::from(burst.0) * u128::from(self.byte);
        rate == self.rate() && work == self.capacity()
    }

    /// The burst.
    pub fn burst(&self) -> WireBytes {
        WireBytes((self.capacity() / u128::from(self.byte)) as u64)
    }

    /// The work of a byte: on a wire, the wire's rate.
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

//! Exact arithmetic of wires and token buckets.
//!
//! Time is counted in ticks: nanoseconds, picoseconds, or bytes of a wire. A byte does
//! not take a whole number of ticks, nor does a tick carry a whole number of bytes. So
//! what is sent and what may be sent is counted in *work*, in which both are whole: a
//! tick is as much work as the rate has bits a second, a byte as much as a wire has
//! ticks' worth of it ([`BYTE_IN_NANOS`], [`BYTE_IN_PICOS`], or the wire's own rate where a
//! tick is a byte of it). Sums of work are exact. Only a moment or a size that is
//! handed out is rounded, and nothing is computed from it again.
//!
//! Three forms of this are all that the project needs:
//! - [`Work`], for what is outstanding and drains: the continuous-state leaky bucket of
//!   ITU-T I.371. It costs no division unless somebody asks when.
//! - [`TokenBucket`], for what leaves when: virtual scheduling (the same paper proves
//!   both alike). It costs no division unless lengths change.
//! - [`Carry`], for what a wire carries in a time, or how long it takes.

mod bucket;

pub use crate::rate::BYTE_IN_NANOS;
pub use bucket::{Charged, Tick, TokenBucket};

use crate::{Bytes, Nanos, Rate};
use std::ops::Div;

/// The work of a byte where a tick is a picosecond.
pub const BYTE_IN_PICOS: u64 = 1_000 * BYTE_IN_NANOS;

/// Work in bits times nanoseconds a second, at most that of 2.3 GB: beyond that all
/// operations saturate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(transparent)]
pub struct Work(u64);

impl Work {
    /// None.
    pub const ZERO: Self = Self(0);

    /// The work of so many bytes.
    #[inline]
    pub const fn of(bytes: Bytes) -> Self {
        Self(bytes.0.saturating_mul(BYTE_IN_NANOS))
    }

    /// What is done in `time` at `rate`.
    #[inline]
    pub const fn done(rate: Rate, time: Nanos) -> Self {
        Self(time.0.saturating_mul(rate.0))
    }

    /// The sum.
    #[inline]
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// The difference, at least zero.
    #[inline]
    #[must_use]
    pub const fn less(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// How long it takes at `rate`, rounded down.
    ///
    /// # Panics
    /// The rate is zero.
    #[inline]
    pub const fn time(self, rate: Rate) -> Nanos {
        Nanos(self.0 / rate.0)
    }

    /// How many bytes it is, rounded up.
    #[inline]
    pub const fn bytes(self) -> Bytes {
        Bytes(self.0.div_ceil(BYTE_IN_NANOS))
    }
}

/// Rounded down to a unit of work.
impl Div<u64> for Work {
    type Output = Self;
    #[inline]
    fn div(self, parts: u64) -> Self {
        Self(self.0 / parts)
    }
}

/// What a division left over, which the next one takes in: the sum of the quotients is
/// that of exact fractions, rounded down once. All divisions have one divisor.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Carry(u64);

impl Carry {
    /// Nothing left over.
    pub const NONE: Self = Self(0);

    /// Returns `amount · factor / divisor`, rounded down, with what was left over
    /// before; at most `u64::MAX`.
    #[inline]
    pub fn divide(&mut self, amount: u64, factor: u64, divisor: u64) -> u64 {
        let work = amount.checked_mul(factor);
        match work.and_then(|work| work.checked_add(self.0)) {
            Some(work) => {
                self.0 = work % divisor;
                work / divisor
            }
            None => self.divide_wide(amount, factor, divisor),
        }
    }

    /// The same beyond 64 bits.
    #[cold]
    fn divide_wide(&mut self, amount: u64, factor: u64, divisor: u64) -> u64 {
        let work = u128::from(amount) * u128::from(factor) + u128::from(self.0);
        self.0 = (work % u128::from(divisor)) as u64;
        u64::try_from(work / u128::from(divisor)).unwrap_or(u64::MAX)
    }

    /// Whether something is left over.
    #[inline]
    pub const fn is_some(self) -> bool {
        self.0 > 0
    }
}

#[cfg(test)]
mod tests;

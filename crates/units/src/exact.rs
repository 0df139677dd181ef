//! Exact arithmetic of wires and token buckets.
//!
//! Time is counted in ticks: nanoseconds, picoseconds, or bytes of a wire. A byte does not take a
//! whole number of ticks, nor does a tick carry a whole number of bytes. So sizes and times are
//! both converted to *work*, in which both are whole. A tick has as much work as the rate has bits
//! a second. A byte has the work of the wire's ticks for it: [`BYTE_IN_NANOS`], [`BYTE_IN_PICOS`],
//! or the wire's own rate for ticks that are bytes of the wire. Sums of work are exact. Only a
//! returned moment or size is rounded, and no later result depends on the rounded value.
//!
//! The project needs three forms:
//! - [`Work`], for a backlog that drains: the continuous-state leaky bucket of ITU-T I.371. It
//!   needs a division only for a drain time.
//! - [`TokenBucket`], for departure times: virtual scheduling (ITU-T I.371 proves both equal). It
//!   needs a division only for a new length.
//! - [`Carry`], for the bytes that a wire carries in a time, and for the time of a number of bytes.

mod bucket;

pub use crate::rate::BYTE_IN_NANOS;
pub use bucket::{Charged, Tick, TokenBucket};

use crate::{Bytes, Nanos, Rate};
use std::ops::Div;

/// The work of a byte for ticks of a picosecond.
pub const BYTE_IN_PICOS: u64 = 1_000 * BYTE_IN_NANOS;

/// Work in bits times nanoseconds a second. Operations saturate at the work of 2.3 GB, which is 2^64
/// / [`BYTE_IN_NANOS`] bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(transparent)]
pub struct Work(u64);

impl Work {
    /// No work.
    pub const ZERO: Self = Self(0);

    /// The work of `bytes`.
    #[inline]
    pub const fn of(bytes: Bytes) -> Self {
        Self(bytes.0.saturating_mul(BYTE_IN_NANOS))
    }

    /// The work of `time` at `rate`.
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

    /// The time for this work at `rate`, rounded down.
    ///
    /// # Panics
    /// The rate is zero.
    #[inline]
    pub const fn time(self, rate: Rate) -> Nanos {
        Nanos(self.0 / rate.0)
    }

    /// The number of bytes of this work, rounded up.
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

/// Remainder of a division, which the next division adds: the sum of the quotients is the sum of
/// the exact fractions, rounded down once. All divisions have one divisor.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Carry(u64);

impl Carry {
    /// No remainder.
    pub const NONE: Self = Self(0);

    /// Returns `amount · factor / divisor` and the previous remainder, rounded down; at most
    /// `u64::MAX`.
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

    /// [`Carry::divide`] beyond 64 bits.
    #[cold]
    fn divide_wide(&mut self, amount: u64, factor: u64, divisor: u64) -> u64 {
        let work = u128::from(amount) * u128::from(factor) + u128::from(self.0);
        self.0 = (work % u128::from(divisor)) as u64;
        u64::try_from(work / u128::from(divisor)).unwrap_or(u64::MAX)
    }

    /// The remainder, in parts of one divisor.
    #[inline]
    pub const fn parts(self) -> u64 {
        self.0
    }

    /// Returns true if there is a remainder.
    #[inline]
    pub const fn is_some(self) -> bool {
        self.0 > 0
    }
}

#[cfg(test)]
mod tests;

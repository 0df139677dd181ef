//! Time inside the simulator: picoseconds.

use std::ops::{Add, Sub};
use tailbound_units::Nanos;
use tailbound_units::exact::Tick;

/// A moment or a length of time, in picoseconds.
///
/// A nanosecond is too long for fast links: 1538 bytes take 123.04 ns at
/// 100 Gbit/s. In picoseconds a byte takes a whole number on every link whose
/// rate divides 8·10^12 bit/s, all those of Ethernet among them; what other
/// rates leave over is carried on ([`super::Wire`]). 64 bits last 213 days.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

/// Picoseconds in a nanosecond.
const PICOS: u64 = 1_000;

impl Time {
    /// The start of every simulation, and no time at all.
    pub const ZERO: Self = Self(0);
    /// Later than anything that happens.
    pub const NEVER: Self = Self(u64::MAX);

    /// In nanoseconds, rounded down: what a clock with such ticks shows, as the
    /// mechanisms of the data path read it.
    pub const fn floor(self) -> Nanos {
        Nanos(self.0 / PICOS)
    }

    /// In nanoseconds, rounded up.
    pub const fn ceil(self) -> Nanos {
        Nanos(self.0.div_ceil(PICOS))
    }

    /// The time since `earlier`, zero if that is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }
}

impl Tick for Time {
    fn after(ticks: u64) -> Self {
        Self(ticks)
    }
    fn ticks(self) -> u64 {
        self.0
    }
}

impl From<Nanos> for Time {
    /// Beyond 213 days, [`Time::NEVER`].
    fn from(time: Nanos) -> Self {
        Self(time.0.saturating_mul(PICOS))
    }
}

impl Add for Time {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl Sub for Time {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0 - other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_between_two_nanoseconds_is_told_as_either() {
        let frame = Time(123_040);
        assert_eq!((frame.floor(), frame.ceil()), (Nanos(123), Nanos(124)));
        assert_eq!(Time::from(Nanos(123)).ceil(), Nanos(123));
        assert_eq!(Time::from(Nanos::MAX), Time::NEVER);
    }
}

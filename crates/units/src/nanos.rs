//! Time in nanoseconds.

use crate::parse::{Form, quantity};
use std::ops::{Add, AddAssign, Sub};
use std::time::Duration;

/// A moment or a length of time, in nanoseconds.
///
/// A moment counts from the zero of its clock: the packet loop uses `CLOCK_MONOTONIC`, a simulation
/// its own clock. 64 bits last 584 years.
///
/// `+` panics on overflow in debug builds, as for integers. Use the `saturating_` methods for
/// values from outside.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);

const FORM: Form = Form {
    units: &[
        ("s", 1_000_000_000),
        ("ms", 1_000_000),
        ("us", 1_000),
        ("ns", 1),
    ],
    spellings: &[
        ("h", 3_600_000_000_000),
        ("min", 60_000_000_000),
        ("sec", 1_000_000_000),
        ("second", 1_000_000_000),
        ("seconds", 1_000_000_000),
        ("msec", 1_000_000),
        // The micro sign and the Greek letter look alike.
        ("\u{b5}s", 1_000),
        ("\u{3bc}s", 1_000),
        ("usec", 1_000),
        ("nsec", 1),
    ],
    any_case: &[],
    doubtful: &[
        ("m", &[(1, "min"), (1, "ms")]),
        ("mins", &[(1, "min")]),
        ("S", &[(1, "s")]),
        ("MS", &[(1, "ms")]),
    ],
    smallest: "nanoseconds",
    example: "10ms",
};
quantity!(Nanos, FORM);

impl Nanos {
    /// The zero of a clock, and a length of zero.
    pub const ZERO: Self = Self(0);
    /// The end of time: later than any real moment.
    pub const MAX: Self = Self(u64::MAX);

    /// `micros` microseconds.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros * 1_000)
    }
    /// `millis` milliseconds.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis * 1_000_000)
    }
    /// `secs` seconds.
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs * 1_000_000_000)
    }
    /// The count of nanoseconds.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }
    /// Milliseconds, for printing.
    pub fn as_millis_f64(self) -> f64 {
        self.0 as f64 / 1e6
    }
    /// Seconds, for printing and for rates that are printed.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }
    /// The time since `earlier`, zero if that is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }
    /// The sum, at most [`Nanos::MAX`].
    #[must_use]
    pub const fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
    /// The difference, at least zero.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Add for Nanos {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}
impl AddAssign for Nanos {
    fn add_assign(&mut self, other: Self) {
        self.0 += other.0;
    }
}
impl Sub for Nanos {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0 - other.0)
    }
}
impl From<Nanos> for Duration {
    fn from(nanos: Nanos) -> Self {
        Self::from_nanos(nanos.0)
    }
}
impl From<Duration> for Nanos {
    /// Durations beyond 584 years become [`Nanos::MAX`].
    fn from(duration: Duration) -> Self {
        Self(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
    }
}

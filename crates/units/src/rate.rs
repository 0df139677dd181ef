//! Rates in bits a second.

use crate::parse::{Form, quantity};
use crate::{Bytes, Nanos};
use std::iter::Sum;
use std::ops::{Add, AddAssign, Sub, SubAssign};

/// The [`Work`](crate::exact::Work) of a byte for ticks of a nanosecond: 8 bits times 10^9.
pub const BYTE_IN_NANOS: u64 = 8_000_000_000;

/// A rate in bits a second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(pub u64);

const TERA: u64 = 1_000_000_000_000;

const FORM: Form = Form {
    units: &[
        ("Gbit/s", 1_000_000_000),
        ("Mbit/s", 1_000_000),
        ("kbit/s", 1_000),
        ("bit/s", 1),
    ],
    // `100M` is what iperf3 and most configurations have. `10Mbps` and `10Mb/s` are megabits to
    // all, but `10mbps` is megabytes to tc, and `10MB/s` to everybody.
    spellings: &[
        ("T", TERA),
        ("G", 1_000_000_000),
        ("M", 1_000_000),
        ("k", 1_000),
        ("K", 1_000),
        ("Tbps", TERA),
        ("Gbps", 1_000_000_000),
        ("Mbps", 1_000_000),
        ("kbps", 1_000),
        ("bps", 1),
        ("Tb/s", TERA),
        ("Gb/s", 1_000_000_000),
        ("Mb/s", 1_000_000),
        ("kb/s", 1_000),
    ],
    // A bit in full leaves no doubt: tc has `10mbit`.
    any_case: &[
        ("Tbit/s", TERA),
        ("Gbit/s", 1_000_000_000),
        ("Mbit/s", 1_000_000),
        ("kbit/s", 1_000),
        ("bit/s", 1),
        ("Tbit", TERA),
        ("Gbit", 1_000_000_000),
        ("Mbit", 1_000_000),
        ("kbit", 1_000),
        ("bit", 1),
    ],
    doubtful: &[
        ("mbps", &[(1, "Mbit/s"), (8, "Mbit/s")]),
        ("gbps", &[(1, "Gbit/s"), (8, "Gbit/s")]),
        ("Mb", &[(1, "Mbit/s")]),
        ("Gb", &[(1, "Gbit/s")]),
        ("kb", &[(1, "kbit/s")]),
        ("MB/s", &[(8, "Mbit/s")]),
        ("GB/s", &[(8, "Gbit/s")]),
        ("KB/s", &[(8, "kbit/s")]),
        ("kB/s", &[(8, "kbit/s")]),
        ("MBps", &[(8, "Mbit/s")]),
        ("GBps", &[(8, "Gbit/s")]),
        ("m", &[(1, "Mbit/s")]),
        ("g", &[(1, "Gbit/s")]),
    ],
    smallest: "bits a second",
    example: "100Mbit/s",
};
quantity!(Rate, FORM);

impl Rate {
    /// A rate of zero.
    pub const ZERO: Self = Self(0);
    /// More than any link has.
    pub const MAX: Self = Self(u64::MAX);

    /// `mbit` million bits a second.
    pub const fn from_mbit(mbit: u64) -> Self {
        Self(mbit * 1_000_000)
    }
    /// The count of bits a second.
    pub const fn as_bit_s(self) -> u64 {
        self.0
    }
    /// The time of `bytes`, rounded up: traffic with this spacing never exceeds the rate.
    /// [`Nanos::MAX`] at rate zero.
    pub const fn time_for(self, bytes: Bytes) -> Nanos {
        if self.0 == 0 {
            return Nanos::MAX;
        }
        let nanos = (bytes.0 as u128 * BYTE_IN_NANOS as u128).div_ceil(self.0 as u128);
        if nanos > u64::MAX as u128 {
            Nanos::MAX
        } else {
            Nanos(nanos as u64)
        }
    }
    /// The number of whole bytes in `time`, rounded down.
    pub const fn bytes_in(self, time: Nanos) -> Bytes {
        let bytes = self.0 as u128 * time.0 as u128 / BYTE_IN_NANOS as u128;
        if bytes > u64::MAX as u128 {
            Bytes(u64::MAX)
        } else {
            Bytes(bytes as u64)
        }
    }
    /// This rate's `percent` hundredths, rounded down.
    #[must_use]
    pub const fn percent(self, percent: u64) -> Self {
        Self((self.0 as u128 * percent as u128 / 100) as u64)
    }
    /// The sum, at most [`Rate::MAX`].
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

impl Add for Rate {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}
impl AddAssign for Rate {
    fn add_assign(&mut self, other: Self) {
        self.0 += other.0;
    }
}
impl Sub for Rate {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0 - other.0)
    }
}
impl SubAssign for Rate {
    fn sub_assign(&mut self, other: Self) {
        self.0 -= other.0;
    }
}
impl Sum for Rate {
    fn sum<I: Iterator<Item = Self>>(rates: I) -> Self {
        rates.fold(Self::ZERO, Add::add)
    }
}

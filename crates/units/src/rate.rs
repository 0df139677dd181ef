//! Rates in bits a second.

use crate::parse::{Form, quantity};
use crate::{Bytes, Nanos};

/// A rate in bits a second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(pub u64);

const FORM: Form = Form {
    units: &[
        ("Gbit/s", 1_000_000_000),
        ("Mbit/s", 1_000_000),
        ("kbit/s", 1_000),
        ("bit/s", 1),
    ],
    smallest: "bits a second",
    example: "100Mbit/s",
};
quantity!(Rate, FORM);

/// Nanoseconds times bits in a second's worth of bytes.
const NANOBITS_PER_BYTE: u128 = 8_000_000_000;

impl Rate {
    /// `mbit` million bits a second.
    pub const fn from_mbit(mbit: u64) -> Self {
        Self(mbit * 1_000_000)
    }
    /// The count of bits a second.
    pub const fn as_bit_s(self) -> u64 {
        self.0
    }
    /// How long `bytes` take, rounded up: what is sent at this spacing never
    /// exceeds the rate. [`Nanos::MAX`] at rate zero.
    pub const fn time_for(self, bytes: Bytes) -> Nanos {
        if self.0 == 0 {
            return Nanos::MAX;
        }
        let nanos = (bytes.0 as u128 * NANOBITS_PER_BYTE).div_ceil(self.0 as u128);
        if nanos > u64::MAX as u128 {
            Nanos::MAX
        } else {
            Nanos(nanos as u64)
        }
    }
    /// How many whole bytes pass in `time`, rounded down.
    pub const fn bytes_in(self, time: Nanos) -> Bytes {
        let bytes = self.0 as u128 * time.0 as u128 / NANOBITS_PER_BYTE;
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
}

//! Sizes in bytes.

use crate::parse::{Form, quantity};
use std::ops::{Add, AddAssign, Sub, SubAssign};

/// A number of bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub u64);

const FORM: Form = Form {
    units: &[
        ("GB", 1_000_000_000),
        ("GiB", 1 << 30),
        ("MB", 1_000_000),
        ("MiB", 1 << 20),
        ("KB", 1_000),
        ("KiB", 1 << 10),
        ("B", 1),
    ],
    smallest: "bytes",
    example: "1.5KB",
};
quantity!(Bytes, FORM);

impl Bytes {
    /// No bytes.
    pub const ZERO: Self = Self(0);

    /// The count of bytes.
    pub const fn as_u64(self) -> u64 {
        self.0
    }
    /// The sum, at most 2^64 - 1.
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

impl Add for Bytes {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}
impl AddAssign for Bytes {
    fn add_assign(&mut self, other: Self) {
        self.0 += other.0;
    }
}
impl Sub for Bytes {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0 - other.0)
    }
}
impl SubAssign for Bytes {
    fn sub_assign(&mut self, other: Self) {
        self.0 -= other.0;
    }
}

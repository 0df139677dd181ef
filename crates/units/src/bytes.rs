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
    spellings: &[
        ("kB", 1_000),
        ("TB", 1_000_000_000_000),
        ("TiB", 1 << 40),
        ("byte", 1),
        ("bytes", 1),
    ],
    any_case: &[],
    // A K alone is 1000 to some and 1024 to others; a small b is a bit to some.
    doubtful: &[
        ("k", &[(1, "KB"), (1, "KiB")]),
        ("K", &[(1, "KB"), (1, "KiB")]),
        ("m", &[(1, "MB"), (1, "MiB")]),
        ("M", &[(1, "MB"), (1, "MiB")]),
        ("g", &[(1, "GB"), (1, "GiB")]),
        ("G", &[(1, "GB"), (1, "GiB")]),
        ("kb", &[(1, "KB"), (1, "KiB")]),
        ("Kb", &[(1, "KB"), (1, "KiB")]),
        ("mb", &[(1, "MB"), (1, "MiB")]),
        ("Mb", &[(1, "MB"), (1, "MiB")]),
        ("gb", &[(1, "GB"), (1, "GiB")]),
        ("Gb", &[(1, "GB"), (1, "GiB")]),
        ("kib", &[(1, "KiB")]),
        ("mib", &[(1, "MiB")]),
        ("gib", &[(1, "GiB")]),
        ("b", &[(1, "B")]),
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

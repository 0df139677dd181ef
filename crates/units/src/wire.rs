//! Lengths and positions on a wire.

use crate::Bytes;
use std::ops::{Add, AddAssign, Div, Mul, Sub, SubAssign};

/// A length on a wire in bytes: preamble, FCS and inter-frame gap included.
///
/// A frame's own length is a `usize`, and a configured length is [`Bytes`]; both become a length on
/// the wire only by an explicit conversion.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct WireBytes(pub u64);

/// A position on a wire: the number of a byte since the wire's clock started.
///
/// A position is a moment in the wire's own time, so two positions have a difference
/// ([`WireBytes`]) and no sum.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Position(pub u64);

impl WireBytes {
    /// No length.
    pub const ZERO: Self = Self(0);
    /// Longer than any real length.
    pub const MAX: Self = Self(u64::MAX);

    /// The count of bytes.
    #[inline]
    pub const fn as_u64(self) -> u64 {
        self.0
    }
    /// The difference, at least zero.
    #[inline]
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Position {
    /// The first byte.
    pub const ZERO: Self = Self(0);
    /// Later than any real position.
    pub const NEVER: Self = Self(u64::MAX);

    /// The number of the byte.
    #[inline]
    pub const fn as_u64(self) -> u64 {
        self.0
    }
    /// The length since `earlier`, zero if that is later.
    #[inline]
    pub const fn since(self, earlier: Self) -> WireBytes {
        WireBytes(self.0.saturating_sub(earlier.0))
    }
    /// The length since `earlier`, `None` if that is later.
    #[inline]
    pub fn checked_since(self, earlier: Self) -> Option<WireBytes> {
        self.0.checked_sub(earlier.0).map(WireBytes)
    }
    /// The position `length` later, at most [`Position::NEVER`].
    #[inline]
    #[must_use]
    pub const fn saturating_add(self, length: WireBytes) -> Self {
        Self(self.0.saturating_add(length.0))
    }
    /// The position `length` earlier, at least [`Position::ZERO`].
    #[inline]
    #[must_use]
    pub const fn saturating_sub(self, length: WireBytes) -> Self {
        Self(self.0.saturating_sub(length.0))
    }
}

/// Converts a number of bytes that all count on the wire.
impl From<Bytes> for WireBytes {
    #[inline]
    fn from(bytes: Bytes) -> Self {
        Self(bytes.0)
    }
}
impl From<WireBytes> for Bytes {
    #[inline]
    fn from(length: WireBytes) -> Self {
        Self(length.0)
    }
}

impl Add for WireBytes {
    type Output = Self;
    #[inline]
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}
impl AddAssign for WireBytes {
    #[inline]
    fn add_assign(&mut self, other: Self) {
        self.0 += other.0;
    }
}
impl Sub for WireBytes {
    type Output = Self;
    #[inline]
    fn sub(self, other: Self) -> Self {
        Self(self.0 - other.0)
    }
}
impl SubAssign for WireBytes {
    #[inline]
    fn sub_assign(&mut self, other: Self) {
        self.0 -= other.0;
    }
}
impl Mul<u64> for WireBytes {
    type Output = Self;
    #[inline]
    fn mul(self, times: u64) -> Self {
        Self(self.0 * times)
    }
}
/// Rounded down.
impl Div<u64> for WireBytes {
    type Output = Self;
    #[inline]
    fn div(self, parts: u64) -> Self {
        Self(self.0 / parts)
    }
}

impl Add<WireBytes> for Position {
    type Output = Self;
    #[inline]
    fn add(self, length: WireBytes) -> Self {
        Self(self.0 + length.0)
    }
}
impl AddAssign<WireBytes> for Position {
    #[inline]
    fn add_assign(&mut self, length: WireBytes) {
        self.0 += length.0;
    }
}
impl Sub<WireBytes> for Position {
    type Output = Self;
    #[inline]
    fn sub(self, length: WireBytes) -> Self {
        Self(self.0 - length.0)
    }
}
impl Sub for Position {
    type Output = WireBytes;
    #[inline]
    fn sub(self, earlier: Self) -> WireBytes {
        WireBytes(self.0 - earlier.0)
    }
}

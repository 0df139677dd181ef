//! Sequence numbers, which wrap after 2^32 (RFC 9293, 3.4).

use std::ops::{Add, Sub};

/// A sequence number. Comparisons assume that two numbers are within 2^31 of each other.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Seq(pub u32);

impl Seq {
    /// Checks whether this number comes before another.
    #[inline]
    pub const fn is_before(self, other: Self) -> bool {
        self.0.wrapping_sub(other.0).cast_signed() < 0
    }

    /// Checks whether this number comes after another.
    #[inline]
    pub const fn is_after(self, other: Self) -> bool {
        other.is_before(self)
    }

    /// Returns the bytes from `earlier` to this number.
    #[inline]
    pub const fn since(self, earlier: Self) -> u32 {
        self.0.wrapping_sub(earlier.0)
    }

    /// Returns the later of two numbers.
    #[inline]
    #[must_use]
    pub const fn latest(self, other: Self) -> Self {
        if self.is_before(other) { other } else { self }
    }

    /// Returns the earlier of two numbers.
    #[inline]
    #[must_use]
    pub const fn earliest(self, other: Self) -> Self {
        if self.is_before(other) { self } else { other }
    }
}

impl Add<u32> for Seq {
    type Output = Self;

    #[inline]
    fn add(self, bytes: u32) -> Self {
        Self(self.0.wrapping_add(bytes))
    }
}

impl Sub<u32> for Seq {
    type Output = Self;

    #[inline]
    fn sub(self, bytes: u32) -> Self {
        Self(self.0.wrapping_sub(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequence_numbers_keep_their_order_across_a_wrap() {
        let last = Seq(u32::MAX);
        assert!(last.is_before(last + 1));
        assert_eq!((last + 2).since(last), 2);
        assert_eq!(last.latest(last + 5), Seq(4));
        assert_eq!(last.earliest(Seq(4)), last);
        assert_eq!(Seq(1) - 2, last);
    }
}

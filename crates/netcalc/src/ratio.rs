//! Exact fractions that refuse to overflow.

use std::cmp::Ordering;
use tailbound_units::{Bytes, Nanos, Rate};

/// A result needs more than 127 bits.
///
/// No result is rounded or wrapped instead: the caller gets no bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the exact result does not fit in 128 bits")]
pub struct Overflow;

/// An exact fraction: a time in nanoseconds, a rate in bits a second, or their
/// product, an amount of data in nanobits (a billionth of a bit).
///
/// In these units all parameters of a network are whole numbers, and sums, scalings and shifts of
/// curves stay whole; only a division makes a denominator. Whole numbers need no division, so the
/// check of a port costs a few multiplications.
///
/// Always in lowest terms with a positive denominator, hence equal exactly when
/// the fields are. Comparison is exact and never overflows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ratio {
    numerator: i128,
    denominator: i128,
}

/// Nanobits in a byte.
const NANOBITS_PER_BYTE: i128 = 8_000_000_000;

impl Ratio {
    /// The number zero.
    pub const ZERO: Self = Self::whole(0);

    /// A whole number.
    pub const fn whole(value: i128) -> Self {
        Self {
            numerator: value,
            denominator: 1,
        }
    }

    /// `numerator / denominator`.
    ///
    /// # Errors
    /// The denominator is zero, or the fraction in lowest terms does not fit.
    pub fn new(numerator: i128, denominator: i128) -> Result<Self, Overflow> {
        Self::whole(numerator).over(Self::whole(denominator))
    }

    /// The numerator in lowest terms.
    pub const fn numerator(self) -> i128 {
        self.numerator
    }

    /// The denominator in lowest terms, above zero.
    pub const fn denominator(self) -> i128 {
        self.denominator
    }

    /// Returns whether this is below zero.
    pub const fn is_negative(self) -> bool {
        self.numerator < 0
    }

    /// The sum.
    pub fn plus(self, other: Self) -> Result<Self, Overflow> {
        if self.denominator == 1 && other.denominator == 1 {
            let sum = self.numerator.checked_add(other.numerator);
            return sum.map(Self::whole).ok_or(Overflow);
        }
        let common = gcd(self.denominator, other.denominator);
        let (ours, theirs) = (other.denominator / common, self.denominator / common);
        let sum = product(self.numerator, ours)?
            .checked_add(product(other.numerator, theirs)?)
            .ok_or(Overflow)?;
        // Only a factor of `common` can be left in both.
        let rest = gcd(sum, common);
        Ok(Self {
            numerator: sum / rest,
            denominator: product(self.denominator / rest, ours)?,
        })
    }

    /// The difference.
    pub fn minus(self, other: Self) -> Result<Self, Overflow> {
        self.plus(Self {
            numerator: other.numerator.checked_neg().ok_or(Overflow)?,
            denominator: other.denominator,
        })
    }

    /// The product.
    pub fn times(self, other: Self) -> Result<Self, Overflow> {
        if self.denominator == 1 && other.denominator == 1 {
            return product(self.numerator, other.numerator).map(Self::whole);
        }
        let left = gcd(self.numerator, other.denominator);
        let right = gcd(other.numerator, self.denominator);
        Ok(Self {
            numerator: product(self.numerator / left, other.numerator / right)?,
            denominator: product(self.denominator / right, other.denominator / left)?,
        })
    }

    /// The quotient.
    ///
    /// # Errors
    /// `other` is zero, or the quotient does not fit.
    pub fn over(self, other: Self) -> Result<Self, Overflow> {
        if other.numerator == 0 {
            return Err(Overflow);
        }
        let sign = other.numerator.signum();
        let inverse = Self {
            numerator: product(other.denominator, sign)?,
            denominator: product(other.numerator, sign)?,
        };
        self.times(inverse)
    }

    /// The smallest multiple of `1 / parts` that is not below this; `parts` is
    /// above zero.
    ///
    /// Rounding a burst or a delay up keeps a bound a bound, and keeps
    /// denominators from growing along a path.
    pub fn round_up(self, parts: i128) -> Result<Self, Overflow> {
        if self.denominator == 1 {
            return Ok(self);
        }
        let scaled = self.times(Self::whole(parts))?;
        Self::new(scaled.ceil(), parts)
    }

    /// The smallest whole number that is not below this.
    pub fn ceil(self) -> i128 {
        let floor = self.numerator.div_euclid(self.denominator);
        floor + i128::from(self.numerator.rem_euclid(self.denominator) != 0)
    }

    /// This time in whole nanoseconds, rounded up.
    ///
    /// # Errors
    /// The time is negative or above 584 years.
    pub fn to_nanos(self) -> Result<Nanos, Overflow> {
        u64::try_from(self.ceil()).map(Nanos).map_err(|_| Overflow)
    }

    /// This amount of data in whole bytes, rounded up.
    ///
    /// # Errors
    /// The amount is negative or above 2^64 - 1 bytes.
    pub fn to_bytes(self) -> Result<Bytes, Overflow> {
        let bytes = self.over(Self::whole(NANOBITS_PER_BYTE))?.ceil();
        u64::try_from(bytes).map(Bytes).map_err(|_| Overflow)
    }

    /// `a / b` against `c / d`, with `b` and `d` above zero.
    pub(crate) fn compare(a: Self, b: Self, c: Self, d: Self) -> Result<Ordering, Overflow> {
        // Two products are far cheaper than two divisions, and nearly always fit.
        match (a.times(d), c.times(b)) {
            (Ok(left), Ok(right)) => Ok(left.cmp(&right)),
            _ => Ok(a.over(b)?.cmp(&c.over(d)?)),
        }
    }
}

impl From<Nanos> for Ratio {
    fn from(time: Nanos) -> Self {
        Self::whole(i128::from(time.0))
    }
}

impl From<Rate> for Ratio {
    fn from(rate: Rate) -> Self {
        Self::whole(i128::from(rate.0))
    }
}

impl From<Bytes> for Ratio {
    /// In nanobits: 2^64 bytes are below 2^97.
    fn from(size: Bytes) -> Self {
        Self::whole(i128::from(size.0) * NANOBITS_PER_BYTE)
    }
}

impl Ord for Ratio {
    fn cmp(&self, other: &Self) -> Ordering {
        if self.denominator == other.denominator {
            return self.numerator.cmp(&other.numerator);
        }
        if let (Some(left), Some(right)) = (
            self.numerator.checked_mul(other.denominator),
            other.numerator.checked_mul(self.denominator),
        ) {
            return left.cmp(&right);
        }
        by_continued_fraction(*self, *other)
    }
}

impl PartialOrd for Ratio {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Compares whole parts, then the inverses of what is left, as Euclid does: no
/// product is needed.
fn by_continued_fraction(left: Ratio, right: Ratio) -> Ordering {
    let (mut a, mut b) = (left.numerator, left.denominator);
    let (mut c, mut d) = (right.numerator, right.denominator);
    let mut turned = false;
    loop {
        let whole = a.div_euclid(b).cmp(&c.div_euclid(d));
        let (rest, other) = (a.rem_euclid(b), c.rem_euclid(d));
        let found = match whole {
            Ordering::Equal if rest == 0 || other == 0 => rest.cmp(&other),
            Ordering::Equal => {
                (a, b, c, d) = (b, rest, d, other);
                turned = !turned;
                continue;
            }
            unequal => unequal,
        };
        return if turned { found.reverse() } else { found };
    }
}

fn product(a: i128, b: i128) -> Result<i128, Overflow> {
    a.checked_mul(b).ok_or(Overflow)
}

/// The greatest common divisor of `a` and a positive `b`, above zero.
fn gcd(a: i128, b: i128) -> i128 {
    let (mut a, mut b) = (a.unsigned_abs(), b.unsigned_abs());
    // 128-bit divisions are several times slower than those of 64 bits.
    while b > u128::from(u64::MAX) || a > u128::from(u64::MAX) {
        if b == 0 {
            break;
        }
        (a, b) = (b, a % b);
    }
    match (u64::try_from(a), u64::try_from(b)) {
        (Ok(mut a), Ok(mut b)) => {
            while b != 0 {
                (a, b) = (b, a % b);
            }
            i128::from(a)
        }
        // Not above the positive argument, which is an i128.
        _ => i128::try_from(a).unwrap_or(i128::MAX),
    }
}

#[cfg(test)]
mod tests;

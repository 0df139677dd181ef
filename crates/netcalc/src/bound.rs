//! Bounds, which may not exist.

use crate::ratio::Ratio;

/// A bound, or its absence. Smaller bounds compare as less.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bound {
    /// The value never exceeds this number.
    Finite(Ratio),
    /// More traffic arrives than is served, so no bound exists.
    Unbounded,
}

impl Bound {
    /// Returns the bound if it exists.
    pub fn finite(self) -> Option<Ratio> {
        match self {
            Self::Finite(bound) => Some(bound),
            Self::Unbounded => None,
        }
    }
}

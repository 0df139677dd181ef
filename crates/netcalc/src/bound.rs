//! Bounds, which there may not be.

use crate::ratio::Ratio;

/// A bound, if there is one. A smaller one compares as less.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bound {
    /// It is never more than this.
    Finite(Ratio),
    /// More comes than is served: there is no bound.
    Unbounded,
}

impl Bound {
    /// The bound, if there is one.
    pub fn finite(self) -> Option<Ratio> {
        match self {
            Self::Finite(bound) => Some(bound),
            Self::Unbounded => None,
        }
    }
}

//! Sizes of the steps of work on all guests.

use std::ops::Range;

/// The cost of a changed guest; that of an unchanged one is 1.
pub(super) const CHANGED: usize = 8;

/// Returns the range of the next step: at most `most` of `count` guests, starting at `from`.
pub(super) fn some(from: usize, count: usize, most: usize) -> Range<usize> {
    from.min(count)..count.min(from.saturating_add(most))
}

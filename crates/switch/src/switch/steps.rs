//! How much of what takes as many steps as there are guests is done at once.

use std::ops::Range;

/// What a guest takes of a step, which is 1 for one of which nothing changes.
pub(super) const CHANGED: usize = 8;

/// So many guests of those from one on: what of `count` a step takes that does `most`.
pub(super) fn some(from: usize, count: usize, most: usize) -> Range<usize> {
    from.min(count)..count.min(from.saturating_add(most))
}

//! Memory of emptied queues.

use std::collections::VecDeque;

/// Unused memory of a queue, in the order of urgency.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Spare {
    /// None, or a negligible amount.
    Nothing,
    /// Memory that was in use since the last call and may be needed again soon: call again later.
    InUse,
    /// Some memory was just freed: call again soon.
    More,
}

/// Number of places that one call frees: 2 MB of frames.
const PLACES: usize = 16 * 1024;

/// Frees the last places of a slab, all of which are unused.
pub(crate) fn shrink<T>(places: &mut Vec<T>) -> Spare {
    if places.capacity() == 0 {
        return Spare::Nothing;
    }
    places.truncate(places.len().saturating_sub(PLACES));
    places.shrink_to_fit();
    Spare::More
}

/// Frees places of a list, if it is empty.
pub(crate) fn shrink_list<T>(list: &mut VecDeque<T>) -> Spare {
    if !list.is_empty() {
        return Spare::InUse;
    }
    if list.capacity() == 0 {
        return Spare::Nothing;
    }
    list.shrink_to(list.capacity().saturating_sub(PLACES));
    Spare::More
}

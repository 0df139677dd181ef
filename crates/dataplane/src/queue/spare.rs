//! Memory that nothing waits in any more.

use std::collections::VecDeque;

/// What is held of memory beside what waits in it, in the order of what is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Spare {
    /// Nothing to speak of.
    Nothing,
    /// Something that may be needed again soon, as it was used since it was asked for last:
    /// worth a look later.
    InUse,
    /// Some was freed just now: worth another look at once.
    More,
}

/// So many places are freed at once: 2 MB of frames.
const PLACES: usize = 16 * 1024;

/// Frees the last of a slab's places, all of which are unused.
pub(crate) fn shrink<T>(places: &mut Vec<T>) -> Spare {
    if places.capacity() == 0 {
        return Spare::Nothing;
    }
    places.truncate(places.len().saturating_sub(PLACES));
    places.shrink_to_fit();
    Spare::More
}

/// The same of a list, where nothing is in it.
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

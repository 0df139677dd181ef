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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_list_frees_its_places_in_steps_and_one_with_frames_keeps_them() {
        let mut list = VecDeque::with_capacity(2 * PLACES + 1);
        list.push_back(0);
        assert_eq!(shrink_list(&mut list), Spare::InUse);
        list.clear();
        for left in [PLACES + 1, 1, 0] {
            assert_eq!(shrink_list(&mut list), Spare::More);
            assert_eq!(list.capacity(), left);
        }
        assert_eq!(shrink_list(&mut list), Spare::Nothing);
    }
}

//! Finds nodes with enough free slots without looking at all of them.

use std::collections::BTreeSet;

/// A node with free slots, by its index. Nodes are ordered by their free slots, and those whose slots
/// are all free come last ([`Room::UNTOUCHED`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Room {
    pub(super) slots: u32,
    pub(super) index: u32,
}

impl Room {
    /// In place of the number of free slots, if all are free.
    const UNTOUCHED: u32 = u32::MAX;

    /// The first that nodes with these slots may be.
    const fn first(slots: u32) -> Self {
        Self { slots, index: 0 }
    }

    /// The next one in order.
    const fn successor(self) -> Self {
        Self {
            index: self.index + 1,
            ..self
        }
    }
}

/// Numbers in a row, the largest of each half, quarter, ..., and their order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Largest {
    /// A binary heap's shape: the values begin at `leaves`.
    values: Vec<u32>,
    leaves: usize,
    /// All above zero.
    ordered: BTreeSet<Room>,
}

impl Largest {
    pub(super) fn new(count: usize) -> Self {
        let leaves = count.next_power_of_two();
        Self {
            values: vec![0; 2 * leaves],
            leaves,
            ordered: BTreeSet::new(),
        }
    }

    /// Changes a number. With `is_untouched` it is the largest that this one may be.
    pub(super) fn set(&mut self, index: usize, value: u32, is_untouched: bool) {
        let mut at = self.leaves + index;
        let before = std::mem::replace(&mut self.values[at], value);
        if before == value {
            return;
        }
        let room = |slots| Room {
            slots,
            index: index as u32,
        };
        if !self.ordered.remove(&room(before)) {
            self.ordered.remove(&room(Room::UNTOUCHED));
        }
        if value > 0 {
            let slots = if is_untouched { Room::UNTOUCHED } else { value };
            self.ordered.insert(room(slots));
        }
        while at > 1 {
            at /= 2;
            let largest = self.values[2 * at].max(self.values[2 * at + 1]);
            if self.values[at] == largest {
                return;
            }
            self.values[at] = largest;
        }
    }

    /// Returns the number after another in ascending order that is at least `least`, which is above zero.
    /// Untouched ones come last, in the order of their indices.
    pub(super) fn next_tightest(&self, after: Option<Room>, least: u32) -> Option<Room> {
        let from = after.map_or(Room::first(least), Room::successor);
        let mut rooms = self.ordered.range(from..).copied();
        rooms.find(|room| self.values[self.leaves + room.index as usize] >= least)
    }

    /// Returns the number behind another in a row that is at least `least`, which is above zero.
    pub(super) fn next_room(&self, after: Option<Room>, least: u32) -> Option<Room> {
        let from = after.map_or(0, |room| room.index as usize + 1);
        let index = self.next(from, least)?;
        Some(Room {
            slots: self.values[self.leaves + index],
            index: index as u32,
        })
    }

    /// Returns the first index from `from` on whose value is at least `least`, which is above zero.
    pub(super) fn next(&self, from: usize, least: u32) -> Option<usize> {
        if from >= self.leaves {
            return None;
        }
        let mut at = self.leaves + from;
        // Up, past subtrees that are too small, then down to the left.
        while self.values[at] < least {
            while at % 2 == 1 {
                at /= 2;
            }
            // Only the right edge leads back to the root.
            if at == 0 {
                return None;
            }
            at += 1;
        }
        while at < self.leaves {
            at *= 2;
            if self.values[at] < least {
                at += 1;
            }
        }
        Some(at - self.leaves)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn all_that_are_large_enough_come_in_order(
            changes in proptest::collection::vec((0_usize..12, 0_u32..5), 1..60),
            least in 1_u32..6,
        ) {
            let mut index = Largest::new(12);
            let mut values = [0; 12];
            for (at, value) in changes {
                index.set(at, value, value == 4);
                values[at] = value;
            }
            let all = |next: &dyn Fn(Option<Room>) -> Option<Room>| {
                let rooms = std::iter::successors(next(None), |last| next(Some(*last)));
                rooms.map(|room| room.index as usize).collect::<Vec<_>>()
            };
            let mut expected: Vec<_> = (0..12).filter(|at| values[*at] >= least).collect();
            prop_assert_eq!(all(&|last| index.next_room(last, least)), expected.clone());
            expected.sort_by_key(|at| if values[*at] == 4 { 0 } else { values[*at] });
            expected.sort_by_key(|at| values[*at] == 4);
            prop_assert_eq!(all(&|last| index.next_tightest(last, least)), expected);
        }

        #[test]
        fn the_first_large_enough_one_is_found(
            values in proptest::collection::vec(0_u32..5, 1..40),
            from in 0_usize..45,
            least in 1_u32..6,
        ) {
            let mut index = Largest::new(values.len());
            for (at, value) in values.iter().enumerate() {
                index.set(at, *value, false);
            }
            let expected = (from..values.len()).find(|at| values[*at] >= least);
            prop_assert_eq!(index.next(from, least), expected);
        }
    }
}

//! Turns of a guest's released lines.
//!
//! Deficit round robin (Shreedhar and Varghese, SIGCOMM 1995), in which a line may send while its
//! deficit is above zero, so that a frame's length need not be known before it is charged. In a
//! round, a line may send its weight, relative to the mean of those in the round, times a longest
//! frame: a round of n lines passes on n frames, so a frame costs a check of one line, as long as
//! frames are full. A search for the line whose turn it is checks each line at most once: one whose
//! weight is at least the mean may send. Frames without a search pay for those with one: in
//! addition to the check of its own line, a frame costs one check, and n lines cost 3n in total.

use super::config::MAX_RATIO;
use super::index::{Index, Table};
use super::line::Line;
use tailbound_units::{Rate, WireBytes};

/// Units of deficits in a byte, a power of two: at least the maximum ratio of two lines' weights,
/// so that no line's part is rounded to zero.
const PARTS: u64 = MAX_RATIO.next_power_of_two();

/// Weight of a line in a round: its rate in parts of the link's.
pub(super) fn weight(rate: Rate, link: Rate) -> u32 {
    const LINK: u128 = MAX_RATIO as u128;
    let parts = u128::from(rate.0) * LINK / u128::from(link.0);
    parts.clamp(1, LINK) as u32
}

/// Cost of a frame in a line's deficit.
#[inline(always)]
pub(super) const fn of_deficit(wire: WireBytes) -> i64 {
    (wire.0 * PARTS).cast_signed()
}

/// Successor of each line in the rounds, by number; undefined for the last.
#[derive(Debug)]
pub(super) struct Links<I>(Table<I, I>);

impl<I: Index> Links<I> {
    /// Creates the order of no line.
    pub(super) const fn new() -> Self {
        Self(Table::new())
    }

    /// Makes room for all numbers below `count`.
    pub(super) fn reserve(&mut self, count: usize) {
        self.0.reserve(count, I::NONE);
    }

    #[inline(always)]
    fn after(&self, index: I) -> I {
        self.0[index]
    }

    #[inline(always)]
    fn set(&mut self, index: I, after: I) {
        self.0[index] = after;
    }
}

/// A member of a round.
pub(super) trait Member {
    /// Its part of a round, relative to the others.
    fn weight(&self) -> u32;

    /// Bytes that it may send in its turn, in parts of a byte.
    fn deficit(&mut self) -> &mut i64;

    /// Checks whether it is known to have exactly one frame.
    fn has_one(&self) -> bool;
}

impl Member for Line {
    #[inline(always)]
    fn weight(&self) -> u32 {
        self.weight
    }

    #[inline(always)]
    fn deficit(&mut self) -> &mut i64 {
        &mut self.deficit
    }

    #[inline(always)]
    fn has_one(&self) -> bool {
        self.has_one()
    }
}

/// The released lines of a guest, or entries of a subtree, in the order of their turns.
#[derive(Debug)]
pub(super) struct Round<I> {
    /// The first and the last line; undefined in an empty round.
    head: I,
    tail: I,
    len: u32,
    /// The sum of the lines' weights.
    weight: u64,
}

impl<I: Index> Round<I> {
    pub(super) const EMPTY: Self = Self {
        head: I::NONE,
        tail: I::NONE,
        len: 0,
        weight: 0,
    };

    pub(super) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Checks whether the round has exactly one line.
    pub(super) const fn is_of_one(&self) -> bool {
        self.len == 1
    }

    /// Returns the lines in the order of their turns.
    pub(super) fn lines(&self, order: &Links<I>) -> impl Iterator<Item = I> {
        let first = (self.len > 0).then_some(self.head);
        std::iter::successors(first, |&index| Some(order.after(index))).take(self.len as usize)
    }

    /// Adds a line behind the others.
    #[inline(always)]
    pub(super) fn push(&mut self, order: &mut Links<I>, index: I, weight: u32) {
        if self.len == 0 {
            self.head = index;
        } else {
            order.set(self.tail, index);
        }
        self.tail = index;
        self.len += 1;
        self.weight += u64::from(weight);
    }

    /// Adds a line in front of the others.
    pub(super) fn push_front(&mut self, order: &mut Links<I>, index: I, weight: u32) {
        if self.len == 0 {
            self.tail = index;
        } else {
            order.set(index, self.head);
        }
        self.head = index;
        self.len += 1;
        self.weight += u64::from(weight);
    }

    /// Finds the line whose turn it is, and makes it the first.
    #[inline(always)]
    pub(super) fn turn<'l, M: Member>(
        &mut self,
        lines: &'l mut Table<I, M>,
        order: &mut Links<I>,
        longest: WireBytes,
    ) -> Option<(I, &'l mut M)> {
        if self.len == 0 {
            return None;
        }
        let head = self.head;
        let line = lines.get_mut(head)?;
        // In most cases it is the first line.
        if self.len == 1 || self.may_send(line, longest) {
            return Some((head, lines.get_mut(head)?));
        }
        let head = self.find_turn(lines, order, longest)?;
        Some((head, lines.get_mut(head)?))
    }

    /// Checks whether the first of several lines may send, after its part of a round is added to
    /// its deficit.
    #[inline(always)]
    fn may_send<M: Member>(&self, line: &mut M, longest: WireBytes) -> bool {
        // Any addition is enough for one frame, and the rest of its deficit is not used.
        if *line.deficit() > 0 || *line.deficit() == 0 && line.has_one() {
            return true;
        }
        // A line's part of the mean; some line's is at least one: it is at most the greatest.
        let part = u64::from(line.weight()) * u64::from(self.len);
        let relative = if part == self.weight {
            // In most cases all weights are equal: without a division.
            PARTS
        } else {
            part * PARTS / self.weight
        };
        *line.deficit() += (relative * longest.0).cast_signed();
        *line.deficit() > 0
    }

    /// Makes the line whose turn it is the first, if it is not, and returns it.
    #[inline(never)]
    fn find_turn<M: Member>(
        &mut self,
        lines: &mut Table<I, M>,
        order: &mut Links<I>,
        longest: WireBytes,
    ) -> Option<I> {
        loop {
            self.rotate(order);
            let line = lines.get_mut(self.head)?;
            if self.may_send(line, longest) {
                return Some(self.head);
            }
        }
    }

    /// Ends the turn of the first line: it becomes the last.
    #[inline(always)]
    pub(super) fn rotate(&mut self, order: &mut Links<I>) {
        let index = self.head;
        // In this order, because it may be the last as well.
        order.set(self.tail, index);
        self.head = order.after(index);
        self.tail = index;
    }

    /// Removes the first line, which has this weight.
    #[inline(always)]
    pub(super) fn pop(&mut self, order: &Links<I>, weight: u32) {
        self.head = order.after(self.head);
        self.len -= 1;
        self.weight -= u64::from(weight);
    }

    /// Removes a line of this weight at any place.
    pub(super) fn remove(&mut self, order: &mut Links<I>, index: I, weight: u32) {
        self.len -= 1;
        self.weight -= u64::from(weight);
        if self.head == index {
            self.head = order.after(index);
            return;
        }
        let mut before = self.head;
        while order.after(before) != index {
            before = order.after(before);
        }
        if self.tail == index {
            self.tail = before;
        } else {
            order.set(before, order.after(index));
        }
    }

    /// Changes the weight of a line.
    pub(super) fn reweigh(&mut self, before: u32, after: u32) {
        self.weight = self.weight + u64::from(after) - u64::from(before);
    }
}

#[cfg(test)]
mod tests;

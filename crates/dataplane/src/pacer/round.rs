//! Whose turn it is: the released lines of one guest.
//!
//! Deficit round robin (Shreedhar and Varghese, SIGCOMM 1995), where a line may send
//! while its deficit is above zero, so that nobody looks at a frame's length before it
//! is charged. What a line may send in a round is to a longest frame as its weight is to
//! the mean of those in the round: a round of n lines hands over n frames, so a frame
//! costs a look at one line, as long as they are full. To find whose turn it is takes a
//! look at each line at most: one whose weight is at least the mean may send. And many
//! looks at once are paid for by frames that need none: beside the look at the line that it
//! is of, a frame takes one, and n lines 3n in all.

use super::config::{MAX_RATIO, PacerConfig};
use super::line::Line;
use super::store::NIL;
use tailbound_units::WireBytes;

/// Parts of a byte in which deficits are counted, a power of two: as many as the weight of
/// one line may be that of another, so that no share is nothing.
const PARTS: u64 = MAX_RATIO.next_power_of_two();

/// What a frame takes of a line's deficit.
#[inline(always)]
pub(super) const fn of_deficit(wire: WireBytes) -> i64 {
    (wire.0 * PARTS).cast_signed()
}

/// Which line is behind which in the rounds, by number; anything behind the last.
#[derive(Debug, Default)]
pub(super) struct Links(Vec<u32>);

impl Links {
    /// Makes room for all numbers below `count`.
    pub(super) fn reserve(&mut self, count: usize) {
        if self.0.len() < count {
            self.0.resize(count, NIL);
        }
    }

    #[inline(always)]
    fn after(&self, index: u32) -> u32 {
        self.0[index as usize]
    }

    #[inline(always)]
    fn set(&mut self, index: u32, after: u32) {
        self.0[index as usize] = after;
    }
}

/// The released lines of a guest, in the order of their turns.
#[derive(Debug)]
pub(super) struct Round {
    /// The first and the last; anything where there is none.
    head: u32,
    tail: u32,
    len: u32,
    /// The sum of their weights.
    weight: u64,
}

impl Round {
    pub(super) const EMPTY: Self = Self {
        head: NIL,
        tail: NIL,
        len: 0,
        weight: 0,
    };

    pub(super) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether no line takes turns with another.
    pub(super) const fn is_of_one(&self) -> bool {
        self.len == 1
    }

    /// Its lines, in the order of their turns.
    pub(super) fn lines(&self, order: &Links) -> impl Iterator<Item = u32> {
        let first = (self.len > 0).then_some(self.head);
        std::iter::successors(first, |&index| Some(order.after(index))).take(self.len as usize)
    }

    /// Adds a line behind the others.
    #[inline(always)]
    pub(super) fn push(&mut self, order: &mut Links, index: u32, weight: u32) {
        if self.len == 0 {
            self.head = index;
        } else {
            order.set(self.tail, index);
        }
        self.tail = index;
        self.len += 1;
        self.weight += u64::from(weight);
    }

    /// Finds the line whose turn it is, which is the first then.
    #[inline(always)]
    pub(super) fn turn<'l>(
        &mut self,
        lines: &'l mut [Line],
        order: &mut Links,
        config: &PacerConfig,
    ) -> Option<(u32, &'l mut Line)> {
        if self.len == 0 {
            return None;
        }
        let head = self.head;
        let line = lines.get_mut(head as usize)?;
        // Mostly it is that of the first.
        if self.len == 1 || self.may_send(line, config) {
            return Some((head, lines.get_mut(head as usize)?));
        }
        let head = self.find_turn(lines, order, config)?;
        Some((head, lines.get_mut(head as usize)?))
    }

    /// Whether the first line, one of several, may send, with what a round adds to what it
    /// may.
    #[inline(always)]
    fn may_send(&self, line: &mut Line, config: &PacerConfig) -> bool {
        // Whatever is added is enough for one, and nobody asks what is left.
        if line.deficit > 0 || line.deficit == 0 && line.has_one() {
            return true;
        }
        // A line's part of the mean, at least one for some: it is at most the greatest.
        let part = u64::from(line.weight) * u64::from(self.len);
        let relative = if part == self.weight {
            // All have the same, mostly: without a division.
            PARTS
        } else {
            part * PARTS / self.weight
        };
        line.deficit += (relative * config.longest_frame().0).cast_signed();
        line.deficit > 0
    }

    /// Brings the line to the front whose turn it is, which is not the first, and returns
    /// it.
    #[inline(never)]
    fn find_turn(
        &mut self,
        lines: &mut [Line],
        order: &mut Links,
        config: &PacerConfig,
    ) -> Option<u32> {
        loop {
            self.rotate(order);
            let line = lines.get_mut(self.head as usize)?;
            if self.may_send(line, config) {
                return Some(self.head);
            }
        }
    }

    /// Ends the turn of the first line: it is the last then.
    #[inline(always)]
    pub(super) fn rotate(&mut self, order: &mut Links) {
        let index = self.head;
        // In this order: it may be the last as well.
        order.set(self.tail, index);
        self.head = order.after(index);
        self.tail = index;
    }

    /// Takes the first line out, which is of `weight`.
    #[inline(always)]
    pub(super) fn pop(&mut self, order: &Links, weight: u32) {
        self.head = order.after(self.head);
        self.len -= 1;
        self.weight -= u64::from(weight);
    }

    /// Takes out a line of `weight`, wherever it is.
    pub(super) fn remove(&mut self, order: &mut Links, index: u32, weight: u32) {
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

    /// A line's weight is another one from now on.
    pub(super) fn reweigh(&mut self, before: u32, after: u32) {
        self.weight = self.weight + u64::from(after) - u64::from(before);
    }
}

#[cfg(test)]
mod tests;

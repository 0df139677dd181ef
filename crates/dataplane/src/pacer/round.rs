//! Whose turn it is: the released lines of one guest.
//!
//! Deficit round robin (Shreedhar and Varghese, SIGCOMM 1995), where a line may send
//! while its deficit is above zero, so that nobody looks at a frame's length before it
//! is charged. What a line may send in a round is to a longest frame as its weight is to
//! the mean of those in the round: a round of n lines hands over n frames, so a frame
//! costs a look at one line, as long as they are full. To find whose turn it is takes a
//! look at each line at most: one whose weight is at least the mean may send.

use super::config::MAX_RATIO;
use super::lines::Lines;
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

/// The released lines of a guest, in the order of their turns.
#[derive(Debug)]
pub(super) struct Round {
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
        self.head == NIL
    }

    /// Adds a line behind the others.
    #[inline(always)]
    pub(super) fn push(&mut self, lines: &mut Lines, index: u32) {
        let line = lines.at_mut(index);
        line.next = NIL;
        self.len += 1;
        self.weight += u64::from(line.weight);
        if self.head == NIL {
            self.head = index;
        } else {
            lines.at_mut(self.tail).next = index;
        }
        self.tail = index;
    }

    /// Adds a line before the others: its turn goes on.
    pub(super) fn push_front(&mut self, lines: &mut Lines, index: u32) {
        let line = lines.at_mut(index);
        line.next = self.head;
        self.len += 1;
        self.weight += u64::from(line.weight);
        if self.head == NIL {
            self.tail = index;
        }
        self.head = index;
    }

    /// Takes the line out whose turn it is. `frame` is the longest one.
    #[inline(always)]
    pub(super) fn pop(&mut self, lines: &mut Lines, frame: WireBytes) -> Option<u32> {
        if self.head == NIL {
            return None;
        }
        if self.len > 1 {
            self.find_turn(lines, frame);
        }
        let index = self.head;
        let line = lines.at(index);
        self.head = line.next;
        self.len -= 1;
        self.weight -= u64::from(line.weight);
        Some(index)
    }

    /// Brings the line to the front whose turn it is.
    #[inline(always)]
    fn find_turn(&mut self, lines: &mut Lines, frame: WireBytes) {
        loop {
            let index = self.head;
            let line = lines.at_mut(index);
            if line.deficit > 0 {
                return;
            }
            // At least one, as the mean is at most the greatest.
            let relative = u64::from(line.weight) * PARTS * u64::from(self.len) / self.weight;
            line.deficit += (relative * frame.0).cast_signed();
            if line.deficit > 0 {
                return;
            }
            self.head = line.next;
            line.next = NIL;
            lines.at_mut(self.tail).next = index;
            self.tail = index;
        }
    }

    /// Takes out a line, wherever it is.
    pub(super) fn remove(&mut self, lines: &mut Lines, index: u32) {
        let (next, weight) = (lines.at(index).next, lines.at(index).weight);
        self.len -= 1;
        self.weight -= u64::from(weight);
        if self.head == index {
            self.head = next;
            return;
        }
        let mut before = self.head;
        while lines.at(before).next != index {
            before = lines.at(before).next;
        }
        lines.at_mut(before).next = next;
        if self.tail == index {
            self.tail = before;
        }
    }

    /// A line's weight is another one from now on.
    pub(super) fn reweigh(&mut self, before: u32, after: u32) {
        self.weight = self.weight + u64::from(after) - u64::from(before);
    }
}

//! A timing wheel: numbers in the order of their departures, with O(1) operations.
//!
//! A hierarchical timing wheel (Varghese, Lauck: Hashed and Hierarchical Timing Wheels, SOSP 1987,
//! scheme 7) of four levels with 1024 slots each. An entry is a number, and each number waits at
//! most once: a guest for the departure of its frame, or a line for the release of its first. A
//! slot of the first level is one byte of the wire, so slots need no order inside: entries with
//! equal departures leave in order of insertion. An entry waits in the highest level in which its
//! departure and the wheel's base differ, and moves down at most three times.
//!
//! Most entries never move. An entry that is alone in its slot leaves from there. The same applies
//! to an entry in a slot of the second level, 1 KiB of the wire, if that slot's entries came in the
//! order of departures or in the reverse one: full frames nearly always.
//!
//! Each slot stores the least departure in it. So [`Wheel::first`] is exact without moving the
//! wheel past a position at which more entries may still come; it is cached. The bits of all
//! levels' slots are numbered consecutively, so the first bit that is set is the first slot of the
//! lowest nonempty level.

use super::index::{Index, Table};
use tailbound_units::{Position, WireBytes};

/// Location of a number; stale while the number does not wait.
#[derive(Debug, Clone, Copy)]
struct Node<I> {
    /// Time at which it leaves the wheel.
    departure: Position,
    /// The next number in its slot and the one before it; undefined at the ends.
    next: I,
    before: I,
    slot: SlotIndex,
}

impl<I: Index> Node<I> {
    const NOWHERE: Self = Self {
        departure: Position::NEVER,
        next: I::NONE,
        before: I::NONE,
        slot: SlotIndex(0),
    };
}

const BITS: u32 = 10;
const LEVELS: usize = 4;
const SLOTS: usize = 1 << BITS;
/// Words of bits for all slots: 64, the number of bits of `summary`.
const WORDS: usize = LEVELS * SLOTS / 64;
/// The first word of the last level.
const LAST: usize = WORDS - SLOTS / 64;

/// Maximum distance of a departure from the wheel's position: half of a turn of the last level, 440
/// s of a 10 Gbit/s wire.
pub(super) const RANGE: WireBytes = WireBytes(1 << (LEVELS as u32 * BITS - 1));

/// A slot of any level: all levels' slots are numbered consecutively.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SlotIndex(u32);

impl SlotIndex {
    /// The slot of the lowest bit that is set in a word.
    #[inline(always)]
    const fn of(word: usize, bits: u64) -> Self {
        Self((word * 64) as u32 + bits.trailing_zeros() % 64)
    }

    /// The word of its bit.
    #[inline(always)]
    const fn word(self) -> usize {
        self.0 as usize / 64
    }

    /// The number of its bit in that word.
    #[inline(always)]
    const fn bit(self) -> u32 {
        self.0 % 64
    }

    /// Checks whether it is in one of the two lowest levels.
    #[inline(always)]
    const fn is_in_low_level(self) -> bool {
        (self.0 as usize) < 2 * SLOTS
    }
}

/// Entries of a slot; stale while its bit is not set.
#[derive(Debug, Clone, Copy)]
struct Slot<I> {
    /// The least departure in the slot, that of the first node.
    least: Position,
    /// The first node and the last.
    head: I,
    tail: I,
    /// True if the nodes are in the order of their departures.
    sorted: bool,
}

impl<I: Index> Slot<I> {
    const EMPTY: Self = Self {
        least: Position::NEVER,
        head: I::NONE,
        tail: I::NONE,
        sorted: true,
    };
}

/// First entry of a wheel.
#[derive(Debug, Clone, Copy)]
struct First {
    departure: Position,
    /// Its slot.
    slot: SlotIndex,
}

const NOTHING: First = First {
    departure: Position::NEVER,
    slot: SlotIndex(0),
};

/// The wheel. The module describes it.
#[derive(Debug)]
pub(super) struct Wheel<I> {
    /// A bit for each nonempty slot, and one for each nonzero word of them.
    words: [u64; WORDS],
    summary: u64,
    slots: Box<[Slot<I>; LEVELS * SLOTS]>,
    /// Nodes by number.
    nodes: Table<I, Node<I>>,
    /// The first entry.
    first: First,
    /// Position that determines the level of departures: not after `position`, and in the same slot
    /// of the third level.
    base: Position,
    /// The last departure that was popped: none is before it.
    position: Position,
}

impl<I: Index> Wheel<I> {
    pub(super) fn new() -> Self {
        Self {
            words: [0; WORDS],
            summary: 0,
            slots: vec![Slot::EMPTY; LEVELS * SLOTS]
                .into_boxed_slice()
                .try_into()
                .expect("one entry per made one"),
            nodes: Table::new(),
            first: NOTHING,
            base: Position::ZERO,
            position: Position::ZERO,
        }
    }

    /// Checks that no number waits.
    #[inline(always)]
    pub(super) const fn is_empty(&self) -> bool {
        self.summary == 0
    }

    /// Lower bound of all departures.
    #[inline(always)]
    pub(super) const fn position(&self) -> Position {
        self.position
    }

    /// Starts an empty wheel at `floor`, if that is later than the last departure.
    #[inline]
    pub(super) fn start_from(&mut self, floor: Position) {
        debug_assert!(self.is_empty(), "waiting entries leave first");
        if self.position < floor {
            self.position = floor;
            self.base = floor;
        }
    }

    /// Restarts an empty wheel at `floor`: no departure may be before it.
    pub(super) const fn restart(&mut self, floor: Position) {
        self.position = floor;
        self.base = floor;
    }

    /// Makes room for all numbers below `count`.
    pub(super) fn reserve(&mut self, count: usize) {
        self.nodes.reserve(count, Node::NOWHERE);
    }

    #[inline(always)]
    const fn slot(&self, at: SlotIndex) -> &Slot<I> {
        &self.slots[at.0 as usize]
    }

    /// Returns the slot with the least departure.
    #[inline(always)]
    fn first_slot(&self) -> Option<SlotIndex> {
        if self.summary == 0 {
            return None;
        }
        let word = self.summary.trailing_zeros() as usize % WORDS;
        if word >= LAST {
            return Some(self.first_of_last());
        }
        Some(SlotIndex::of(word, self.words[word]))
    }

    /// Returns the same in the last level, which wraps from its last slot to its first, beginning
    /// at the base's.
    #[cold]
    fn first_of_last(&self) -> SlotIndex {
        let from = slot(self.base, 3);
        let mut word = from.word();
        let mut bits = self.words[word] & (u64::MAX << from.bit());
        if bits == 0 {
            let behind = self.summary & (u64::MAX << word << 1);
            let words = if behind == 0 { self.summary } else { behind };
            word = words.trailing_zeros() as usize % WORDS;
            bits = self.words[word];
        }
        SlotIndex::of(word, bits)
    }

    /// The least departure; the end of time in an empty wheel.
    #[inline(always)]
    pub(super) const fn first(&self) -> Position {
        self.first.departure
    }

    /// The number with the least departure: the first that was inserted, of several. The wheel must
    /// not be empty.
    pub(super) fn first_number(&self) -> I {
        self.slot(self.first.slot).head
    }

    /// Updates `first`.
    #[inline(always)]
    fn find_first(&mut self) {
        self.first = match self.first_slot() {
            Some(slot) => First {
                departure: self.slot(slot).least,
                slot,
            },
            None => NOTHING,
        };
    }

    /// Inserts the number `index`, which does not wait and for which there is room, with
    /// `departure`: not before the last popped one and less than [`RANGE`] after it.
    #[inline(always)]
    pub(super) fn insert(&mut self, index: I, departure: Position) {
        debug_assert!(
            departure >= self.position && departure - self.position < RANGE,
            "it would leave at a wrong time"
        );
        let at = self.place(index, departure);
        if departure < self.first.departure {
            self.first = First {
                departure,
                slot: at,
            };
        }
    }

    /// Inserts a number into the slot of its departure, and returns the slot.
    #[inline(always)]
    fn place(&mut self, index: I, departure: Position) -> SlotIndex {
        let apart = departure.0 ^ self.base.0;
        let at = if apart < 1 << BITS {
            slot(departure, 0)
        } else if apart < 1 << (2 * BITS) {
            slot(departure, 1)
        } else {
            slot_above(departure, apart)
        };
        let here = &mut self.slots[at.0 as usize];
        let mut node = Node {
            departure,
            next: index,
            before: index,
            slot: at,
        };
        let (word, bit) = (at.word(), 1 << at.bit());
        if self.words[word] & bit == 0 {
            self.words[word] |= bit;
            self.summary |= 1 << word;
            *here = Slot {
                least: departure,
                head: index,
                tail: index,
                sorted: true,
            };
        } else if departure < here.least {
            node.next = here.head;
            self.nodes[here.head].before = index;
            here.head = index;
            here.least = departure;
        } else {
            node.before = here.tail;
            let tail = &mut self.nodes[here.tail];
            tail.next = index;
            here.sorted &= tail.departure <= departure;
            here.tail = index;
        }
        self.nodes[index] = node;
        at
    }

    /// Removes and returns the number with the least departure; of several, the first that was
    /// inserted. The wheel must not be empty.
    #[inline(always)]
    pub(super) fn pop(&mut self) -> I {
        let First {
            departure,
            slot: mut at,
        } = self.first;
        self.position = departure;
        loop {
            let here = &mut self.slots[at.0 as usize];
            let head = here.head;
            if head == here.tail {
                self.base = departure;
                self.clear(at);
                self.find_first();
                return head;
            }
            if here.sorted && at.is_in_low_level() {
                // The base stays outside this slot, as do the other entries in it.
                here.head = self.nodes[head].next;
                here.least = self.nodes[here.head].departure;
                self.first = First {
                    departure: here.least,
                    slot: at,
                };
                return head;
            }
            at = self.descend(at);
        }
    }

    /// Moves the entries of the first slot down, and returns the first slot after that.
    #[inline(never)]
    fn descend(&mut self, at: SlotIndex) -> SlotIndex {
        let Slot {
            head, tail, least, ..
        } = *self.slot(at);
        self.clear(at);
        self.base = least;
        let mut index = head;
        loop {
            let Node {
                departure, next, ..
            } = self.nodes[index];
            self.place(index, departure);
            if index == tail {
                self.find_first();
                return self.first.slot;
            }
            index = next;
        }
    }

    /// Removes a waiting number with any departure.
    pub(super) fn remove(&mut self, index: I) {
        let Node {
            next, before, slot, ..
        } = self.nodes[index];
        let here = &mut self.slots[slot.0 as usize];
        if here.head == here.tail {
            self.clear(slot);
        } else if index == here.head {
            here.head = next;
            self.find_least(slot);
        } else {
            self.unlink(slot, before, index, next);
        }
        self.find_first();
    }

    /// Unlinks a number that is not the first of its slot.
    fn unlink(&mut self, slot: SlotIndex, before: I, index: I, next: I) {
        let here = &mut self.slots[slot.0 as usize];
        if index == here.tail {
            here.tail = before;
        } else {
            self.nodes[before].next = next;
            self.nodes[next].before = before;
        }
    }

    /// Moves the number with the least departure of a slot to its front.
    fn find_least(&mut self, slot: SlotIndex) {
        let Slot {
            head, tail, sorted, ..
        } = *self.slot(slot);
        let mut least = head;
        let mut index = head;
        while !sorted && index != tail {
            index = self.nodes[index].next;
            if self.nodes[index].departure < self.nodes[least].departure {
                least = index;
            }
        }
        if least != head {
            let Node { before, next, .. } = self.nodes[least];
            self.unlink(slot, before, least, next);
            self.nodes[least].next = head;
            self.nodes[head].before = least;
            self.slots[slot.0 as usize].head = least;
        }
        self.slots[slot.0 as usize].least = self.nodes[least].departure;
    }

    /// Empties a slot.
    #[inline(always)]
    const fn clear(&mut self, slot: SlotIndex) {
        let word = slot.word() % WORDS;
        self.words[word] &= !(1 << slot.bit());
        if self.words[word] == 0 {
            self.summary &= !(1 << word);
        }
    }
}

/// Returns the slot of a departure at this distance from the base, in the two last levels. Few
/// entries wait there.
#[inline(never)]
const fn slot_above(departure: Position, apart: u64) -> SlotIndex {
    if apart < 1 << (3 * BITS) {
        slot(departure, 2)
    } else {
        slot(departure, 3)
    }
}

/// Returns the slot of a departure in a level, with all levels numbered consecutively.
#[inline(always)]
const fn slot(departure: Position, level: u32) -> SlotIndex {
    let in_level = (departure.0 >> (level * BITS)) as usize % SLOTS;
    SlotIndex(((level as usize * SLOTS) | in_level) as u32)
}

#[cfg(test)]
mod tests;

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

use tailbound_units::{Position, WireBytes};

/// Location of a number; stale while the number does not wait.
#[derive(Debug, Clone, Copy)]
struct Node {
    /// Time at which it leaves the wheel.
    departure: Position,
    /// The next number in its slot and the one before it; undefined at the ends.
    next: u32,
    before: u32,
    slot: u32,
}

const NOWHERE: Node = Node {
    departure: Position::NEVER,
    next: 0,
    before: 0,
    slot: 0,
};

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

/// Entries of a slot; stale while its bit is not set.
#[derive(Debug, Clone, Copy)]
struct Slot {
    /// The least departure in the slot, that of the first node.
    least: Position,
    /// The first node and the last.
    head: u32,
    tail: u32,
    /// True if the nodes are in the order of their departures.
    sorted: bool,
}

const EMPTY: Slot = Slot {
    least: Position::NEVER,
    head: 0,
    tail: 0,
    sorted: true,
};

/// First entry of a wheel.
#[derive(Debug, Clone, Copy)]
struct First {
    departure: Position,
    /// Its slot.
    slot: usize,
}

const NOTHING: First = First {
    departure: Position::NEVER,
    slot: 0,
};

/// The wheel. The module describes it.
#[derive(Debug)]
pub(super) struct Wheel {
    /// A bit for each nonempty slot, and one for each nonzero word of them.
    words: [u64; WORDS],
    summary: u64,
    slots: Box<[Slot; LEVELS * SLOTS]>,
    /// Nodes by number.
    nodes: Vec<Node>,
    /// The first entry.
    first: First,
    /// Position that determines the level of departures: not after `position`, and in the same slot
    /// of the third level.
    base: Position,
    /// The last departure that was popped: none is before it.
    position: Position,
}

impl Wheel {
    pub(super) fn new() -> Self {
        Self {
            words: [0; WORDS],
            summary: 0,
            slots: vec![EMPTY; LEVELS * SLOTS]
                .into_boxed_slice()
                .try_into()
                .expect("one entry per made one"),
            nodes: Vec::new(),
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
        if self.nodes.len() < count {
            self.nodes.resize(count, NOWHERE);
        }
    }

    /// Returns the slot with the least departure.
    #[inline(always)]
    fn first_slot(&self) -> Option<usize> {
        if self.summary == 0 {
            return None;
        }
        let word = self.summary.trailing_zeros() as usize % WORDS;
        if word >= LAST {
            return Some(self.first_of_last());
        }
        Some(word * 64 + self.words[word].trailing_zeros() as usize % 64)
    }

    /// Returns the same in the last level, which wraps from its last slot to its first, beginning
    /// at the base's.
    #[cold]
    fn first_of_last(&self) -> usize {
        let from = slot(self.base, 3);
        let mut word = from / 64;
        let mut bits = self.words[word] & (u64::MAX << (from % 64));
        if bits == 0 {
            let behind = self.summary & (u64::MAX << word << 1);
            let words = if behind == 0 { self.summary } else { behind };
            word = words.trailing_zeros() as usize % WORDS;
            bits = self.words[word];
        }
        word * 64 + bits.trailing_zeros() as usize % 64
    }

    /// The least departure; the end of time in an empty wheel.
    #[inline(always)]
    pub(super) const fn first(&self) -> Position {
        self.first.departure
    }

    /// The number with the least departure: the first that was inserted, of several. The wheel must
    /// not be empty.
    pub(super) fn first_number(&self) -> u32 {
        self.slots[self.first.slot].head
    }

    /// Updates `first`.
    #[inline(always)]
    fn find_first(&mut self) {
        self.first = match self.first_slot() {
            Some(slot) => First {
                departure: self.slots[slot].least,
                slot,
            },
            None => NOTHING,
        };
    }

    /// Inserts the number `index`, which does not wait and for which there is room, with
    /// `departure`: not before the last popped one and less than [`RANGE`] after it.
    #[inline(always)]
    pub(super) fn insert(&mut self, index: u32, departure: Position) {
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
    fn place(&mut self, index: u32, departure: Position) -> usize {
        let apart = departure.0 ^ self.base.0;
        let at = if apart < 1 << BITS {
            slot(departure, 0)
        } else if apart < 1 << (2 * BITS) {
            slot(departure, 1)
        } else {
            slot_above(departure, apart)
        };
        let here = &mut self.slots[at];
        let mut node = Node {
            departure,
            next: index,
            before: index,
            slot: at as u32,
        };
        let (word, bit) = (at / 64, 1 << (at % 64));
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
            self.nodes[here.head as usize].before = index;
            here.head = index;
            here.least = departure;
        } else {
            node.before = here.tail;
            let tail = &mut self.nodes[here.tail as usize];
            tail.next = index;
            here.sorted &= tail.departure <= departure;
            here.tail = index;
        }
        self.nodes[index as usize] = node;
        at
    }

    /// Removes and returns the number with the least departure; of several, the first that was
    /// inserted. The wheel must not be empty.
    #[inline(always)]
    pub(super) fn pop(&mut self) -> u32 {
        let First {
            departure,
            slot: mut at,
        } = self.first;
        self.position = departure;
        loop {
            let here = &mut self.slots[at];
            let head = here.head;
            if head == here.tail {
                self.base = departure;
                self.clear(at);
                self.find_first();
                return head;
            }
            if here.sorted && at < 2 * SLOTS {
                // The base stays outside this slot, as do the other entries in it.
                here.head = self.nodes[head as usize].next;
                here.least = self.nodes[here.head as usize].departure;
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
    fn descend(&mut self, at: usize) -> usize {
        let Slot {
            head, tail, least, ..
        } = self.slots[at];
        self.clear(at);
        self.base = least;
        let mut index = head;
        loop {
            let Node {
                departure, next, ..
            } = self.nodes[index as usize];
            self.place(index, departure);
            if index == tail {
                self.find_first();
                return self.first.slot;
            }
            index = next;
        }
    }

    /// Removes a waiting number with any departure.
    pub(super) fn remove(&mut self, index: u32) {
        let Node {
            next, before, slot, ..
        } = self.nodes[index as usize];
        let here = &mut self.slots[slot as usize];
        if here.head == here.tail {
            self.clear(slot as usize);
        } else if index == here.head {
            here.head = next;
            self.find_least(slot as usize);
        } else {
            self.unlink(slot as usize, before, index, next);
        }
        self.find_first();
    }

    /// Unlinks a number that is not the first of its slot.
    fn unlink(&mut self, slot: usize, before: u32, index: u32, next: u32) {
        if index == self.slots[slot].tail {
            self.slots[slot].tail = before;
        } else {
            self.nodes[before as usize].next = next;
            self.nodes[next as usize].before = before;
        }
    }

    /// Moves the number with the least departure of a slot to its front.
    fn find_least(&mut self, slot: usize) {
        let Slot {
            head, tail, sorted, ..
        } = self.slots[slot];
        let mut least = head;
        let mut index = head;
        while !sorted && index != tail {
            index = self.nodes[index as usize].next;
            if self.nodes[index as usize].departure < self.nodes[least as usize].departure {
                least = index;
            }
        }
        if least != head {
            let Node { before, next, .. } = self.nodes[least as usize];
            self.unlink(slot, before, least, next);
            self.nodes[least as usize].next = head;
            self.nodes[head as usize].before = least;
            self.slots[slot].head = least;
        }
        self.slots[slot].least = self.nodes[least as usize].departure;
    }

    /// Empties a slot.
    #[inline(always)]
    const fn clear(&mut self, slot: usize) {
        let word = slot / 64 % WORDS;
        self.words[word] &= !(1 << (slot % 64));
        if self.words[word] == 0 {
            self.summary &= !(1 << word);
        }
    }
}

/// Returns the slot of a departure at this distance from the base, in the two last levels. Few
/// entries wait there.
#[inline(never)]
const fn slot_above(departure: Position, apart: u64) -> usize {
    if apart < 1 << (3 * BITS) {
        slot(departure, 2)
    } else {
        slot(departure, 3)
    }
}

/// Returns the slot of a departure in a level, with all levels numbered consecutively.
#[inline(always)]
const fn slot(departure: Position, level: u32) -> usize {
    (level as usize * SLOTS) | ((departure.0 >> (level * BITS)) as usize % SLOTS)
}

#[cfg(test)]
mod tests;

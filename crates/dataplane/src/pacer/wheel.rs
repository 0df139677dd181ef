//! Frames of all guests in the order of their stamps, O(1) each.
//!
//! A hierarchical timing wheel (Varghese, Lauck: Hashed and Hierarchical Timing
//! Wheels, SOSP 1987, scheme 7) of four levels with 1024 slots each. A slot of the
//! first level is one byte of the wire, so slots need no order inside: frames with
//! one stamp leave as they came. A frame waits in the highest level in which its
//! stamp and the wheel's position differ, and moves down at most three times; one
//! that is alone in its slot leaves from there. A slot of the second level is 1 KiB
//! of the wire, so full frames mostly are.
//!
//! Each slot keeps the least stamp in it. So the next stamp is known exactly
//! without moving the wheel past a moment at which a frame may still come, which
//! is what [`Wheel::first`] is for.

/// A frame's place: its stamp and what is behind it in its slot. The frame itself
/// lies elsewhere, so that moving down touches 16 bytes a frame.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    /// When it may begin, in bytes of the wire.
    pub(super) stamp: u64,
    /// The next in its slot; the first after the last.
    pub(super) next: u32,
    /// Whose it is.
    pub(super) guest: u32,
}

const BITS: u32 = 10;
const LEVELS: usize = 4;
const SLOTS: usize = 1 << BITS;
const WORDS: usize = SLOTS / 64;

/// No stamp may be so far ahead of the wheel's position: half of what the last
/// level turns around in, 440 s of a 10 Gbit/s wire.
pub(super) const RANGE: u64 = 1 << (LEVELS as u32 * BITS - 1);

/// The last of a slot's entries; its `next` is the first.
#[derive(Debug, Clone, Copy)]
struct Slot {
    tail: u32,
    /// The least stamp here; in the first level only while nothing was taken out.
    least: u64,
}

/// No entry.
const NIL: u32 = u32::MAX;
const EMPTY: Slot = Slot {
    tail: NIL,
    least: u64::MAX,
};

#[derive(Debug)]
struct Level {
    /// A bit for each slot that is not empty, and one for each such word.
    words: [u64; WORDS],
    summary: u64,
    slots: Box<[Slot; SLOTS]>,
}

impl Level {
    fn new() -> Self {
        Self {
            words: [0; WORDS],
            summary: 0,
            slots: Box::new([EMPTY; SLOTS]),
        }
    }

    /// The first slot that is not empty.
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "once for every frame, where a call costs as much"
    )]
    const fn first(&self) -> Option<usize> {
        if self.summary == 0 {
            return None;
        }
        let word = self.summary.trailing_zeros() as usize % WORDS;
        Some(word * 64 + self.words[word].trailing_zeros() as usize)
    }

    /// The same, where the level goes on at slot 0 after its last, from slot
    /// `from` on.
    fn first_from(&self, from: usize) -> Option<usize> {
        let word = from / 64 % WORDS;
        let here = self.words[word] & (u64::MAX << (from % 64));
        if here != 0 {
            return Some(word * 64 + here.trailing_zeros() as usize);
        }
        let behind = self.summary & (u64::MAX << word << 1);
        if behind == 0 {
            return self.first();
        }
        let word = behind.trailing_zeros() as usize % WORDS;
        Some(word * 64 + self.words[word].trailing_zeros() as usize)
    }

    /// Empties a slot.
    const fn clear(&mut self, slot: usize) {
        let word = slot / 64 % WORDS;
        self.words[word] &= !(1 << (slot % 64));
        if self.words[word] == 0 {
            self.summary &= !(1 << word);
        }
        self.slots[slot % SLOTS] = EMPTY;
    }

    /// Puts an entry behind those of its slot.
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "once for every frame, where a call costs as much"
    )]
    fn push(&mut self, entries: &mut [Entry], slot: usize, index: u32, stamp: u64) {
        let at = &mut self.slots[slot % SLOTS];
        let head = if let Some(tail) = entries.get_mut(at.tail as usize) {
            std::mem::replace(&mut tail.next, index)
        } else {
            let word = slot / 64 % WORDS;
            self.words[word] |= 1 << (slot % 64);
            self.summary |= 1 << word;
            index
        };
        at.tail = index;
        at.least = at.least.min(stamp);
        entries[index as usize].next = head;
    }
}

/// The wheel. See the module.
#[derive(Debug)]
pub(super) struct Wheel {
    levels: [Level; LEVELS],
    /// The stamp that was popped last: none is before it.
    position: u64,
    len: usize,
}

const fn slot(stamp: u64, level: u32) -> usize {
    (stamp >> (level * BITS)) as usize % SLOTS
}

impl Wheel {
    pub(super) fn new() -> Self {
        Self {
            levels: std::array::from_fn(|_| Level::new()),
            position: 0,
            len: 0,
        }
    }

    #[cfg(test)]
    const fn len(&self) -> usize {
        self.len
    }

    /// The stamp that was popped last, or `floor` where that is later and nothing
    /// waits: no stamp before it may come.
    #[inline]
    pub(super) const fn start_from(&mut self, floor: u64) -> u64 {
        if self.len == 0 && self.position < floor {
            self.position = floor;
        }
        self.position
    }

    /// Adds an entry, whose stamp is not before the last one popped and less than
    /// [`RANGE`] after it. (If it were not, it would leave at a wrong time.)
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "once for every frame, where a call costs as much"
    )]
    pub(super) fn insert(&mut self, entries: &mut [Entry], index: u32) {
        self.len += 1;
        self.place(entries, index);
    }

    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "once for every frame, where a call costs as much"
    )]
    fn place(&mut self, entries: &mut [Entry], index: u32) {
        let stamp = entries[index as usize].stamp;
        let apart = stamp ^ self.position;
        let level = if apart < 1 << BITS {
            0
        } else if apart < 1 << (2 * BITS) {
            1
        } else if apart < 1 << (3 * BITS) {
            2
        } else {
            3
        };
        self.levels[level as usize].push(entries, slot(stamp, level), index, stamp);
    }

    /// The first slot of the levels above the first that is not empty.
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "once for every frame, where a call costs as much"
    )]
    fn upper(&self) -> Option<(usize, usize)> {
        let [_, second, third, last] = &self.levels;
        if let Some(slot) = second.first() {
            return Some((1, slot));
        }
        if let Some(slot) = third.first() {
            return Some((2, slot));
        }
        let slot = last.first_from(slot(self.position, 3))?;
        Some((3, slot))
    }

    /// The least stamp.
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "once for every frame, where a call costs as much"
    )]
    pub(super) fn first(&self) -> Option<u64> {
        if let Some(slot) = self.levels[0].first() {
            return Some(self.position >> BITS << BITS | slot as u64);
        }
        self.upper()
            .map(|(level, slot)| self.levels[level].slots[slot].least)
    }

    /// Takes the entry with the least stamp out; of several, the one that came
    /// first.
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "once for every frame, where a call costs as much"
    )]
    pub(super) fn pop(&mut self, entries: &mut [Entry]) -> Option<u32> {
        let slot = match self.levels[0].first() {
            Some(slot) => slot,
            None => match self.descend(entries)? {
                Ok(alone) => return Some(alone),
                Err(slot) => slot,
            },
        };
        self.len -= 1;
        self.position = self.position >> BITS << BITS | slot as u64;
        let level = &mut self.levels[0];
        let tail = level.slots[slot].tail;
        let head = entries[tail as usize].next;
        if head == tail {
            level.clear(slot);
        } else {
            entries[tail as usize].next = entries[head as usize].next;
        }
        Some(head)
    }

    /// Moves the next slot of an upper level down and gives the slot that is then
    /// first in the first level; or the entry, if it was alone.
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "once for every frame, where a call costs as much"
    )]
    fn descend(&mut self, entries: &mut [Entry]) -> Option<Result<u32, usize>> {
        let (level, at) = self.upper()?;
        let level = &mut self.levels[level];
        let Slot { tail, least } = level.slots[at];
        self.position = least;
        level.clear(at);
        let mut index = entries[tail as usize].next;
        if index == tail {
            self.len -= 1;
            return Some(Ok(index));
        }
        loop {
            let next = entries[index as usize].next;
            self.place(entries, index);
            if index == tail {
                return Some(Err(slot(self.position, 0)));
            }
            index = next;
        }
    }
}

#[cfg(test)]
mod tests;

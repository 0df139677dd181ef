//! Frames of all guests in the order of their stamps, O(1) each.
//!
//! A hierarchical timing wheel (Varghese, Lauck: Hashed and Hierarchical Timing
//! Wheels, SOSP 1987, scheme 7) of three levels with 4096 slots each. A slot of
//! the first level is one byte of the wire, so slots need no order inside: frames
//! with one stamp leave as they came. A frame waits in the lowest level in which
//! its stamp and the wheel's position differ, and moves down at most twice.
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

const BITS: u32 = 12;
const SLOTS: usize = 1 << BITS;
const WORDS: usize = SLOTS / 64;

/// No stamp may be so far ahead of the wheel's position: half of what the last
/// level turns around in, some 27 s of a 10 Gbit/s wire.
pub(super) const RANGE: u64 = 1 << (3 * BITS - 1);

#[derive(Debug)]
struct Level {
    /// A bit for each slot that is not empty, and one for each such word.
    words: [u64; WORDS],
    summary: u64,
    /// The last entry of each slot that is not empty; its `next` is the first.
    tails: Box<[u32]>,
    /// The least stamp of each slot that is not empty. Not kept in the first
    /// level, where the slot tells it.
    least: Box<[u64]>,
}

impl Level {
    fn new() -> Self {
        Self {
            words: [0; WORDS],
            summary: 0,
            tails: vec![0; SLOTS].into_boxed_slice(),
            least: vec![0; SLOTS].into_boxed_slice(),
        }
    }

    /// The first slot that is not empty.
    #[inline]
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

    const fn holds(&self, slot: usize) -> bool {
        self.words[slot / 64 % WORDS] & (1 << (slot % 64)) != 0
    }

    const fn mark(&mut self, slot: usize) {
        let word = slot / 64 % WORDS;
        self.words[word] |= 1 << (slot % 64);
        self.summary |= 1 << word;
    }

    const fn clear(&mut self, slot: usize) {
        let word = slot / 64 % WORDS;
        self.words[word] &= !(1 << (slot % 64));
        if self.words[word] == 0 {
            self.summary &= !(1 << word);
        }
    }

    /// Puts an entry behind those of its slot. True where it is the first there.
    #[inline]
    fn push(&mut self, entries: &mut [Entry], slot: usize, index: u32) -> bool {
        let first = !self.holds(slot);
        let head = if first {
            self.mark(slot);
            index
        } else {
            let tail = &mut entries[self.tails[slot] as usize];
            std::mem::replace(&mut tail.next, index)
        };
        entries[index as usize].next = head;
        self.tails[slot] = index;
        first
    }
}

/// The wheel. See the module.
#[derive(Debug)]
pub(super) struct Wheel {
    levels: [Level; 3],
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
            levels: [Level::new(), Level::new(), Level::new()],
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
    #[inline]
    pub(super) fn insert(&mut self, entries: &mut [Entry], index: u32) {
        self.len += 1;
        self.place(entries, index);
    }

    #[inline]
    fn place(&mut self, entries: &mut [Entry], index: u32) {
        let stamp = entries[index as usize].stamp;
        let apart = stamp ^ self.position;
        if apart < 1 << BITS {
            self.levels[0].push(entries, slot(stamp, 0), index);
            return;
        }
        let level = if apart < 1 << (2 * BITS) { 1 } else { 2 };
        let slot = slot(stamp, level);
        let level = &mut self.levels[level as usize];
        let first = level.push(entries, slot, index);
        let least = &mut level.least[slot];
        if first || stamp < *least {
            *least = stamp;
        }
    }

    /// The first slot of the levels above the first that is not empty.
    #[inline]
    fn upper(&self) -> Option<(usize, usize)> {
        match self.levels[1].first() {
            Some(slot) => Some((1, slot)),
            None => self.levels[2]
                .first_from(slot(self.position, 2))
                .map(|slot| (2, slot)),
        }
    }

    /// The least stamp.
    #[inline]
    pub(super) fn first(&self) -> Option<u64> {
        if let Some(slot) = self.levels[0].first() {
            return Some(self.position >> BITS << BITS | slot as u64);
        }
        self.upper()
            .map(|(level, slot)| self.levels[level].least[slot])
    }

    /// Takes the entry with the least stamp out; of several, the one that came
    /// first.
    #[inline]
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
        let tail = level.tails[slot];
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
    #[inline]
    fn descend(&mut self, entries: &mut [Entry]) -> Option<Result<u32, usize>> {
        let (level, at) = self.upper()?;
        let level = &mut self.levels[level];
        self.position = level.least[at];
        level.clear(at);
        let tail = level.tails[at];
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

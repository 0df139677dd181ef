//! Where stamped frames lie while the wheels hold their places.

use super::wheel::Entry;

const NIL: u32 = u32::MAX;

/// A slab of frames. Places are used again; nothing is allocated once it has been
/// as full as it gets.
#[derive(Debug)]
pub(super) struct Store<F> {
    /// What the wheels move, apart from the frames.
    pub(super) entries: Vec<Entry>,
    frames: Vec<Option<F>>,
    /// Unused places, linked through `next`.
    free: u32,
    len: usize,
    capacity: usize,
}

impl<F> Store<F> {
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            entries: Vec::new(),
            frames: Vec::new(),
            free: NIL,
            len: 0,
            capacity: capacity.clamp(1, 1 << 24),
        }
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// Whether no more packets should come. Segments of one that has come do.
    #[inline]
    pub(super) const fn is_full(&self) -> bool {
        self.len >= self.capacity
    }

    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "once for every frame, where a call costs as much"
    )]
    pub(super) fn put(&mut self, frame: F, stamp: u64, guest: u32) -> u32 {
        self.len += 1;
        let index = self.free;
        let Some(entry) = self.entries.get_mut(index as usize) else {
            return self.grow(frame, stamp, guest);
        };
        self.free = entry.next;
        entry.stamp = stamp;
        entry.guest = guest;
        self.frames[index as usize] = Some(frame);
        index
    }

    #[inline(never)]
    fn grow(&mut self, frame: F, stamp: u64, guest: u32) -> u32 {
        let index = self.entries.len() as u32;
        self.entries.push(Entry {
            stamp,
            next: index,
            guest,
        });
        self.frames.push(Some(frame));
        index
    }

    #[inline]
    pub(super) fn frame_mut(&mut self, index: u32) -> Option<&mut F> {
        self.frames.get_mut(index as usize)?.as_mut()
    }

    /// Takes a frame out; its place is free.
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "once for every frame, where a call costs as much"
    )]
    pub(super) fn take(&mut self, index: u32) -> Option<F> {
        let frame = self.frames.get_mut(index as usize)?.take()?;
        self.len -= 1;
        self.entries[index as usize].next = self.free;
        self.free = index;
        Some(frame)
    }
}

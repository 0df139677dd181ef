//! Where frames lie while lines and guests hold their places.

use std::mem;
use tailbound_units::{Bytes, Nanos, Position, WireBytes};

/// No place.
pub(super) const NIL: u32 = u32::MAX;

/// A frame that waits, and what is asked of it again and again.
#[derive(Debug)]
pub(super) struct Waiting<F> {
    /// Nothing in an unused place.
    pub(super) frame: Option<F>,
    /// The one behind it in its line, or the next unused place.
    pub(super) next: u32,
    /// What it takes of the wire.
    pub(super) wire: WireBytes,
    /// What it holds of the host's memory, its place here included.
    pub(super) memory: Bytes,
    /// When it came, and from which byte of the wire on it may be sent.
    pub(super) enqueued: Nanos,
    pub(super) arrival: Position,
}

/// A slab of frames. Places are used again; nothing is allocated once it has been
/// as full as it gets.
#[derive(Debug)]
pub(super) struct Store<F> {
    places: Vec<Waiting<F>>,
    /// Unused places, linked through `next`.
    free: u32,
    len: usize,
}

impl<F> Store<F> {
    pub(super) const fn new() -> Self {
        Self {
            places: Vec::new(),
            free: NIL,
            len: 0,
        }
    }

    /// The memory that a place takes.
    pub(super) const PLACE: Bytes = Bytes(mem::size_of::<Waiting<F>>() as u64);

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    #[inline(always)]
    pub(super) fn put(&mut self, waiting: Waiting<F>) -> u32 {
        self.len += 1;
        let index = self.free;
        let Some(place) = self.places.get_mut(index as usize) else {
            return self.grow(waiting);
        };
        self.free = place.next;
        // Nothing is in an unused place: nothing has to be dropped.
        mem::forget(mem::replace(place, waiting));
        index
    }

    #[inline(never)]
    fn grow(&mut self, waiting: Waiting<F>) -> u32 {
        self.places.push(waiting);
        self.places.len() as u32 - 1
    }

    /// What is at a place.
    #[inline(always)]
    pub(super) fn at(&self, index: u32) -> &Waiting<F> {
        &self.places[index as usize]
    }

    /// The same, to be changed.
    #[inline(always)]
    pub(super) fn at_mut(&mut self, index: u32) -> &mut Waiting<F> {
        &mut self.places[index as usize]
    }

    /// Hands over all places, unused ones too.
    pub(super) fn each(&mut self, change: impl FnMut(&mut Waiting<F>)) {
        self.places.iter_mut().for_each(change);
    }

    /// Takes a frame out; its place is free.
    #[inline(always)]
    pub(super) fn take(&mut self, index: u32) -> Option<F> {
        let place = self.places.get_mut(index as usize)?;
        let frame = place.frame.take()?;
        self.len -= 1;
        place.next = self.free;
        self.free = index;
        Some(frame)
    }
}

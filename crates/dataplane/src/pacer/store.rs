//! Where scheduled frames lie while the wheels hold their places.

use super::wheel::Node;
use std::mem;
use tailbound_units::Position;

const NIL: u32 = u32::MAX;

/// A slab of frames. Places are used again; nothing is allocated once it has been
/// as full as it gets.
#[derive(Debug)]
pub(super) struct Store<F> {
    /// What the wheels move.
    pub(super) nodes: Vec<Node<F>>,
    /// Unused places, linked through `next`.
    free: u32,
    len: usize,
    capacity: usize,
}

impl<F> Store<F> {
    pub(super) fn new(capacity: usize) -> Self {
        let mut store = Self {
            nodes: Vec::new(),
            free: NIL,
            len: 0,
            capacity: 0,
        };
        store.set_capacity(capacity);
        store
    }

    /// Changes what it should hold at most. Nothing that it holds is lost.
    pub(super) fn set_capacity(&mut self, capacity: usize) {
        self.capacity = capacity.clamp(1, 1 << 24);
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
    pub(super) fn put(&mut self, frame: F, departure: Position, guest: u32) -> u32 {
        self.len += 1;
        let index = self.free;
        let Some(node) = self.nodes.get_mut(index as usize) else {
            return self.grow(frame, departure, guest);
        };
        self.free = node.next;
        node.departure = departure;
        node.guest = guest;
        // Nothing is in an unused place: nothing has to be dropped.
        mem::forget(node.frame.replace(frame));
        index
    }

    #[inline(never)]
    fn grow(&mut self, frame: F, departure: Position, guest: u32) -> u32 {
        let index = self.nodes.len() as u32;
        self.nodes.push(Node {
            departure,
            next: index,
            guest,
            frame: Some(frame),
        });
        index
    }

    /// Takes a frame out; its place is free.
    #[inline(always)]
    pub(super) fn take(&mut self, index: u32) -> Option<F> {
        let node = self.nodes.get_mut(index as usize)?;
        let frame = node.frame.take()?;
        self.len -= 1;
        node.next = self.free;
        self.free = index;
        Some(frame)
    }
}

//! The waiting frames of all flows.

use super::super::codel::Line;
use super::super::spare::{Spare, shrink};
use super::super::{Backlog, Queued};
use super::NIL;
use crate::Frame;
use tailbound_units::Nanos;

/// The frames of one flow, linked through [`Node::next`].
#[derive(Debug)]
pub(super) struct Waiting {
    head: u32,
    tail: u32,
    /// Bytes as in [`Frame::len`].
    pub(super) bytes: u64,
}

impl Waiting {
    pub(super) const NONE: Self = Self {
        head: NIL,
        tail: NIL,
        bytes: 0,
    };
}

/// The frames of all flows: a slab that grows to the largest backlog so far, and shrinks while it
/// is unused.
#[derive(Debug)]
pub(super) struct Frames<F> {
    nodes: Vec<Node<F>>,
    /// Unused nodes, linked through [`Node::next`].
    free: u32,
    /// Nodes from this one on are unused, too, and not linked.
    fresh: u32,
    pub(super) backlog: Backlog,
}

#[derive(Debug)]
struct Node<F> {
    queued: Option<Queued<F>>,
    next: u32,
}

impl<F: Frame> Frames<F> {
    pub(super) fn new() -> Self {
        Self {
            nodes: Vec::new(),
            free: NIL,
            fresh: 0,
            backlog: Backlog::default(),
        }
    }

    /// Adds a place behind the frames of a flow, for a frame of these bytes and this memory. The
    /// caller writes the frame there directly, so that it moves only once.
    #[inline]
    pub(super) fn append(
        &mut self,
        flow: &mut Waiting,
        (bytes, memory): (u64, u64),
    ) -> &mut Option<Queued<F>> {
        // Separate statements, so that the compiler does not combine them into a vector.
        self.backlog.packets += 1;
        flow.bytes += bytes;
        self.backlog.memory.0 += memory;
        if self.free as usize >= self.nodes.len() {
            self.grow();
        }
        let index = self.free;
        if flow.head == NIL {
            flow.head = index;
        } else {
            self.nodes[flow.tail as usize].next = index;
        }
        flow.tail = index;
        self.backlog.bytes.0 += bytes;
        let node = &mut self.nodes[index as usize];
        self.free = node.next;
        node.next = NIL;
        &mut node.queued
    }

    /// Links an unused node, or adds one.
    #[inline(never)]
    fn grow(&mut self) {
        self.free = self.fresh;
        match self.nodes.get_mut(self.fresh as usize) {
            Some(unused) => unused.next = NIL,
            None => self.nodes.push(Node {
                queued: None,
                next: NIL,
            }),
        }
        self.fresh += 1;
    }

    /// Number of frames for which there is memory.
    #[cfg(test)]
    pub(super) const fn places(&self) -> usize {
        self.nodes.capacity()
    }

    /// Frees some nodes, if none was used since the last call.
    pub(super) fn give_back(&mut self) -> Spare {
        if self.backlog.packets > 0 {
            return Spare::InUse;
        }
        if self.fresh > 0 {
            self.free = NIL;
            self.fresh = 0;
            return Spare::InUse;
        }
        shrink(&mut self.nodes)
    }

    /// Takes the frame at a flow's head.
    #[inline]
    pub(super) fn pop(&mut self, flow: &mut Waiting) -> Option<Queued<F>> {
        let index = flow.head;
        let node = self.nodes.get_mut(index as usize)?;
        // Separate from the bytes, as above.
        self.backlog.packets -= 1;
        flow.head = node.next;
        node.next = self.free;
        self.free = index;
        if let Some(Queued { frame, .. }) = &node.queued {
            let bytes = frame.len() as u64;
            flow.bytes -= bytes;
            self.backlog.bytes.0 -= bytes;
            self.backlog.memory.0 -= frame.truesize().0;
        }
        // The value moves as a whole.
        node.queued.take()
    }
}

/// The frames of one flow, for its control loop.
pub(super) struct FlowLine<'a, F> {
    pub(super) frames: &'a mut Frames<F>,
    pub(super) waiting: &'a mut Waiting,
}

impl<F: Frame> FlowLine<'_, F> {
    fn head_mut(&mut self) -> Option<&mut F> {
        let node = self.frames.nodes.get_mut(self.waiting.head as usize)?;
        node.queued.as_mut().map(|queued| &mut queued.frame)
    }
}

impl<F: Frame> Line for FlowLine<'_, F> {
    #[inline]
    fn head(&self) -> Option<(Nanos, u64)> {
        let node = self.frames.nodes.get(self.waiting.head as usize)?;
        let queued = node.queued.as_ref()?;
        let behind = self.waiting.bytes - queued.frame.len() as u64;
        Some((queued.enqueued, behind))
    }

    fn drop_head(&mut self) {
        self.frames.pop(self.waiting);
    }

    fn mark_head(&mut self) -> bool {
        self.head_mut().is_some_and(Frame::mark_congestion)
    }

    fn mark_scalable_head(&mut self) -> bool {
        let head = self.head_mut();
        head.is_some_and(|frame| frame.is_scalable() && frame.mark_congestion())
    }
}

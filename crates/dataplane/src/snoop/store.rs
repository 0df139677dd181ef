//! Retained frames: acknowledged early and not yet by the guest, in a list for each connection.

use super::seq::Seq;
use tailbound_units::Bytes;

const NIL: u32 = 0;

/// The frames of one connection, in the order of their bytes.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Chain {
    head: u32,
    tail: u32,
    /// Memory of the frames.
    held: u32,
}

impl Chain {
    pub(super) const fn held(self) -> Bytes {
        Bytes(self.held as u64)
    }

    /// Reads a part of it.
    pub(super) const fn part(self) -> u32 {
        self.head
    }

    pub(super) const fn is_empty(self) -> bool {
        self.head == NIL
    }
}

#[derive(Debug)]
pub(super) struct Node<F> {
    /// `None` in a free node.
    frame: Option<F>,
    pub(super) seq: Seq,
    pub(super) end: Seq,
    truesize: u32,
    next: u32,
}

impl<F> Node<F> {
    pub(super) const fn frame(&self) -> Option<&F> {
        self.frame.as_ref()
    }
}

/// The frames of all connections.
#[derive(Debug)]
pub(super) struct Store<F> {
    nodes: Vec<Node<F>>,
    free: u32,
    held: Bytes,
}

impl<F> Store<F> {
    pub(super) const fn new() -> Self {
        Self {
            nodes: Vec::new(),
            free: NIL,
            held: Bytes(0),
        }
    }

    /// Memory of all frames.
    pub(super) const fn held(&self) -> Bytes {
        self.held
    }

    /// Adds a frame behind all others of its connection.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "for each segment that is kept")]
    pub(super) fn push(&mut self, chain: &mut Chain, frame: F, truesize: Bytes, bytes: [Seq; 2]) {
        let [seq, end] = bytes;
        let node = Node {
            frame: Some(frame),
            seq,
            end,
            truesize: truesize.0 as u32,
            next: NIL,
        };
        let index = if self.free == NIL {
            self.nodes.push(node);
            self.nodes.len() as u32
        } else {
            let index = self.free;
            let unused = &mut self.nodes[index as usize - 1];
            self.free = unused.next;
            *unused = node;
            index
        };
        match (chain.tail as usize).checked_sub(1) {
            Some(tail) => self.nodes[tail].next = index,
            None => chain.head = index,
        }
        chain.tail = index;
        chain.held += truesize.0 as u32;
        self.held += truesize;
    }

    /// Frees the frames that end at `up_to` or before.
    #[inline]
    pub(super) fn free(&mut self, chain: &mut Chain, up_to: Seq) {
        while let Some(head) = (chain.head as usize).checked_sub(1)
            && !self.nodes[head].end.is_after(up_to)
        {
            self.pop(chain, head);
        }
    }

    /// Frees all frames of a connection.
    pub(super) fn clear(&mut self, chain: &mut Chain) {
        while let Some(head) = (chain.head as usize).checked_sub(1) {
            self.pop(chain, head);
        }
    }

    #[inline]
    fn pop(&mut self, chain: &mut Chain, head: usize) {
        let node = &mut self.nodes[head];
        node.frame = None;
        let index = std::mem::replace(&mut chain.head, node.next);
        node.next = std::mem::replace(&mut self.free, index);
        chain.held -= node.truesize;
        self.held = Bytes(self.held.0 - u64::from(node.truesize));
        if chain.head == NIL {
            chain.tail = NIL;
        }
    }

    /// The frames of a connection, in order.
    pub(super) fn of(&self, chain: Chain) -> impl Iterator<Item = &Node<F>> {
        let node = |index: u32| self.nodes.get((index as usize).checked_sub(1)?);
        std::iter::successors(node(chain.head), move |last| node(last.next))
    }

    /// Returns the frame with the byte at `at`.
    pub(super) fn at(&self, chain: Chain, at: Seq) -> Option<&Node<F>> {
        let mut index = chain.head;
        loop {
            let node = self.nodes.get((index as usize).checked_sub(1)?)?;
            if node.end.is_after(at) {
                return (!node.seq.is_after(at)).then_some(node);
            }
            index = node.next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_found_by_their_bytes_and_freed_in_order() {
        let mut store = Store::new();
        let (mut one, mut other) = (Chain::default(), Chain::default());
        for n in 0..4_u32 {
            let start = Seq(u32::MAX - 150) + 100 * n;
            store.push(&mut one, n, Bytes(10), [start, start + 100]);
            store.push(&mut other, 100 + n, Bytes(5), [start, start + 100]);
        }
        let start = Seq(u32::MAX - 150);
        let found = |store: &Store<u32>, at| store.at(one, at).and_then(Node::frame).copied();
        assert_eq!(found(&store, start + 199), Some(1));
        assert_eq!(found(&store, start + 400), None);
        assert_eq!((store.held(), one.held()), (Bytes(60), Bytes(40)));
        let mut freed = one;
        store.free(&mut freed, start + 299);
        assert_eq!((store.held(), freed.held()), (Bytes(40), Bytes(20)));
        assert!(store.at(freed, start + 100).is_none());
        store.clear(&mut freed);
        assert!(freed.is_empty());
        store.push(&mut other, 7, Bytes(5), [start + 400, start + 401]);
        assert_eq!(store.nodes.len(), 8, "nodes are used again");
        store.clear(&mut other);
        assert_eq!(store.held(), Bytes(0));
    }
}

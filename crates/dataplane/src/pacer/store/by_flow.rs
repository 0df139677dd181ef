//! Queues by flow behind the first frame of a line.
//!
//! Order is promised within a flow only. So the line of a destination whose waiting frames belong to
//! several connections serves these in turn: deficit round robin with a list of new flows, as FQ-CoDel (RFC
//! 8290, 4.2). A flow that had no frame behind the first goes before the others once, for one
//! quantum. Acknowledgements and other small flows then wait for the first frame of their line
//! only, which may be released already, and not for the data in front of them. A flow that was new
//! goes behind the others before it can be new again, so it starves none.
//!
//! A line needs a [`FlowQueues`] only while two flows wait in it; all others are plain lists. A flow
//! has a queue of its own while at most [`QUEUES`] flows wait. Further flows share the queue at
//! which their search begins, so the number of queues is bounded for any traffic. Hashes of
//! connections have secret keys: a guest cannot choose flows that share a queue.

use super::super::index::{FrameIndex, QueuesIndex, Table};
use super::Places;
use crate::Connection;
use crate::queue::codel::Control;
use crate::queue::turns::{TakesTurns, Turn, Turns};
use std::mem;
use tailbound_units::{Bytes, WireBytes};

/// Number of queues of a line: a power of two, for the upper bits of a hash.
pub(in crate::pacer) const QUEUES: usize = 16;

const _: () = assert!(
    size_of::<FlowQueues>() <= 1_408,
    "docs/explanation/dataplane.md"
);

/// Bytes on the wire that a flow may send in its turn: a full frame.
pub(in crate::pacer) const QUANTUM: WireBytes = WireBytes(1538);

/// Order of the frames behind the first of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::pacer) struct Behind(u64);

impl Behind {
    /// One list of frames of one flow.
    #[inline(always)]
    pub(in crate::pacer) const fn of_flow(flow: Connection) -> Self {
        Self(flow.0 as u64)
    }

    /// Queues by flow, with this number in their table.
    const fn by_flow(index: QueuesIndex) -> Self {
        Self(1 << 32 | index.number() as u64)
    }

    #[inline(always)]
    pub(in crate::pacer) const fn is_by_flow(self) -> bool {
        self.0 >> 32 != 0
    }

    /// Number of the queues by flow; `None` for a list.
    #[inline(always)]
    pub(in crate::pacer) const fn queues(self) -> Option<QueuesIndex> {
        if self.is_by_flow() {
            Some(QueuesIndex::new(self.0 as u32 as usize))
        } else {
            None
        }
    }

    /// The flow of a list.
    const fn flow(self) -> Connection {
        Connection(self.0 as u32)
    }
}

/// The frames of one flow, or of several that share the queue.
#[derive(Debug)]
struct FlowQueue {
    flow: Connection,
    is_shared: bool,
    /// The first frame and the last.
    head: FrameIndex,
    tail: FrameIndex,
    wire: WireBytes,
    memory: Bytes,
    /// State of `CoDel`, while the first frame of the line belongs to another queue.
    control: Control,
    turn: Turn,
}

impl FlowQueue {
    const EMPTY: Self = Self {
        flow: Connection(0),
        is_shared: false,
        head: FrameIndex::NONE,
        tail: FrameIndex::NONE,
        wire: WireBytes::ZERO,
        memory: Bytes(0),
        control: Control::NEW,
        turn: Turn::NONE,
    };
}

impl TakesTurns for FlowQueue {
    #[inline]
    fn turn(&self) -> &Turn {
        &self.turn
    }
    #[inline]
    fn turn_mut(&mut self) -> &mut Turn {
        &mut self.turn
    }
}

/// The frames behind the first of a line, by flow. The module describes it.
#[derive(Debug)]
pub(in crate::pacer) struct FlowQueues {
    queues: [FlowQueue; QUEUES],
    turns: Turns,
    /// The queue of the first frame of the line.
    current: u32,
    /// Length of all frames on the wire.
    wire: WireBytes,
}

/// A list of frames of one flow.
#[derive(Debug, Clone, Copy)]
pub(in crate::pacer) struct FlowList {
    pub(in crate::pacer) behind: Behind,
    pub(in crate::pacer) head: FrameIndex,
    pub(in crate::pacer) tail: FrameIndex,
    pub(in crate::pacer) wire: WireBytes,
    pub(in crate::pacer) memory: Bytes,
}

impl FlowQueues {
    const EMPTY: Self = Self {
        queues: [const { FlowQueue::EMPTY }; QUEUES],
        turns: Turns::NONE,
        current: 0,
        wire: WireBytes::ZERO,
    };

    /// Begins with the frames of one flow, which counts as the flow of the first frame, too.
    fn begin(&mut self, list: FlowList) {
        debug_assert_eq!(self.wire, WireBytes::ZERO, "another line uses the queues");
        let flow = list.behind.flow();
        let at = home(flow);
        let queue = &mut self.queues[at];
        queue.flow = flow;
        queue.is_shared = false;
        (queue.head, queue.tail) = (list.head, list.tail);
        (queue.wire, queue.memory) = (list.wire, list.memory);
        self.wire = list.wire;
        self.current = at as u32;
        self.turns
            .resume(&mut self.queues, at as u32, QUANTUM.0.cast_signed());
    }

    /// Finds the queue of a flow, or assigns one.
    fn find(&mut self, flow: Connection) -> usize {
        let home = home(flow);
        let mut unused = None;
        for probe in 0..QUEUES {
            let at = (home + probe) % QUEUES;
            let queue = &self.queues[at];
            if !queue.turn.active {
                unused = unused.or(Some(at));
            } else if queue.flow == flow {
                return at;
            }
        }
        let first = &mut self.queues[home];
        // Frames of the flow may wait there, so that a queue of its own would reorder them.
        if first.turn.active && first.is_shared {
            return home;
        }
        let Some(at) = unused else {
            first.is_shared = true;
            return home;
        };
        let queue = &mut self.queues[at];
        queue.is_shared = false;
        if mem::replace(&mut queue.flow, flow) != flow {
            queue.control = Control::NEW;
        }
        at
    }

    /// Adds a frame.
    pub(in crate::pacer) fn push<F>(
        &mut self,
        places: &mut Places<F>,
        index: FrameIndex,
        flow: Connection,
    ) {
        let first = home(flow);
        let queue = &self.queues[first];
        let at = if queue.turn.active && queue.flow == flow {
            first
        } else {
            self.find(flow)
        };
        let (wire, memory) = {
            let waiting = &places[index];
            (waiting.wire, waiting.memory)
        };
        let queue = &mut self.queues[at];
        queue.wire += wire;
        queue.memory.0 += memory.0;
        self.wire += wire;
        if queue.head.is_none() {
            queue.head = index;
        } else {
            places[queue.tail].next = index;
        }
        queue.tail = index;
        if !queue.turn.active {
            let quantum = QUANTUM.0.cast_signed();
            self.turns.begin(&mut self.queues, at as u32, quantum);
        }
    }

    /// Removes the frame whose turn it is, which is then the first of the line. Exchanges the state
    /// of `CoDel` if its flow is another one.
    pub(in crate::pacer) fn next<F>(
        &mut self,
        places: &mut Places<F>,
        control: &mut Control,
    ) -> FrameIndex {
        let at = loop {
            let turn = self
                .turns
                .pick(&mut self.queues, QUANTUM.0.cast_signed())
                .expect("a line by flow has frames behind its first");
            if self.queues[turn as usize].head.is_some() {
                break turn;
            }
            self.turns.end(&mut self.queues, turn);
        };
        let before = mem::replace(&mut self.current, at);
        if before != at {
            self.queues[before as usize].control = *control;
            *control = self.queues[at as usize].control;
        }
        self.remove(places, at as usize)
    }

    /// Removes the first frame of a queue, and charges it.
    fn remove<F>(&mut self, places: &mut Places<F>, at: usize) -> FrameIndex {
        let queue = &mut self.queues[at];
        let index = queue.head;
        let waiting = &mut places[index];
        queue.head = mem::replace(&mut waiting.next, FrameIndex::NONE);
        queue.wire -= waiting.wire;
        queue.memory.0 -= waiting.memory.0;
        queue.turn.deficit -= waiting.wire.0.cast_signed();
        self.wire -= waiting.wire;
        index
    }

    /// Replaces the first frame of the line, which was dropped, by the next one of its flow, if
    /// there is one. The dropped frame, of this length, costs its flow nothing.
    pub(in crate::pacer) fn replace<F>(
        &mut self,
        places: &mut Places<F>,
        dropped: WireBytes,
    ) -> Option<FrameIndex> {
        let at = self.current as usize;
        self.queues[at].turn.deficit += dropped.0.cast_signed();
        self.queues[at]
            .head
            .is_some()
            .then(|| self.remove(places, at))
    }

    /// Removes the first frame of the flow with the most memory, to drop it.
    pub(in crate::pacer) fn remove_of_largest<F>(
        &mut self,
        places: &mut Places<F>,
    ) -> Option<FrameIndex> {
        let at = (0..QUEUES).max_by_key(|&at| (self.queues[at].memory, QUEUES - at))?;
        if self.queues[at].head.is_none() {
            return None;
        }
        let index = self.remove(places, at);
        self.queues[at].turn.deficit += places[index].wire.0.cast_signed();
        Some(index)
    }

    /// Length of the frames behind the first that belong to its flow.
    pub(in crate::pacer) fn behind(&self) -> WireBytes {
        self.queues[self.current as usize].wire
    }

    /// Returns the frames as a list, if none are left or all are of the flow of the line's first and
    /// no other one has a turn, and empties the queues.
    fn end(&mut self) -> Option<FlowList> {
        let queue = &self.queues[self.current as usize];
        if self.wire > WireBytes::ZERO {
            let only = self.turns.only(&self.queues)?;
            debug_assert_eq!(
                only, self.current,
                "the flow that was served keeps its turn"
            );
            if queue.is_shared {
                return None;
            }
        }
        let list = FlowList {
            behind: Behind::of_flow(queue.flow),
            head: queue.head,
            tail: queue.tail,
            wire: queue.wire,
            memory: queue.memory,
        };
        self.clear();
        Some(list)
    }

    /// Forgets all frames.
    fn clear(&mut self) {
        self.turns = Turns::NONE;
        self.wire = WireBytes::ZERO;
        for queue in &mut self.queues {
            queue.turn.active = false;
            queue.head = FrameIndex::NONE;
            queue.wire = WireBytes::ZERO;
            queue.memory = Bytes(0);
        }
    }

    /// Links all frames behind one, each flow's in order, and empties the queues.
    fn link<F>(&mut self, places: &mut Places<F>, mut last: FrameIndex) {
        for queue in self.queues.iter().filter(|queue| queue.head.is_some()) {
            places[last].next = queue.head;
            last = queue.tail;
        }
        self.clear();
    }

    /// The first frame of each queue.
    fn heads(&self) -> impl Iterator<Item = FrameIndex> {
        self.queues.iter().map(|queue| queue.head)
    }
}

/// The queue at which the search for a flow's begins: the hash's upper bits, which are evenly
/// distributed.
#[inline]
const fn home(flow: Connection) -> usize {
    flow.0 as usize >> (u32::BITS - QUEUES.ilog2())
}

/// All queues by flow: each is of one line, or unused. There are never more than half of the
/// waiting frames, since a line by flow has two, and never more than destinations with a limit. The
/// pacer's memory does not count them.
#[derive(Debug)]
pub(in crate::pacer) struct FlowTable {
    all: Table<QueuesIndex, FlowQueues>,
    unused: Vec<QueuesIndex>,
}

impl FlowTable {
    pub(in crate::pacer) const fn new() -> Self {
        Self {
            all: Table::new(),
            unused: Vec::new(),
        }
    }

    /// Returns the queues with this number.
    pub(in crate::pacer) fn at(&self, index: QueuesIndex) -> &FlowQueues {
        &self.all[index]
    }

    /// Returns them for changes.
    pub(in crate::pacer) fn at_mut(&mut self, index: QueuesIndex) -> &mut FlowQueues {
        &mut self.all[index]
    }

    /// Begins queues by flow with the frames of one flow.
    pub(in crate::pacer) fn begin(&mut self, list: FlowList) -> Behind {
        let unused = self.unused.pop();
        let index = unused.unwrap_or_else(|| self.all.push(FlowQueues::EMPTY));
        self.at_mut(index).begin(list);
        Behind::by_flow(index)
    }

    /// Ends queues by flow that are not needed any more, and returns the frames as a list: `None` if
    /// the queues are needed.
    pub(in crate::pacer) fn end(&mut self, index: QueuesIndex) -> Option<FlowList> {
        let list = self.at_mut(index).end()?;
        self.unused.push(index);
        Some(list)
    }

    /// Ends queues by flow, and links their frames behind `last`.
    pub(in crate::pacer) fn link<F>(
        &mut self,
        index: QueuesIndex,
        places: &mut Places<F>,
        last: FrameIndex,
    ) {
        self.at_mut(index).link(places, last);
        self.unused.push(index);
    }

    /// The first frame of each queue of this number; some are `NONE`.
    pub(in crate::pacer) fn heads(&self, index: QueuesIndex) -> impl Iterator<Item = FrameIndex> {
        self.at(index).heads()
    }

    /// Number of lines by flow.
    #[cfg(test)]
    fn in_use(&self) -> usize {
        self.all.len() - self.unused.len()
    }

    /// Frees all memory, if nothing is in use.
    pub(in crate::pacer) fn give_back(&mut self) {
        if self.unused.len() == self.all.len() {
            *self = Self::new();
        }
    }
}

#[cfg(test)]
mod tests;

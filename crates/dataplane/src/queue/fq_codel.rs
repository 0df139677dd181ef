//! A queue for each guest, each under `CoDel`, served in turn by bytes (RFC 8290;
//! Small is Better, 4.2).
//!
//! A flow here is all that one guest of this host sends: guests, not connections,
//! are what must not hold each other up, and a guest cannot have more by opening
//! more connections. What comes from outside is one flow more. A flow that was
//! idle is new and goes before the old ones once (RFC 8290, 4.2).

use super::codel::{Control, FULL_FRAME, Line, Parameters};
use super::{Backlog, QueueStats, Queued};
use crate::{Frame, GuestId};
use serde::{Deserialize, Serialize};
use tailbound_units::{Bytes, Nanos};

/// Parameters and limits of FQ-CoDel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FqCodelConfig {
    /// See [`super::CodelConfig::target`]; 5 ms.
    pub target: Nanos,
    /// See [`super::CodelConfig::interval`]; 100 ms.
    pub interval: Nanos,
    /// Marks in place of dropping where the sender takes marks; on, as in Linux's
    /// `fq_codel`.
    pub ecn: bool,
    /// Bytes that a flow may send before the next has its turn; 1514, one full
    /// Ethernet frame (RFC 8290, 5.2.4).
    pub quantum: Bytes,
    /// Most packets in all flows; 10,240 (RFC 8290, 5.2.3).
    pub packets: usize,
    /// Most memory that all flows hold; 32 MiB, as in Linux.
    pub memory: Bytes,
    /// How many flows have a queue of their own; 1024 (RFC 8290, 5.2.5). Guests
    /// beyond that share.
    pub flows: usize,
}

impl Default for FqCodelConfig {
    fn default() -> Self {
        Self {
            target: Nanos::from_millis(5),
            interval: Nanos::from_millis(100),
            ecn: true,
            quantum: Bytes(1514),
            packets: 10_240,
            memory: Bytes(32 << 20),
            flows: 1024,
        }
    }
}

/// Most packets that one overload drops at once (RFC 8290, 4.1.2), so that the
/// search for the longest flow is paid for by many packets.
const BATCH: usize = 64;

/// End of a list.
const NIL: u32 = u32::MAX;

/// FQ-CoDel. See the module.
#[derive(Debug)]
pub struct FqCodel<F> {
    config: FqCodelConfig,
    /// Indexed by guest; grows to the highest guest seen.
    flows: Vec<Flow>,
    new: FlowList,
    old: FlowList,
    frames: Frames<F>,
}

#[derive(Debug)]
struct Flow {
    waiting: Waiting,
    /// Bytes it may still send in this turn.
    deficit: i64,
    control: Control,
    /// The next flow in the list it is in.
    next: u32,
    active: bool,
}

impl Flow {
    const NEW: Self = Self {
        waiting: Waiting {
            head: NIL,
            tail: NIL,
            bytes: 0,
        },
        deficit: 0,
        control: Control::NEW,
        next: NIL,
        active: false,
    };
}

/// The frames of one flow, linked through [`Node::next`].
#[derive(Debug)]
struct Waiting {
    head: u32,
    tail: u32,
    bytes: u64,
}

/// The frames of all flows: a slab that grows to the largest backlog seen.
#[derive(Debug)]
struct Frames<F> {
    nodes: Vec<Node<F>>,
    /// Unused nodes, linked through [`Node::next`].
    free: u32,
    backlog: Backlog,
    /// The longest frame seen.
    largest: u64,
}

#[derive(Debug)]
struct Node<F> {
    queued: Option<Queued<F>>,
    next: u32,
}

impl<F: Frame> Frames<F> {
    #[inline]
    fn append(&mut self, flow: &mut Waiting, queued: Queued<F>) {
        let len = queued.frame.len();
        self.backlog.add(&queued.frame);
        self.largest = self.largest.max(len as u64);
        flow.bytes += len as u64;
        let index = if let Some(node) = self.nodes.get_mut(self.free as usize) {
            let index = self.free;
            self.free = node.next;
            node.queued = Some(queued);
            node.next = NIL;
            index
        } else {
            self.nodes.push(Node {
                queued: Some(queued),
                next: NIL,
            });
            self.nodes.len() as u32 - 1
        };
        if flow.head == NIL {
            flow.head = index;
        } else {
            self.nodes[flow.tail as usize].next = index;
        }
        flow.tail = index;
    }

    /// Takes the frame at a flow's head.
    #[inline]
    fn pop(&mut self, flow: &mut Waiting) -> Option<Queued<F>> {
        let index = flow.head;
        let node = self.nodes.get_mut(index as usize)?;
        let queued = node.queued.take()?;
        flow.head = node.next;
        node.next = self.free;
        self.free = index;
        let len = queued.frame.len();
        self.backlog.remove(&queued.frame);
        flow.bytes -= len as u64;
        Some(queued)
    }
}

/// One flow's frames, to its control loop.
struct FlowLine<'a, F> {
    frames: &'a mut Frames<F>,
    flow: &'a mut Waiting,
}

impl<F: Frame> Line for FlowLine<'_, F> {
    #[inline]
    fn head(&self) -> Option<(Nanos, bool)> {
        let node = self.frames.nodes.get(self.flow.head as usize)?;
        let queued = node.queued.as_ref()?;
        let behind = self.flow.bytes - queued.frame.len() as u64;
        Some((queued.enqueued, behind <= self.frames.largest))
    }

    fn drop_head(&mut self) {
        self.frames.pop(self.flow);
    }

    fn mark_head(&mut self) -> bool {
        let node = self.frames.nodes.get_mut(self.flow.head as usize);
        node.and_then(|node| node.queued.as_mut())
            .is_some_and(|queued| queued.frame.mark_congestion())
    }
}

/// Flows in the order of their turns, linked through [`Flow::next`].
#[derive(Debug)]
struct FlowList {
    head: u32,
    tail: u32,
}

impl FlowList {
    const EMPTY: Self = Self {
        head: NIL,
        tail: NIL,
    };

    fn push(&mut self, flows: &mut [Flow], flow: u32) {
        flows[flow as usize].next = NIL;
        if self.head == NIL {
            self.head = flow;
        } else {
            flows[self.tail as usize].next = flow;
        }
        self.tail = flow;
    }
}

impl<F: Frame> FqCodel<F> {
    pub(super) fn new(config: FqCodelConfig) -> Self {
        Self {
            config,
            flows: Vec::new(),
            new: FlowList::EMPTY,
            old: FlowList::EMPTY,
            frames: Frames {
                nodes: Vec::new(),
                free: NIL,
                backlog: Backlog::default(),
                largest: FULL_FRAME,
            },
        }
    }

    #[inline]
    pub(super) fn enqueue(&mut self, queued: Queued<F>, stats: &mut QueueStats) {
        self.restore(queued);
        // It is the longest flow that loses, which need not be this packet's.
        while self.is_over() {
            self.drop_from_longest(stats);
        }
    }

    fn is_over(&self) -> bool {
        let Backlog {
            packets, memory, ..
        } = self.frames.backlog;
        packets > self.config.packets || memory > self.config.memory
    }

    #[inline]
    pub(super) fn restore(&mut self, queued: Queued<F>) {
        let index = self.flow_of(queued.frame.source());
        let flow = &mut self.flows[index as usize];
        self.frames.append(&mut flow.waiting, queued);
        if !flow.active {
            flow.active = true;
            flow.deficit = self.config.quantum();
            self.new.push(&mut self.flows, index);
        }
    }

    #[inline]
    pub(super) fn dequeue(&mut self, now: Nanos, stats: &mut QueueStats) -> Option<Queued<F>> {
        let parameters = Parameters {
            target: self.config.target,
            interval: self.config.interval,
            ecn: self.config.ecn,
        };
        loop {
            let from_new = self.new.head != NIL;
            let list = if from_new {
                &mut self.new
            } else {
                &mut self.old
            };
            let index = list.head;
            let flow = self.flows.get_mut(index as usize)?;
            if flow.deficit > 0 {
                let mut line = FlowLine {
                    frames: &mut self.frames,
                    flow: &mut flow.waiting,
                };
                if flow.control.admit(parameters, now, stats, &mut line) {
                    let queued = self.frames.pop(&mut flow.waiting)?;
                    let len = i64::try_from(queued.frame.len()).unwrap_or(i64::MAX);
                    flow.deficit = flow.deficit.saturating_sub(len);
                    return Some(queued);
                }
                // An empty new flow waits among the old ones for a turn, so that
                // it cannot become new again at once (RFC 8290, 4.2).
                flow.active = from_new;
            } else {
                flow.deficit += self.config.quantum();
            }
            list.head = flow.next;
            if flow.active {
                self.old.push(&mut self.flows, index);
            }
        }
    }

    pub(super) fn backlog(&self) -> Backlog {
        self.frames.backlog
    }

    pub(super) fn drain(&mut self, into: &mut Vec<Queued<F>>) {
        for flow in &mut self.flows {
            while let Some(queued) = self.frames.pop(&mut flow.waiting) {
                into.push(queued);
            }
        }
    }

    /// The flow of a source: 0 for the outside, one for each guest.
    #[inline]
    fn flow_of(&mut self, source: Option<GuestId>) -> u32 {
        let index = match source {
            None => 0,
            Some(guest) => 1 + guest.slot() as u32 % self.config.guests(),
        };
        if index as usize >= self.flows.len() {
            self.grow(index);
        }
        index
    }

    #[cold]
    fn grow(&mut self, index: u32) {
        self.flows.resize_with(index as usize + 1, || Flow::NEW);
    }

    /// Drops from the head of the flow with the most bytes: half of them, or 64
    /// packets (RFC 8290, 4.1.2).
    #[cold]
    fn drop_from_longest(&mut self, stats: &mut QueueStats) {
        let Some(longest) = self.flows.iter_mut().max_by_key(|flow| flow.waiting.bytes) else {
            return;
        };
        let half = longest.waiting.bytes / 2;
        for _ in 0..BATCH {
            if self.frames.pop(&mut longest.waiting).is_none() {
                break;
            }
            stats.drops.overload += 1;
            if longest.waiting.bytes <= half {
                break;
            }
        }
    }
}

impl FqCodelConfig {
    fn quantum(&self) -> i64 {
        // At least a minimal frame, or a turn would take many rounds.
        self.quantum.0.clamp(64, 1 << 30).cast_signed()
    }

    /// How many guests have a flow of their own.
    fn guests(&self) -> u32 {
        (self.flows.clamp(2, 1 << 16) - 1) as u32
    }
}

#[cfg(test)]
mod tests;

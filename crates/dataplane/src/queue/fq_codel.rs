//! A queue for each guest, each under `CoDel`, served in turn by bytes (RFC 8290;
//! Small is Better, 4.2).
//!
//! A flow here is all that one guest of this host sends: guests, not connections,
//! are what must not hold each other up, and a guest cannot have more by opening
//! more connections. What comes from outside is one flow more. A flow that was
//! idle is new and goes before the old ones once (RFC 8290, 4.2).

use super::codel::{Control, FULL_FRAME, Parameters};
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
    /// Most bytes in all flows; 32 MiB, as in Linux: beyond 2.5 s at 100 Mbit/s.
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
    nodes: Vec<Node<F>>,
    free: u32,
    backlog: Backlog,
    largest: u64,
}

#[derive(Debug)]
struct Flow {
    head: u32,
    tail: u32,
    backlog: Backlog,
    /// Bytes it may still send in this turn.
    deficit: i64,
    control: Control,
    /// The next flow in the list it is in.
    next: u32,
    active: bool,
}

impl Flow {
    const fn new() -> Self {
        Self {
            head: NIL,
            tail: NIL,
            backlog: Backlog {
                packets: 0,
                bytes: Bytes::ZERO,
            },
            deficit: 0,
            control: Control::NEW,
            next: NIL,
            active: false,
        }
    }
}

#[derive(Debug)]
struct Node<F> {
    queued: Option<Queued<F>>,
    next: u32,
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

    /// Takes the flow at the head off; there is one.
    fn pop(&mut self, flows: &[Flow]) -> u32 {
        let flow = self.head;
        self.head = flows[flow as usize].next;
        flow
    }
}

impl<F: Frame> FqCodel<F> {
    pub(super) fn new(config: FqCodelConfig) -> Self {
        Self {
            config,
            flows: Vec::new(),
            new: FlowList::EMPTY,
            old: FlowList::EMPTY,
            nodes: Vec::new(),
            free: NIL,
            backlog: Backlog::default(),
            largest: FULL_FRAME,
        }
    }

    pub(super) fn enqueue(&mut self, queued: Queued<F>, stats: &mut QueueStats) {
        self.restore(queued);
        // It is the longest flow that loses, which need not be this packet's.
        while self.backlog.packets > self.config.packets || self.backlog.bytes > self.config.memory
        {
            self.drop_from_longest(stats);
        }
    }

    pub(super) fn restore(&mut self, queued: Queued<F>) {
        let index = self.flow_of(queued.frame.source());
        let len = queued.frame.len();
        self.append(index, queued);
        self.backlog.add(len);
        let flow = &mut self.flows[index as usize];
        flow.backlog.add(len);
        if !flow.active {
            flow.active = true;
            flow.deficit = self.config.quantum();
            self.new.push(&mut self.flows, index);
        }
    }

    pub(super) fn dequeue(&mut self, now: Nanos, stats: &mut QueueStats) -> Option<Queued<F>> {
        let parameters = Parameters {
            target: self.config.target,
            interval: self.config.interval,
            ecn: self.config.ecn,
        };
        loop {
            let from_new = self.new.head != NIL;
            let list = if from_new { &self.new } else { &self.old };
            let index = list.head;
            if index == NIL {
                return None;
            }
            let flow = &mut self.flows[index as usize];
            if flow.deficit <= 0 {
                flow.deficit += self.config.quantum();
                self.leave_list(from_new);
                self.old.push(&mut self.flows, index);
                continue;
            }
            let mut control = flow.control;
            let queued = control.dequeue(parameters, now, stats, || self.pop(index));
            let flow = &mut self.flows[index as usize];
            flow.control = control;
            if let Some(queued) = queued {
                let len = i64::try_from(queued.frame.len()).unwrap_or(i64::MAX);
                flow.deficit = flow.deficit.saturating_sub(len);
                return Some(queued);
            }
            // An empty new flow waits among the old ones for a turn, so that it
            // cannot become new again at once (RFC 8290, 4.2).
            self.leave_list(from_new);
            if from_new {
                self.old.push(&mut self.flows, index);
            } else {
                self.flows[index as usize].active = false;
            }
        }
    }

    pub(super) fn backlog(&self) -> Backlog {
        self.backlog
    }

    pub(super) fn drain(&mut self, into: &mut Vec<Queued<F>>) {
        for index in 0..self.flows.len() as u32 {
            while let Some((queued, _)) = self.pop(index) {
                into.push(queued);
            }
        }
    }

    fn leave_list(&mut self, from_new: bool) {
        let list = if from_new {
            &mut self.new
        } else {
            &mut self.old
        };
        list.pop(&self.flows);
    }

    /// The flow of a source: 0 for the outside, one for each guest.
    fn flow_of(&mut self, source: Option<GuestId>) -> u32 {
        let index = match source {
            None => 0,
            Some(GuestId(guest)) => {
                let shared = self.config.flows.clamp(2, 1 << 16) - 1;
                1 + (guest as usize) % shared
            }
        };
        if index >= self.flows.len() {
            self.flows.resize_with(index + 1, Flow::new);
        }
        index as u32
    }

    fn append(&mut self, flow: u32, queued: Queued<F>) {
        let node = Node {
            queued: Some(queued),
            next: NIL,
        };
        let index = if self.free == NIL {
            self.nodes.push(node);
            self.nodes.len() as u32 - 1
        } else {
            let index = self.free;
            self.free = self.nodes[index as usize].next;
            self.nodes[index as usize] = node;
            index
        };
        let flow = &mut self.flows[flow as usize];
        if flow.head == NIL {
            flow.head = index;
        } else {
            self.nodes[flow.tail as usize].next = index;
        }
        flow.tail = index;
    }

    /// Takes the frame at a flow's head, and whether no more than one packet's
    /// worth of bytes is left in that flow.
    fn pop(&mut self, flow: u32) -> Option<(Queued<F>, bool)> {
        let flow = &mut self.flows[flow as usize];
        let index = flow.head;
        let node = self.nodes.get_mut(index as usize)?;
        let queued = node.queued.take()?;
        flow.head = node.next;
        node.next = self.free;
        self.free = index;
        let len = queued.frame.len();
        flow.backlog.remove(len);
        self.backlog.remove(len);
        self.largest = self.largest.max(len as u64);
        Some((queued, flow.backlog.bytes.0 <= self.largest))
    }

    /// Drops from the head of the flow with the most bytes: half of them, or 64
    /// packets (RFC 8290, 4.1.2).
    #[cold]
    fn drop_from_longest(&mut self, stats: &mut QueueStats) {
        let bytes = |index: &u32| self.flows[*index as usize].backlog.bytes;
        let longest = (0..self.flows.len() as u32).max_by_key(bytes).unwrap_or(0);
        let half = bytes(&longest).0 / 2;
        for _ in 0..BATCH {
            if self.pop(longest).is_none() {
                break;
            }
            stats.drops.overload += 1;
            if self.flows[longest as usize].backlog.bytes.0 <= half {
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
}

#[cfg(test)]
mod tests;

//! A queue for each flow, each under `CoDel`, served in turn by bytes (RFC 8290; Small is Better,
//! 4.2): guests in turn, and the flows of each guest in turn.
//!
//! There are two levels of turns. Guests of this host are served like the flows of RFC 8290: one
//! that was idle goes before the others once, and all get the same bytes of the wire, where a short
//! frame takes more than its length. So a guest gains no rate and no speed by opening more
//! connections, or by sending small frames. In a guest's turn its own flows are served the same
//! way: a message does not wait behind the bulk of its own guest. A flow is a bucket of the hash of
//! connections ([`Frame::connection`]). Shares by host, then flow, are those of Linux's `sch_cake`
//! (Høiland-Jørgensen et al., "Piece of CAKE", 2018, III.B); making a guest's new flows wait for
//! its turn is stricter.
//!
//! Traffic from outside counts as one more guest, whose flows are its senders' addresses: a flood
//! from one sender does not delay the others.
//!
//! With one guest the result equals that of RFC 8290 and of Linux, packet by packet.

mod flows;
mod frames;
mod sources;

use super::codel::Parameters;
use super::turns::{TakesTurns as _, Turns};
use super::{Backlog, QueueStats, Queued, Spare};
use crate::Frame;
use crate::ethernet::on_the_wire;
use flows::{Flows, Key};
use frames::{FlowLine, Frames};
use serde::{Deserialize, Serialize};
use sources::Sources;
use std::mem;
use tailbound_units::{Bytes, Nanos};

/// Parameters and limits of FQ-CoDel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FqCodelConfig {
    /// Acceptable standing delay; 5 ms.
    pub target: Nanos,
    /// Time above the target until the queue acts; 100 ms.
    pub interval: Nanos,
    /// Marks packets of ECN-capable senders instead of dropping them; true.
    pub ecn: bool,
    /// Full frame without FCS; 1,514 B.
    pub mtu: Bytes,
    /// Delay from which frames of scalable senders are marked; never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ce_threshold: Option<Nanos>,
    /// Quantum per guest and per flow; 1,514 B (RFC 8290, 5.2.4).
    pub quantum: Bytes,
    /// Limit of all flows, in packets; 10,240 (RFC 8290, 5.2.3).
    pub packets: usize,
    /// Limit of all flows, in memory; 32 MiB.
    pub memory: Bytes,
    /// Hash buckets for each guest's connections; 1,024 (RFC 8290, 5.2.5).
    pub flows: usize,
}

impl Default for FqCodelConfig {
    fn default() -> Self {
        Self {
            target: Nanos::from_millis(5),
            interval: Nanos::from_millis(100),
            ecn: true,
            mtu: Bytes(1514),
            ce_threshold: None,
            quantum: Bytes(1514),
            packets: 10_240,
            memory: Bytes(32 << 20),
            flows: 1024,
        }
    }
}

/// Maximum number of packets that one overload drops (RFC 8290, 4.1.2), so that many packets share
/// the cost of the search for the longest flow.
const BATCH: u32 = 64;

/// Maximum number of a guest's flows that are searched for the longest one.
const LOOKED_AT: usize = 64;

/// End of a list.
const NIL: u32 = u32::MAX;

/// FQ-CoDel. The module describes it.
#[derive(Debug)]
pub struct FqCodel<F> {
    parameters: Parameters,
    /// The quantum of a flow, and that of a guest, which is the length of such a frame on the wire.
    quantum: i64,
    guest_quantum: i64,
    packets: usize,
    memory: Bytes,
    /// Number of flows into which a guest's connections are hashed.
    buckets: u64,
    sources: Sources,
    turns: Turns,
    flows: Flows,
    frames: Frames<F>,
}

impl<F: Frame> FqCodel<F> {
    pub(super) fn new(config: FqCodelConfig) -> Self {
        // At least a minimal frame, or a turn would take many rounds.
        let quantum = config.quantum.0.clamp(64, 1 << 30);
        Self {
            parameters: Parameters {
                target: config.target,
                interval: config.interval,
                mtu: config.mtu,
                ecn: config.ecn,
                ce_threshold: config.ce_threshold,
            },
            quantum: quantum.cast_signed(),
            guest_quantum: on_the_wire(quantum as usize).0.cast_signed(),
            packets: config.packets,
            memory: config.memory,
            buckets: config.flows.clamp(1, 1 << 16) as u64,
            sources: Sources::new(),
            turns: Turns::NONE,
            flows: Flows::new(config.flows.clamp(1, 1 << 16)),
            frames: Frames::new(),
        }
    }

    #[inline(always)]
    pub(super) fn enqueue(&mut self, queued: Queued<F>, stats: &mut QueueStats) {
        self.restore(queued);
        // The longest flow loses a packet, which may be another than this packet's.
        while self.is_over() {
            self.drop_from_longest(stats);
        }
    }

    fn is_over(&self) -> bool {
        let Backlog {
            packets, memory, ..
        } = self.frames.backlog;
        packets > self.packets || memory > self.memory
    }

    #[inline(always)]
    pub(super) fn restore(&mut self, queued: Queued<F>) {
        let hash = u64::from(queued.frame.connection().0);
        let key = Key {
            source: queued.frame.source(),
            bucket: ((hash * self.buckets) >> 32) as u32,
        };
        let quantum = self.quantum;
        let source_index = self.sources.find(key.source);
        let index = self.flows.find(key);
        let source = &mut self.sources.all[source_index as usize];
        let flow = &mut self.flows.all[index as usize];
        let size = (queued.frame.len() as u64, queued.frame.truesize().0);
        source.memory += size.1;
        let place = self.frames.append(&mut flow.waiting, size);
        // The place is empty, so that no frame must be dropped.
        mem::forget(place.replace(queued));
        if !flow.turn().active {
            source.flows.begin(&mut self.flows.all, index, quantum);
            if !source.turn().active {
                let sources = &mut self.sources.all;
                self.turns.begin(sources, source_index, self.guest_quantum);
            }
        }
    }

    #[inline(always)]
    pub(super) fn dequeue(&mut self, now: Nanos, stats: &mut QueueStats) -> Option<Queued<F>> {
        let Self {
            parameters,
            quantum,
            guest_quantum,
            sources,
            turns,
            flows,
            frames,
            ..
        } = self;
        loop {
            let source_index = turns.pick(&mut sources.all, *guest_quantum)?;
            let source = &mut sources.all[source_index as usize];
            let before = frames.backlog.memory.0;
            while let Some(index) = source.flows.pick(&mut flows.all, *quantum) {
                let flow = &mut flows.all[index as usize];
                let mut line = FlowLine {
                    frames,
                    waiting: &mut flow.waiting,
                };
                if flow.control.admit(parameters, now, stats, &mut line) {
                    let bytes = flow.waiting.bytes;
                    let queued = frames.pop(&mut flow.waiting);
                    let len = bytes - flow.waiting.bytes;
                    flow.turn_mut().deficit -= len.cast_signed();
                    source.turn_mut().deficit -= on_the_wire(len as usize).0.cast_signed();
                    source.memory -= before - frames.backlog.memory.0;
                    return queued;
                }
                source.flows.end(&mut flows.all, index);
            }
            source.memory -= before - frames.backlog.memory.0;
            sources.end_turn(turns, source_index);
        }
    }

    /// Ends the turn of a source and its flow, if they are the only ones that have one, when no
    /// frame waits: as the loop of [`Self::dequeue`] does. Returns false if others have a turn.
    pub(super) fn end_only_turn(&mut self) -> bool {
        debug_assert!(self.is_empty(), "a flow with frames keeps its turn");
        let Self {
            sources,
            turns,
            flows,
            ..
        } = self;
        let Some(source) = turns.only(&sources.all) else {
            return false;
        };
        let of_source = &mut sources.all[source as usize].flows;
        let Some(flow) = of_source.end_only(&mut flows.all) else {
            return false;
        };
        flows.all[flow as usize].control.rest();
        turns.end_only(&mut sources.all);
        sources.note_end(source);
        true
    }

    #[inline]
    pub(super) const fn is_empty(&self) -> bool {
        self.frames.backlog.packets == 0
    }

    pub(super) fn backlog(&self) -> Backlog {
        self.frames.backlog
    }

    /// Also forgets all flows if no memory is left to free: their history no longer matters.
    pub(super) fn give_back(&mut self) -> Spare {
        let left = self.frames.give_back();
        if left == Spare::Nothing && !self.flows.all.is_empty() {
            self.turns = Turns::NONE;
            self.sources = Sources::new();
            self.flows = Flows::new(self.buckets as usize);
        }
        left
    }

    pub(super) fn drain(&mut self, into: &mut Vec<Queued<F>>) {
        let start = into.len();
        for flow in &mut self.flows.all {
            while let Some(queued) = self.frames.pop(&mut flow.waiting) {
                into.push(queued);
            }
        }
        for source in &mut self.sources.all {
            source.memory = 0;
        }
        // In order of arrival for a guest, not one connection after the other.
        into[start..].sort_by_key(|queued| queued.enqueued);
    }

    /// Drops from the head of the flow with the most bytes, of the guest that holds the most
    /// memory: half of the flow, or 64 packets (RFC 8290, 4.1.2). Of a guest with very many flows
    /// only a part is searched, at its own disadvantage.
    #[cold]
    fn drop_from_longest(&mut self, stats: &mut QueueStats) {
        let Some(source) = self.sources.all.iter_mut().max_by_key(|one| one.memory) else {
            return;
        };
        let bytes = |index: u32| self.flows.all[index as usize].waiting.bytes;
        // A flow that lost all its packets keeps its place until its turn.
        let flows = source.flows.iter(&self.flows.all);
        let flows = flows.filter(|&index| bytes(index) > 0).take(LOOKED_AT);
        let Some(longest) = flows.max_by_key(|&index| (bytes(index), !index)) else {
            return;
        };
        let flow = &mut self.flows.all[longest as usize];
        let (bytes, memory) = (flow.waiting.bytes, self.frames.backlog.memory.0);
        let mut dropped = 0;
        while dropped < BATCH && bytes - flow.waiting.bytes < (bytes / 2).max(1) {
            if self.frames.pop(&mut flow.waiting).is_none() {
                break;
            }
            dropped += 1;
        }
        source.memory -= memory - self.frames.backlog.memory.0;
        stats.drops.overload += u64::from(dropped);
        flow.control.handle_dropped(dropped);
    }
}

#[cfg(test)]
mod tests;

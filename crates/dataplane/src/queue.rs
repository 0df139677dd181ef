//! The software queue before the wire, and its limits.
//!
//! Large packets are segmented right before they join a queue (Small is Better, 4.2:
//! [`Frame::segment`]), and [`Nic`] bounds the bytes that the hardware may hold behind it (3.3). In
//! between is one of [`fifo`], [`codel`], [`fq_codel`] or two of them under [`priority`]. All have
//! one interface, [`Queue`]: a frame is pushed with its arrival time, and pulled with its departure
//! time.

#![expect(
    clippy::inline_always,
    reason = "called once for every frame, and a call costs about the same as its work"
)]

pub mod codel;
pub mod fifo;
pub mod fq_codel;
pub mod nic;
pub mod priority;
mod spare;
pub(crate) mod turns;

pub use codel::CodelConfig;
pub use fifo::FifoConfig;
pub use fq_codel::FqCodelConfig;
pub use nic::{Nic, NicConfig};
pub use priority::PriorityConfig;
pub use spare::Spare;
pub(crate) use spare::{shrink, shrink_list};

use crate::Frame;
use codel::Codel;
use fifo::Fifo;
use fq_codel::FqCodel;
use priority::Priority;
use serde::{Deserialize, Serialize};
use tailbound_units::{Bytes, Nanos};

/// A queue and its limits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum QueueConfig {
    /// Drops at the tail.
    Fifo(FifoConfig),
    /// One queue under `CoDel`.
    Codel(CodelConfig),
    /// One `CoDel` queue per flow; deficit round robin over guests, then over a guest's flows.
    FqCodel(FqCodelConfig),
    /// Strict priority, one queue per class.
    Priority(PriorityConfig),
}

impl Default for QueueConfig {
    /// The default of Linux: a FIFO of 1000 packets.
    fn default() -> Self {
        Self::Fifo(FifoConfig::default())
    }
}

/// A frame that waits.
#[derive(Debug)]
pub struct Queued<F> {
    /// The frame.
    pub frame: F,
    /// Time at which the frame was pushed.
    pub enqueued: Nanos,
}

/// Packets and bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Count {
    /// Number of packets.
    pub packets: u64,
    /// Number of bytes, as in [`Frame::len`].
    pub bytes: u64,
}

impl Count {
    pub(crate) fn add(&mut self, len: usize) {
        self.packets += 1;
        self.bytes += len as u64;
    }
}

/// The waiting frames of a queue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Number of packets.
    pub packets: usize,
    /// Number of bytes, as in [`Frame::len`].
    pub bytes: Bytes,
    /// Memory of the packets, as in [`Frame::truesize`].
    pub memory: Bytes,
}

impl Backlog {
    /// Counts an arriving frame, and returns its memory.
    #[inline]
    pub(crate) fn add(&mut self, frame: &impl Frame) -> u64 {
        let memory = frame.truesize().0;
        self.packets += 1;
        self.bytes.0 += frame.len() as u64;
        self.memory.0 += memory;
        memory
    }

    #[inline]
    pub(crate) fn remove(&mut self, frame: &impl Frame) {
        self.packets -= 1;
        self.bytes.0 -= frame.len() as u64;
        self.memory.0 -= frame.truesize().0;
    }

    /// The sum.
    #[inline]
    pub(crate) const fn plus(self, other: Self) -> Self {
        Self {
            packets: self.packets + other.packets,
            bytes: Bytes(self.bytes.0 + other.bytes.0),
            memory: Bytes(self.memory.0 + other.memory.0),
        }
    }

    /// Checks whether one more frame stays within both limits.
    fn has_room(&self, frame: &impl Frame, packets: usize, memory: Bytes) -> bool {
        self.packets < packets && self.memory.0 + frame.truesize().0 <= memory.0
    }
}

/// Packets that a queue dropped, by reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Drops {
    /// Arrived at a full queue.
    pub full: u64,
    /// At the head of the longest flow when FQ-CoDel was over its limit.
    pub overload: u64,
    /// `CoDel`'s signal to the sender: the frames had waited too long for too long.
    pub codel: u64,
}

impl Drops {
    /// Label of each reason for a counter, and its count.
    pub const fn by_reason(&self) -> [(&'static str, u64); 3] {
        [
            ("queue_full", self.full),
            ("overload", self.overload),
            ("codel", self.codel),
        ]
    }

    /// All drops.
    pub const fn total(&self) -> u64 {
        self.full + self.overload + self.codel
    }
}

/// Counters of a queue since the start. Each pushed frame was pulled, was dropped, or still waits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QueueStats {
    /// Frames pushed, dropped ones included.
    pub pushed: Count,
    /// Frames pulled.
    pub pulled: Count,
    /// Frames dropped.
    pub drops: Drops,
    /// Frames that were marked (ECN) instead of being dropped by `CoDel`.
    pub marked: u64,
    /// Frames of scalable senders that were marked because they had waited for longer than the
    /// threshold (L4S).
    pub marked_scalable: u64,
}

/// A queue of the kind in its configuration.
///
/// The caller passes in the counters, so that they outlive a change of the queue.
#[derive(Debug)]
pub enum Queue<F> {
    /// See [`fifo`].
    Fifo(Fifo<F>),
    /// See [`codel`].
    Codel(Codel<F>),
    /// See [`fq_codel`].
    FqCodel(FqCodel<F>),
    /// See [`priority`].
    Priority(Box<Priority<F>>),
}

/// Calls a method of the queue of any kind.
macro_rules! each {
    ($self:expr, $queue:ident => $call:expr) => {
        match $self {
            Queue::Fifo($queue) => $call,
            Queue::Codel($queue) => $call,
            Queue::FqCodel($queue) => $call,
            Queue::Priority($queue) => $call,
        }
    };
}

impl<F: Frame> Queue<F> {
    /// An empty queue.
    pub fn new(config: &QueueConfig) -> Self {
        match config {
            QueueConfig::Fifo(config) => Self::Fifo(Fifo::new(*config)),
            QueueConfig::Codel(config) => Self::Codel(Codel::new(*config)),
            QueueConfig::FqCodel(config) => Self::FqCodel(FqCodel::new(*config)),
            QueueConfig::Priority(config) => Self::Priority(Box::new(Priority::new(config))),
        }
    }

    /// Takes in a frame at `now`, or drops a frame according to the limits.
    #[inline(always)]
    pub fn push(&mut self, now: Nanos, frame: F, stats: &mut QueueStats) {
        let len = frame.len() as u64;
        stats.pushed.packets += 1;
        let queued = Queued {
            frame,
            enqueued: now,
        };
        self.enqueue(queued, stats);
        // Apart from the packets: no vector of both is put together and taken apart.
        stats.pushed.bytes += len;
    }

    #[inline(always)]
    fn enqueue(&mut self, queued: Queued<F>, stats: &mut QueueStats) {
        // The most common case, found with one comparison.
        if let Self::FqCodel(queue) = self {
            return queue.enqueue(queued, stats);
        }
        each!(self, queue => queue.enqueue(queued, stats));
    }

    /// Returns the frame that leaves at `now`; `None` if no frame is left, possibly because the
    /// last ones were just dropped.
    #[inline(always)]
    pub fn pull(&mut self, now: Nanos, stats: &mut QueueStats) -> Option<Queued<F>> {
        let queued = self.dequeue(now, stats);
        if let Some(queued) = &queued {
            stats.pulled.add(queued.frame.len());
        }
        queued
    }

    #[inline(always)]
    fn dequeue(&mut self, now: Nanos, stats: &mut QueueStats) -> Option<Queued<F>> {
        if let Self::FqCodel(queue) = self {
            return queue.dequeue(now, stats);
        }
        each!(self, queue => queue.dequeue(now, stats))
    }

    /// Checks whether no frame waits.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        if let Self::FqCodel(queue) = self {
            return queue.is_empty();
        }
        self.backlog().packets == 0
    }

    /// Does the same as [`Queue::pull`] for a queue without frames in most cases, in fewer steps;
    /// returns false otherwise.
    #[inline]
    pub(crate) fn pull_none(&mut self) -> bool {
        match self {
            Self::FqCodel(queue) => queue.end_only_turn(),
            Self::Fifo(_) | Self::Codel(_) | Self::Priority(_) => false,
        }
    }

    /// The waiting frames.
    pub fn backlog(&self) -> Backlog {
        each!(self, queue => queue.backlog())
    }

    /// Puts a frame that waited in another queue at the tail, beyond any limit: no frame is lost
    /// when the configuration changes.
    pub(crate) fn restore(&mut self, queued: Queued<F>) {
        each!(self, queue => queue.restore(queued));
    }

    /// Takes out all frames, each flow in order, and drops none.
    pub(crate) fn drain(&mut self, into: &mut Vec<Queued<F>>) {
        each!(self, queue => queue.drain(into));
    }

    /// Frees some of the memory that was not used since the last call, and returns whether more is
    /// left. Forgets flows that have been idle for as long.
    pub fn give_back(&mut self) -> Spare {
        each!(self, queue => queue.give_back())
    }

    /// Changes the configuration. The new queue holds the same frames in order of arrival.
    pub fn reconfigure(&mut self, config: &QueueConfig) {
        let mut waiting = Vec::with_capacity(self.backlog().packets);
        self.drain(&mut waiting);
        // Stable: frames of one flow that came at one moment keep their order.
        waiting.sort_by_key(|queued| queued.enqueued);
        *self = Self::new(config);
        for queued in waiting {
            self.restore(queued);
        }
    }
}

#[cfg(test)]
mod tests;

//! First in, first out, drop tail: the default of Linux (Small is Better, 3.3: "a large drop tail
//! queue (e.g., 1,000 packets)"), and the baseline for comparisons.

use super::spare::{Spare, shrink_list};
use super::{Backlog, QueueStats, Queued};
use crate::Frame;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use tailbound_units::{Bytes, Nanos};

/// Limits of a FIFO.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FifoConfig {
    /// Limit in packets; 1,000.
    pub packets: usize,
    /// Limit in memory; 68 MiB.
    pub memory: Bytes,
}

impl Default for FifoConfig {
    fn default() -> Self {
        Self {
            packets: 1000,
            memory: Bytes(68 << 20),
        }
    }
}

/// A FIFO. The module describes it.
#[derive(Debug)]
pub struct Fifo<F> {
    config: FifoConfig,
    frames: VecDeque<Queued<F>>,
    backlog: Backlog,
}

impl<F: Frame> Fifo<F> {
    pub(super) fn new(config: FifoConfig) -> Self {
        Self {
            config,
            frames: VecDeque::new(),
            backlog: Backlog::default(),
        }
    }

    pub(super) fn enqueue(&mut self, queued: Queued<F>, stats: &mut QueueStats) {
        let FifoConfig { packets, memory } = self.config;
        if self.backlog.has_room(&queued.frame, packets, memory) {
            self.restore(queued);
        } else {
            stats.drops.full += 1;
        }
    }

    pub(super) fn restore(&mut self, queued: Queued<F>) {
        self.backlog.add(&queued.frame);
        self.frames.push_back(queued);
    }

    pub(super) fn dequeue(&mut self, _now: Nanos, _stats: &mut QueueStats) -> Option<Queued<F>> {
        let queued = self.frames.pop_front()?;
        self.backlog.remove(&queued.frame);
        Some(queued)
    }

    pub(super) fn backlog(&self) -> Backlog {
        self.backlog
    }

    pub(super) fn give_back(&mut self) -> Spare {
        shrink_list(&mut self.frames)
    }

    pub(super) fn drain(&mut self, into: &mut Vec<Queued<F>>) {
        into.extend(self.frames.drain(..));
        self.backlog = Backlog::default();
    }
}

#[cfg(test)]
mod tests;

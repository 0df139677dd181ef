//! Frames without a guarantee.

use super::item::WireItem;
use super::{PacerStats, void};
use crate::Frame;
use crate::queue::{Backlog, Queue, QueueConfig, Queued, Spare};
use tailbound_units::{Nanos, Position, WireBytes};

/// The queue of frames without a guarantee.
#[derive(Debug)]
pub(super) struct BestEffort<F> {
    queue: Queue<F>,
}

impl<F: Frame> BestEffort<F> {
    /// Creates an empty queue.
    pub(super) fn new(config: &QueueConfig) -> Self {
        Self {
            queue: Queue::new(config),
        }
    }

    /// Takes over another configuration.
    pub(super) fn reconfigure(&mut self, config: &QueueConfig) {
        self.queue.reconfigure(config);
    }

    /// The waiting frames.
    #[inline]
    pub(super) fn backlog(&self) -> Backlog {
        self.queue.backlog()
    }

    /// Checks that no frame waits.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Frees some of the memory that was not used since the last call.
    pub(super) fn give_back(&mut self) -> Spare {
        self.queue.give_back()
    }

    /// Queues a frame, or all its segments, unless these are longer than `longest`.
    #[inline(never)]
    pub(super) fn push(
        &mut self,
        now: Nanos,
        frame: F,
        longest: WireBytes,
        stats: &mut PacerStats,
    ) {
        let mut push = |frame: F| {
            if void::on_the_wire(frame.len()) > longest {
                stats.drops.oversized += 1;
            } else {
                self.queue.push(now, frame, &mut stats.queue);
            }
        };
        if frame.segments() > 1 {
            frame.segment(push);
        } else {
            push(frame);
        }
    }

    /// Queues a frame whose guarantee has ended.
    pub(super) fn restore(&mut self, queued: Queued<F>) {
        self.queue.restore(queued);
    }

    /// Removes all frames, in order.
    pub(super) fn drain(&mut self) -> Vec<Queued<F>> {
        let mut waiting = Vec::with_capacity(self.queue.backlog().packets);
        self.queue.drain(&mut waiting);
        waiting
    }

    /// Passes on the next frame, which begins at `at`, and returns its end.
    #[inline]
    pub(super) fn send(
        &mut self,
        now: Nanos,
        at: Position,
        stats: &mut PacerStats,
        sink: &mut impl FnMut(WireItem<F>),
    ) -> Option<Position> {
        let queued = self.queue.pull(now, &mut stats.queue)?;
        let (frame, sojourn) = (queued.frame, now.since(queued.enqueued));
        let wire = void::on_the_wire(frame.len());
        stats.best_effort.packets += 1;
        stats.best_effort.bytes += wire;
        sink(WireItem::BestEffort { frame, at, sojourn });
        Some(at + wire)
    }
}

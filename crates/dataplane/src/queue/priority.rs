//! Strict priority of classes: each goes before those below it, whenever it has a frame (Small is
//! Better, 4.3 and 5.3: a NIC or switch with priority queues treats marked frames in this way).
//!
//! The meter bounds small flows; without one, a class may starve those below.

use super::{Backlog, Queue, QueueConfig, QueueStats, Queued, Spare};
use crate::{Class, Frame};
use serde::{Deserialize, Serialize};
use tailbound_units::Nanos;

/// The queue of each class.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PriorityConfig {
    /// Queue of guaranteed traffic; a FIFO of 1,000 packets.
    pub guaranteed: Box<QueueConfig>,
    /// Queue of small flows; a FIFO of 1,000 packets.
    pub small: Box<QueueConfig>,
    /// Queue of all other traffic; FQ-CoDel.
    pub lowest: Box<QueueConfig>,
}

impl PriorityConfig {
    /// The queue of a class.
    pub fn of(&self, class: Class) -> &QueueConfig {
        match class {
            Class::Guaranteed => &self.guaranteed,
            Class::Small => &self.small,
            Class::Lowest => &self.lowest,
        }
    }
}

impl Default for PriorityConfig {
    fn default() -> Self {
        let fifo = || Box::new(QueueConfig::Fifo(super::FifoConfig::default()));
        Self {
            guaranteed: fifo(),
            small: fifo(),
            lowest: Box::new(QueueConfig::FqCodel(super::FqCodelConfig::default())),
        }
    }
}

/// Queues under strict priority. The module describes them.
#[derive(Debug)]
pub struct Priority<F> {
    /// Indexed by [`Class`].
    queues: [Queue<F>; Class::ALL.len()],
}

impl<F: Frame> Priority<F> {
    pub(super) fn new(config: &PriorityConfig) -> Self {
        Self {
            queues: Class::ALL.map(|class| Queue::new(config.of(class))),
        }
    }

    fn of_class(&mut self, class: Class) -> &mut Queue<F> {
        &mut self.queues[class as usize]
    }

    pub(super) fn enqueue(&mut self, queued: Queued<F>, stats: &mut QueueStats) {
        self.of_class(queued.frame.class()).enqueue(queued, stats);
    }

    pub(super) fn restore(&mut self, queued: Queued<F>) {
        self.of_class(queued.frame.class()).restore(queued);
    }

    pub(super) fn dequeue(&mut self, now: Nanos, stats: &mut QueueStats) -> Option<Queued<F>> {
        let mut queues = self.queues.iter_mut();
        queues.find_map(|queue| queue.dequeue(now, stats))
    }

    pub(super) fn backlog(&self) -> Backlog {
        let queues = self.queues.iter().map(Queue::backlog);
        queues.fold(Backlog::default(), Backlog::plus)
    }

    pub(super) fn give_back(&mut self) -> Spare {
        let left = self.queues.iter_mut().map(Queue::give_back);
        left.max().unwrap_or(Spare::Nothing)
    }

    pub(super) fn drain(&mut self, into: &mut Vec<Queued<F>>) {
        for queue in &mut self.queues {
            queue.drain(into);
        }
    }
}

#[cfg(test)]
mod tests;

//! Two classes, strictly: the high class goes first, whenever it has a frame
//! (Small is Better, 4.3 and 5.3: what a NIC or switch with priority queues does
//! with the tag).
//!
//! The meter bounds what each flow may send as high; without one, nothing here
//! keeps the high class from starving the other.

use super::{Backlog, Queue, QueueConfig, QueueStats, Queued};
use crate::{Class, Frame};
use serde::{Deserialize, Serialize};
use tailbound_units::Nanos;

/// The queue of each class.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PriorityConfig {
    /// Of the high class; a FIFO of 1000 packets, which metered traffic does not
    /// fill.
    pub high: Box<QueueConfig>,
    /// Of everything else; FQ-CoDel, since this is where a queue stands.
    pub best_effort: Box<QueueConfig>,
}

impl Default for PriorityConfig {
    fn default() -> Self {
        Self {
            high: Box::new(QueueConfig::Fifo(super::FifoConfig::default())),
            best_effort: Box::new(QueueConfig::FqCodel(super::FqCodelConfig::default())),
        }
    }
}

/// Two queues under strict priority. See the module.
#[derive(Debug)]
pub struct Priority<F> {
    high: Queue<F>,
    best_effort: Queue<F>,
}

impl<F: Frame> Priority<F> {
    pub(super) fn new(config: &PriorityConfig) -> Self {
        Self {
            high: Queue::new(&config.high),
            best_effort: Queue::new(&config.best_effort),
        }
    }

    fn of_class(&mut self, class: Class) -> &mut Queue<F> {
        match class {
            Class::High => &mut self.high,
            Class::BestEffort => &mut self.best_effort,
        }
    }

    pub(super) fn enqueue(&mut self, queued: Queued<F>, stats: &mut QueueStats) {
        self.of_class(queued.frame.class()).enqueue(queued, stats);
    }

    pub(super) fn restore(&mut self, queued: Queued<F>) {
        self.of_class(queued.frame.class()).restore(queued);
    }

    pub(super) fn dequeue(&mut self, now: Nanos, stats: &mut QueueStats) -> Option<Queued<F>> {
        let high = self.high.dequeue(now, stats);
        high.or_else(|| self.best_effort.dequeue(now, stats))
    }

    pub(super) fn backlog(&self) -> Backlog {
        self.high.backlog().plus(self.best_effort.backlog())
    }

    pub(super) fn drain(&mut self, into: &mut Vec<Queued<F>>) {
        self.high.drain(into);
        self.best_effort.drain(into);
    }
}

#[cfg(test)]
mod tests;

//! Timers of connections, the earliest first.

use super::flow::{TICK, ticks};
use super::table::Place;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use tailbound_units::Nanos;

/// A heap of timers. A timer that its connection has replaced is ignored when it expires.
#[derive(Debug, Default)]
pub(super) struct Timers(BinaryHeap<Reverse<(u64, Place)>>);

impl Timers {
    /// Adds a timer, with its time in ticks.
    pub(super) fn push(&mut self, at: u64, place: Place) {
        self.0.push(Reverse((at, place)));
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// The earliest time.
    pub(super) fn poll_at(&self) -> Option<Nanos> {
        let Reverse((at, _)) = self.0.peek()?;
        Some(Nanos(at << TICK))
    }

    /// Removes a timer that is due.
    pub(super) fn pop_due(&mut self, now: Nanos) -> Option<(u64, Place)> {
        let Reverse((at, place)) = *self.0.peek()?;
        if at > ticks(now) {
            return None;
        }
        self.0.pop();
        Some((at, place))
    }
}

//! The frames of a port that go to all others ([`super::flood`]).

use super::slots::Slot;
use crate::port::BURST;
use std::collections::VecDeque;
use tailbound_dataplane::Packet;

/// Copies that a port has made in a turn: 16 us of work ([`super::work`]), a tenth of its share.
pub(super) const COPIES: usize = 4;

/// The number of a port's frames that wait for copies from which on it forwards no more frames. The
/// burst that reaches it is forwarded.
const MAX_WAITING: usize = BURST;

/// A frame that is being copied.
#[derive(Debug)]
pub(super) struct Flood {
    pub(super) packet: Packet,
    /// The place of its next destination. Places are those of slots, as ports may change theirs
    /// before the last copy.
    pub(super) next: Place,
}

/// A destination: the uplink before all guests, and guests in the order of their slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Uplink,
    Slot(Slot),
}

impl Place {
    /// Returns the place behind this one.
    pub(super) const fn next(self) -> Self {
        match self {
            Self::Uplink => Self::Slot(Slot::FIRST),
            Self::Slot(slot) => Self::Slot(slot.next()),
        }
    }
}

/// The frames of a port that are being copied, in their order.
#[derive(Debug, Default)]
pub(super) struct Floods {
    waiting: VecDeque<Flood>,
    /// Copies that were made in the turn of this number.
    made: (u64, usize),
}

impl Floods {
    /// The number of frames that wait for copies.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Returns true if no frame waits for copies.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Adds a frame.
    pub(super) fn push(&mut self, flood: Flood) {
        self.waiting.push_back(flood);
    }

    /// Removes the next frame, for a copy; `None` if all copies of this turn are made.
    pub(super) fn pop(&mut self, turn: u64) -> Option<Flood> {
        if self.made.0 != turn {
            self.made = (turn, 0);
        }
        if self.made.1 >= COPIES {
            return None;
        }
        let flood = self.waiting.pop_front()?;
        self.made.1 += 1;
        Some(flood)
    }

    /// Returns a frame that has more copies.
    pub(super) fn put_back(&mut self, flood: Flood) {
        self.waiting.push_front(flood);
    }

    /// True if no more frames of the port may be forwarded.
    pub(super) fn is_full(&self) -> bool {
        self.waiting.len() >= MAX_WAITING
    }
}

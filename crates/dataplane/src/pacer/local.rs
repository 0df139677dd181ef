//! Frames to other guests of this host: charged as all others, and delivered beside the wire.
//!
//! Such a frame ([`Frame::is_local`]) waits in the line of its destination and takes its turn like
//! any other, so {`B_i`, S} and {B, S} apply to a guest's traffic inside and outside the host
//! together. Then it departs: it is not charged to {Bmax, one frame}, because no wire carries it,
//! and no void precedes it. It is passed on with the batch in which it departs, at most a batch
//! before, independently of the frames on the wire.

use super::index::GuestIndex;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use tailbound_units::Position;

/// Frames on their way to guests of this host.
#[derive(Debug)]
pub(super) struct Local<F> {
    /// Guests whose frame with a departure time goes to a guest of this host, by that time. No
    /// wheel: frames are passed on before their time, and others may still depart before them.
    due: BinaryHeap<Reverse<(Position, GuestIndex)>>,
    /// The first of these times.
    pub(super) next: Position,
    /// Frames that no longer wait, because their guest's guarantee has ended.
    freed: VecDeque<F>,
}

impl<F> Local<F> {
    pub(super) const fn new() -> Self {
        Self {
            due: BinaryHeap::new(),
            next: Position::NEVER,
            freed: VecDeque::new(),
        }
    }

    /// Adds a guest whose frame with a departure time goes to a guest of this host.
    pub(super) fn insert(&mut self, guest: GuestIndex, departure: Position) {
        self.due.push(Reverse((departure, guest)));
        self.next = self.next.min(departure);
    }

    /// Removes and returns the guest whose frame departs first.
    pub(super) fn pop(&mut self) -> Option<GuestIndex> {
        let Reverse((_, guest)) = self.due.pop()?;
        self.find_next();
        Some(guest)
    }

    /// Removes a guest at any place; returns whether it was there.
    pub(super) fn remove(&mut self, guest: GuestIndex) -> bool {
        let before = self.due.len();
        self.due.retain(|Reverse((_, known))| *known != guest);
        self.find_next();
        self.due.len() < before
    }

    /// Removes and returns all guests.
    pub(super) fn take_due(&mut self) -> Vec<GuestIndex> {
        let guests = self.due.drain().map(|Reverse((_, guest))| guest);
        let guests = guests.collect();
        self.find_next();
        guests
    }

    /// Checks whether a guest is there.
    #[cfg(test)]
    pub(super) fn has(&self, guest: GuestIndex) -> bool {
        self.due.iter().any(|Reverse((_, known))| *known == guest)
    }

    fn find_next(&mut self) {
        let first = self.due.peek();
        self.next = first.map_or(Position::NEVER, |Reverse((departure, _))| *departure);
    }

    /// Passes on the frames that no longer wait.
    pub(super) fn drain_freed(&mut self, sink: impl FnMut(F)) {
        self.freed.drain(..).for_each(sink);
    }

    /// Adds a frame that no longer waits.
    pub(super) fn free(&mut self, frame: F) {
        self.freed.push_back(frame);
    }
}

//! Frames to other guests of this host: charged as all others, and handed over beside
//! the wire.
//!
//! Such a frame ([`Frame::is_local`]) waits in the line of its destination and takes its
//! turn like any other, so {`B_i`, S} and {B, S} hold for what a guest sends here and
//! elsewhere together. Then it departs: it is not charged to {Bmax, one frame}, as no
//! wire carries it, and no void goes ahead of it. It is handed over with the batch in
//! which it departs, at most a batch before, whatever is on the wire.

use super::guest::Ring;
use super::store::NIL;
use super::{Paced, Pacer};
use crate::Frame;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use tailbound_units::{Nanos, Position};

/// What is on its way to guests of this host.
#[derive(Debug)]
pub(super) struct Local<F> {
    /// Guests whose frame with a departure time is such a one, by that time. No wheel: what
    /// departs is handed over before its time, and others may still depart before it.
    due: BinaryHeap<Reverse<(Position, u32)>>,
    /// The first of these times.
    pub(super) next: Position,
    /// Frames that wait for nothing any more, as their guest's guarantee has ended.
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

    /// The frame of a guest that has a departure time is one for a guest here.
    pub(super) fn insert(&mut self, guest: u32, departure: Position) {
        self.due.push(Reverse((departure, guest)));
        self.next = self.next.min(departure);
    }

    /// Takes the guest out whose frame departs first.
    fn pop(&mut self) -> Option<u32> {
        let Reverse((_, guest)) = self.due.pop()?;
        self.find_next();
        Some(guest)
    }

    /// Takes a guest out, wherever it is; returns whether it was there.
    pub(super) fn remove(&mut self, guest: u32) -> bool {
        let before = self.due.len();
        self.due.retain(|Reverse((_, known))| *known != guest);
        self.find_next();
        self.due.len() < before
    }

    /// Takes all guests out.
    pub(super) fn take_due(&mut self) -> Vec<u32> {
        let guests = self.due.drain().map(|Reverse((_, guest))| guest);
        let guests = guests.collect();
        self.find_next();
        guests
    }

    /// Whether a guest is there.
    #[cfg(test)]
    pub(super) fn has(&self, guest: u32) -> bool {
        self.due.iter().any(|Reverse((_, known))| *known == guest)
    }

    fn find_next(&mut self) {
        let first = self.due.peek();
        self.next = first.map_or(Position::NEVER, |Reverse((departure, _))| *departure);
    }

    /// Lets a frame wait for nothing any more.
    pub(super) fn free(&mut self, frame: F) {
        self.freed.push_back(frame);
    }
}

impl<F: Frame> Pacer<F> {
    /// Hands over the frames to guests of this host that waited when their guest's
    /// guarantee ended: to be called after whatever ends one, so that what comes next
    /// does not overtake them.
    pub fn drain_freed(&mut self, sink: impl FnMut(F)) {
        self.chain.local.freed.drain(..).for_each(sink);
    }

    /// Hands over the first frame to a guest of this host, and gives its guest's next one
    /// a departure time.
    #[inline(never)]
    pub(super) fn hand_over_local(&mut self, now: Nanos, sink: &mut impl FnMut(Paced<F>)) {
        let Self {
            config,
            guests,
            lines,
            chain,
            ..
        } = self;
        let Some(number) = chain.local.pop() else {
            return;
        };
        let Some(Some(guest)) = guests.get_mut(number as usize) else {
            return;
        };
        let place = chain.store.vacate(guest.stamped);
        let (wire, memory) = (place.wire, place.memory);
        let sojourn = now.since(place.enqueued);
        let Some(frame) = place.frame.take() else {
            return;
        };
        let departure = guest.last_departure;
        guest.memory.0 -= memory.0;
        guest.stats.sojourn = sojourn;
        if let Some(cap) = &mut guest.cap {
            cap.charge(departure, frame.len());
        }
        chain.stats.local.packets += 1;
        chain.stats.local.bytes += wire;
        let is_unread = guest.ring != Ring::Read;
        let turn = guest.round.turn(&mut lines.all, &mut chain.links, config);
        if let Some((index, line)) = turn {
            chain.stamp_first(guest, line, index, departure.max(line.release));
        } else {
            guest.stamped = NIL;
        }
        if is_unread {
            self.read_again(number);
        }
        sink(Paced::Local {
            frame,
            departure,
            sojourn,
        });
    }
}

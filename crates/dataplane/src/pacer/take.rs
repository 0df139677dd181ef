//! Frames that come in: whose line they join, and what they hold of the memory.

use super::guest::{self, Contract, Guest, Ring};
use super::line::Stage;
use super::store::{NIL, Store, Waiting};
use super::{Pacer, void};
use crate::{Frame, GuestId};
use tailbound_units::{Bytes, Nanos, Position};

/// When a frame came, and from which byte of the wire on it may be sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arrival {
    pub(super) enqueued: Nanos,
    pub(super) at: Position,
}

impl<F: Frame> Pacer<F> {
    /// Takes a frame in at `now`. A large packet is cut first: what its segments hold
    /// is what it holds. Frames of a guest without a guarantee, and from the outside,
    /// are best effort.
    ///
    /// Every frame is taken, and others dropped for it where its line or its guest hold
    /// more memory than they may: ask [`Pacer::is_read`] before the next.
    #[inline(always)]
    pub fn enqueue(&mut self, now: Nanos, frame: F) {
        let position = self.advance(now);
        let Some(guest) = self.guaranteed_number(frame.source()) else {
            return self.enqueue_best_effort(now, frame);
        };
        let line = self.line_of(guest, &frame);
        let arrival = Arrival {
            enqueued: now,
            // What is on the wire already cannot be overtaken. Were a frame scheduled from
            // `position` on, the batch would swallow the gaps behind it.
            at: position.max(self.wire),
        };
        self.take(guest, line, frame, arrival);
    }

    /// The number of a guest that has a guarantee.
    #[inline(always)]
    fn guaranteed_number(&self, source: Option<GuestId>) -> Option<u32> {
        let id = source?;
        let guest = guest::find(&self.guests, id)?;
        (guest.contract == Contract::Guaranteed).then_some(id.slot() as u32)
    }

    /// The line that a frame of a guaranteed guest joins.
    #[inline(always)]
    pub(super) fn line_of(&mut self, guest: u32, frame: &F) -> u32 {
        let Some(Some(guest)) = self.guests.get_mut(guest as usize) else {
            return NIL;
        };
        if guest.limited == 0 {
            return guest.unlimited;
        }
        let Some(flow) = frame.flow() else {
            return guest.unlimited;
        };
        if guest.last.0 == flow.destination && guest.last.1 != NIL {
            return guest.last.1;
        }
        let Some(line) = self.lines.find(flow) else {
            return guest.unlimited;
        };
        guest.last = (flow.destination, line);
        line
    }

    /// Lets a frame, or all its segments, join a line.
    #[inline(always)]
    pub(super) fn take(&mut self, guest: u32, line: u32, frame: F, arrival: Arrival) {
        self.trim(guest, line);
        if frame.segments() > 1 {
            self.take_large(guest, line, frame, arrival);
        } else {
            self.append(guest, line, frame, arrival);
        }
        let Self {
            guests,
            lines,
            stats,
            ..
        } = self;
        let Some(Some(of)) = guests.get_mut(guest as usize) else {
            return;
        };
        let joined = lines.at(line);
        if joined.stage == Stage::Released && of.ring == Ring::Read && of.is_crowded(joined.memory)
        {
            of.ring = Ring::Unread { by: line };
            of.stats.unread += 1;
            stats.unread += 1;
        }
        if of.memory > of.bound {
            self.make_room(guest);
        }
    }

    #[inline(never)]
    fn take_large(&mut self, guest: u32, line: u32, frame: F, arrival: Arrival) {
        frame.segment(|segment| self.append(guest, line, segment, arrival));
    }

    /// Puts a frame behind the last of a line.
    #[inline(always)]
    fn append(&mut self, number: u32, line: u32, mut frame: F, arrival: Arrival) {
        let wire = void::on_the_wire(frame.len());
        let Self {
            guests,
            lines,
            store,
            ..
        } = self;
        let Some(Some(guest)) = guests.get_mut(number as usize) else {
            return;
        };
        if wire > self.config.longest_frame() {
            return count_oversized(guest, &mut self.stats);
        }
        let joined = lines.at_mut(line);
        if joined.memory.0 > guest.share.0 / 2 && frame.mark_congestion() {
            guest.stats.marked += 1;
        }
        let memory = Bytes(frame.truesize().0 + Store::<F>::PLACE.0);
        let index = store.put(Waiting {
            frame: Some(frame),
            next: NIL,
            wire,
            memory,
            enqueued: arrival.enqueued,
            arrival: arrival.at,
        });
        joined.push(store, index);
        guest.memory.0 += memory.0;
        guest.stats.taken.packets += 1;
        // Apart from the packets: no vector of both is put together and taken apart.
        guest.stats.taken.bytes += wire;
        match joined.stage {
            Stage::Empty => {
                guest.lines += 1;
                self.set_head(line, arrival.at);
            }
            Stage::Released => guest.released += wire,
            Stage::Limited | Stage::Closed => {}
        }
    }

    #[inline(never)]
    pub(super) fn enqueue_best_effort(&mut self, now: Nanos, frame: F) {
        let longest = self.config.longest_frame();
        let Self {
            best_effort, stats, ..
        } = self;
        let mut push = |frame: F| {
            if void::on_the_wire(frame.len()) > longest {
                stats.drops.oversized += 1;
            } else {
                best_effort.push(now, frame, &mut stats.queue);
            }
        };
        if frame.segments() > 1 {
            frame.segment(push);
        } else {
            push(frame);
        }
    }

    /// Drops from the front of a line what it holds beyond its share.
    #[inline(always)]
    pub(super) fn trim(&mut self, guest: u32, line: u32) {
        let Some(Some(of)) = self.guests.get(guest as usize) else {
            return;
        };
        let share = of.share;
        if self.lines.at(line).memory > share {
            self.trim_to(guest, line, share);
        }
    }

    /// Drops frames behind the first of a line, which may be charged already, until it
    /// holds `most` or that one alone.
    #[inline(never)]
    fn trim_to(&mut self, guest: u32, line: u32, most: Bytes) {
        while self.lines.at(line).memory > most {
            let Some(index) = self.lines.at_mut(line).pop_second(&mut self.store) else {
                return;
            };
            self.drop_waiting(guest, line, index);
        }
    }

    /// Drops a frame that was taken off a line.
    fn drop_waiting(&mut self, guest: u32, line: u32, index: u32) {
        let (wire, memory) = {
            let waiting = self.store.at(index);
            (waiting.wire, waiting.memory)
        };
        if let Some(Some(guest)) = self.guests.get_mut(guest as usize) {
            guest.memory.0 -= memory.0;
            guest.stats.dropped += 1;
            if self.lines.at(line).stage == Stage::Released {
                guest.released -= wire;
            }
        }
        self.stats.drops.over_share += 1;
        drop(self.store.take(index));
    }

    /// Frees an eighth of what a guest may hold: from the front of lines that hold more
    /// than half of a fair share; where all are short, from those that wait for a limit.
    /// It takes a look at each of its lines, and frees a hundred frames or more.
    #[cold]
    fn make_room(&mut self, guest: u32) {
        let Some(Some(of)) = self.guests.get(guest as usize) else {
            return;
        };
        let enough = Bytes(of.bound.0 / 8 * 7);
        let fair = Bytes(of.memory.0 / u64::from(of.lines.max(1)) / 2);
        let (unlimited, first) = (of.unlimited, of.first_limited);
        for whole in [false, true] {
            let mut line = unlimited;
            let mut next = first;
            while line != NIL {
                if self.held(guest) <= enough {
                    return;
                }
                if whole {
                    self.evict(guest, line);
                } else {
                    self.trim_to(guest, line, fair);
                }
                line = next;
                next = self.sibling(line);
            }
        }
    }

    /// The memory that a guest's frames hold.
    fn held(&self, guest: u32) -> Bytes {
        let guest = self.guests.get(guest as usize).and_then(Option::as_ref);
        guest.map_or(Bytes(0), |guest| guest.memory)
    }

    /// The next of a guest's limited lines.
    pub(super) fn sibling(&self, line: u32) -> u32 {
        if line == NIL {
            return NIL;
        }
        let limit = self.lines.at(line).limit.as_ref();
        limit.map_or(NIL, |limit| limit.sibling)
    }

    /// Drops all that waits for a limit.
    fn evict(&mut self, guest: u32, line: u32) {
        if !self.withdraw(line) {
            return;
        }
        while !self.lines.at(line).is_empty() {
            let index = self.lines.at_mut(line).pop(&self.store);
            self.drop_waiting(guest, line, index);
        }
        self.lines.at_mut(line).stage = Stage::Empty;
        if let Some(Some(guest)) = self.guests.get_mut(guest as usize) {
            guest.lines -= 1;
        }
    }
}

#[cold]
fn count_oversized(guest: &mut Guest, stats: &mut super::PacerStats) {
    stats.drops.oversized += 1;
    guest.stats.dropped += 1;
}

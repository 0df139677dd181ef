//! The chain of buckets: which line is released when, and which frame departs when.

use super::Pacer;
use super::guest::Guest;
use super::line::Stage;
use super::round::of_deficit;
use super::store::NIL;
use super::wheel::First;
use crate::Frame;
use tailbound_units::Position;

impl<F: Frame> Pacer<F> {
    /// Lets the first frame of a line, which is not charged and has come to the front at
    /// `at`, wait for what it has to.
    #[inline(always)]
    pub(super) fn set_head(&mut self, index: u32, at: Position) {
        if self.charge_limit(index, at) {
            self.join(index);
        }
    }

    /// Charges the first frame of a line to its limit. Returns false where it has to wait
    /// for that.
    #[inline(always)]
    fn charge_limit(&mut self, index: u32, at: Position) -> bool {
        let line = self.lines.at_mut(index);
        let head = self.store.at(line.head());
        let at = at.max(head.arrival);
        if let Some(limit) = &mut line.limit {
            match limit.charge(at, head.wire) {
                Some(release) if release <= at => {}
                release => {
                    self.hold_back(index, at, release);
                    return false;
                }
            }
        }
        line.release = at;
        line.held_back = false;
        true
    }

    /// Lets a line wait for its limit, until `release` or until that is opened.
    #[inline(always)]
    fn hold_back(&mut self, index: u32, at: Position, release: Option<Position>) {
        let line = self.lines.at_mut(index);
        line.held_back = true;
        if let Some(limit) = &mut line.limit {
            limit.waited = true;
        }
        match release {
            Some(release) => {
                line.stage = Stage::Limited;
                line.release = release;
                // The wheel may be ahead by a part of a batch.
                let release = release.max(self.releases.start_from(at));
                self.releases.insert(index, release);
                self.next = self.next.min(release);
            }
            None => line.stage = Stage::Closed,
        }
        self.lines.note(index);
    }

    /// Takes a line back that waits for its limit: its first frame is not charged any
    /// more. Returns false where it does not.
    pub(super) fn withdraw(&mut self, index: u32) -> bool {
        match self.lines.at(index).stage {
            Stage::Empty | Stage::Released => return false,
            Stage::Closed => {}
            Stage::Limited => {
                self.releases.remove(index);
                self.next = self.first();
                if let Some(limit) = &mut self.lines.at_mut(index).limit {
                    limit.refund();
                }
            }
        }
        true
    }

    /// The first departure or release.
    pub(super) fn first(&self) -> Position {
        let departure = self.departures.first().departure;
        departure.min(self.releases.first().departure)
    }

    /// Releases the first line that waits for its limit.
    #[inline(always)]
    pub(super) fn release(&mut self, first: First) {
        let index = self.releases.pop(first);
        self.join(index);
    }

    /// Lets a line whose first frame is released wait for its turn.
    #[inline(always)]
    fn join(&mut self, index: u32) {
        let line = self.lines.at_mut(index);
        line.stage = Stage::Released;
        line.deficit = 0;
        let release = line.release;
        let Some(Some(guest)) = self.guests.get_mut(line.guest as usize) else {
            return;
        };
        guest.released += line.wire;
        if guest.stamped == NIL {
            self.stamp(index, release);
        } else {
            guest.round.push(&mut self.lines, index);
        }
    }

    /// Gives the first frame of a released line, whose turn it is, its departure time:
    /// that of one which comes at `at`. It is not in the round.
    #[inline(always)]
    pub(super) fn stamp(&mut self, index: u32, at: Position) {
        let Self {
            guests,
            lines,
            store,
            ..
        } = self;
        let line = lines.at_mut(index);
        let number = line.guest;
        let Some(Some(guest)) = guests.get_mut(number as usize) else {
            return;
        };
        guest.released -= line.wire;
        let frame = line.pop(store);
        let wire = store.at(frame).wire;
        if let Some(limit) = &mut line.limit {
            limit.taken += wire;
        }
        line.deficit -= of_deficit(wire);
        guest.stamped = frame;
        let departure = guest.schedule(at, wire);
        if line.is_empty() {
            line.stage = Stage::Empty;
            guest.lines -= 1;
        }
        lines.note(index);
        // Nothing that comes later departs before what is on the wire, or has its turn.
        let floor = self.wire.max(self.position).min(departure);
        let departure = departure.max(self.departures.start_from(floor));
        self.departures.insert(number, departure);
        self.next = self.next.min(departure);
        if self.lines.at(index).stage == Stage::Released {
            self.go_on(index, at);
        }
    }

    /// Lets the next frame of a line come to the front at `at`, as the first has left.
    #[inline(always)]
    fn go_on(&mut self, index: u32, at: Position) {
        let now = self.clock.now();
        let Self {
            guests,
            lines,
            store,
            stats,
            ..
        } = self;
        let line = lines.at_mut(index);
        let Some(Some(guest)) = guests.get_mut(line.guest as usize) else {
            return;
        };
        let Guest {
            patience,
            memory,
            stats: counted,
            ..
        } = guest;
        let may_drop = line.held_back;
        let marked = line.judge(store, *patience, now, may_drop, |store, index| {
            memory.0 -= store.at(index).memory.0;
            counted.dropped += 1;
            stats.drops.over_delay += 1;
            drop(store.take(index));
        });
        counted.marked += marked;
        if line.is_empty() {
            line.stage = Stage::Empty;
            guest.lines -= 1;
            return;
        }
        if !self.charge_limit(index, at) {
            return;
        }
        let line = self.lines.at_mut(index);
        let Some(Some(guest)) = self.guests.get_mut(line.guest as usize) else {
            return;
        };
        guest.released += line.wire;
        if guest.round.is_empty() {
            line.deficit = 0;
        }
        if line.deficit > 0 {
            guest.round.push_front(&mut self.lines, index);
        } else {
            guest.round.push(&mut self.lines, index);
        }
    }
}

//! Paced IO Batching (Silo 4.3.1): the contents of the wire, byte by byte.

use super::guest::{self, Ring};
use super::index::{FrameIndex, GuestIndex};
use super::{Pacer, WireClock, void};
use crate::Frame;
use tailbound_units::{Nanos, Position, WireBytes};

/// Number of batches from the end of one within which departures are in a row
/// ([`super::departures`]): the departures of a busy guest's next frame.
const ROW_BATCHES: u64 = 4;

/// Next item on the wire. [`Batch::clock`] converts its positions into times.
#[derive(Debug)]
pub enum WireItem<F> {
    /// A frame of a guaranteed guest.
    Guaranteed {
        /// The frame.
        frame: F,
        /// Its departure time: it may not begin earlier.
        departure: Position,
        /// Position at which it begins.
        at: Position,
        /// Time that it waited, up to its batch.
        sojourn: Nanos,
    },
    /// A frame without a guarantee.
    BestEffort {
        /// The frame.
        frame: F,
        /// Position at which it begins.
        at: Position,
        /// Time that it waited, up to its batch.
        sojourn: Nanos,
    },
    /// A frame of a guaranteed guest beyond its guarantee, of a flow that is elastic.
    Elastic {
        /// The frame.
        frame: F,
        /// Position at which it begins.
        at: Position,
        /// Time that it waited, up to its batch.
        sojourn: Nanos,
    },
    /// A frame of a guaranteed guest to another guest of this host: not for the wire.
    Local {
        /// The frame.
        frame: F,
        /// Its departure time, at most a batch from now.
        departure: Position,
        /// Time that it waited, up to its batch.
        sojourn: Nanos,
    },
    /// A void frame: see [`void::VoidFrame`].
    Void {
        /// Its bytes on the wire.
        wire: WireBytes,
        /// Position at which it begins.
        at: Position,
    },
}

/// The next batch for the wire: see [`Pacer::batch`].
#[derive(Debug)]
#[must_use = "nothing is handed over but by `for_each`"]
pub struct Batch<'p, F> {
    pacer: &'p mut Pacer<F>,
    now: Nanos,
    start: Position,
}

impl<F: Frame> Batch<'_, F> {
    /// The wire's clock, which converts this batch's positions into times.
    #[inline]
    pub const fn clock(&self) -> WireClock {
        self.pacer.clock()
    }

    /// Passes on all items in order.
    #[inline]
    pub fn for_each(self, sink: impl FnMut(WireItem<F>)) {
        self.pacer.hand_over_batch(self.now, self.start, sink);
    }
}

impl<F: Frame> Pacer<F> {
    /// Returns the items on the wire from `now` on, in order and back to back, until a batch's time
    /// is filled or no frame is due within it. The last frame begins within the batch.
    ///
    /// Frames of earlier calls that are still on the wire count: at any frequency of calls, the NIC
    /// never holds more than a batch and a frame.
    #[inline]
    pub fn batch(&mut self, now: Nanos) -> Batch<'_, F> {
        let start = self.advance(now);
        if !self.lines.stale.is_empty() {
            let Self {
                guests,
                lines,
                chain,
                config,
                ..
            } = self;
            chain.rebuild_trees(guests, lines, config);
        }
        Batch {
            pacer: self,
            now,
            start,
        }
    }

    fn hand_over_batch(&mut self, now: Nanos, start: Position, mut sink: impl FnMut(WireItem<F>)) {
        let end = start + self.batch;
        self.chain
            .departures
            .expect_until(end + self.batch * ROW_BATCHES);
        if self.elastic.is_busy() {
            self.settle_elastic(start);
        }
        let mut wire = self.chain.wire.max(start);
        let mut best_effort = self.best_effort.backlog().packets > 0;
        let mut elastic = self.config.work_conserving;
        loop {
            let due = self.chain.departures.first();
            let (release, local) = (self.chain.releases.first(), self.chain.local.next);
            if release.min(local) < end {
                if release <= due.min(local) {
                    self.release();
                    continue;
                }
                // Independent of the wire, unless an earlier release waits for the wire.
                if local < end.min(release) {
                    self.hand_over_local(now, &mut sink);
                    continue;
                }
            }
            if wire >= end {
                break;
            }
            if wire < due {
                if best_effort {
                    // Frames that wait for their destination are not due either, or they would have
                    // been released.
                    if let Some(after) = self.send_best_effort(now, wire, &mut sink) {
                        wire = after;
                        continue;
                    }
                    best_effort = false;
                }
                if elastic {
                    // The due frame may have become elastic, and may wait for its guest's limit.
                    match self.send_elastic(now, wire, &mut sink) {
                        Some(after) => wire = after,
                        None => elastic = false,
                    }
                    continue;
                }
                if due >= end {
                    break;
                }
                wire = self.fill(wire, due, &mut sink);
            }
            wire = self.hand_over(now, due, wire, &mut sink);
        }
        self.chain.wire = wire;
    }

    /// Releases the first line that waits for its limit.
    #[inline(always)]
    fn release(&mut self) {
        let Self {
            guests,
            lines,
            chain,
            ..
        } = self;
        let index = chain.releases.pop();
        let line = lines.at_mut(index);
        let guest = guest::of_slot(guests, line.guest);
        chain.release(guest, line, index);
    }

    /// Passes on the frame that is due, since `due`, determines the departure of its guest's next
    /// one, and returns its end.
    #[inline(always)]
    fn hand_over(
        &mut self,
        now: Nanos,
        due: Position,
        at: Position,
        sink: &mut impl FnMut(WireItem<F>),
    ) -> Position {
        let Self {
            config,
            guests,
            lines,
            chain,
            ..
        } = self;
        let number = chain.departures.depart(due);
        let guest = guest::of_slot(guests, number);
        let departure = guest.last_departure;
        let place = chain.store.vacate(guest.stamped);
        let (wire, memory) = (place.wire, place.memory);
        let sojourn = now.since(place.enqueued);
        let frame = place.frame.take();
        let frame = frame.expect("a frame with a departure is in its place");
        // All counting comes first, so that fewer values are live while the frame leaves.
        let stats = &mut chain.stats;
        guest.memory.0 -= memory.0;
        guest.stats.sojourn = sojourn;
        stats.guaranteed.packets += 1;
        debug_assert!(at >= departure, "no frame begins before its departure time");
        let late = at - departure;
        if late > WireBytes::ZERO {
            stats.collided += u64::from(late >= void::SHORTEST);
            if late > stats.max_lateness {
                stats.max_lateness = late;
            }
        }
        // Separate statements, so that the compiler does not combine them into a vector.
        stats.guaranteed.bytes += wire;
        if let Some(cap) = &mut guest.cap {
            cap.charge(at, frame.len());
        }
        sink(WireItem::Guaranteed {
            frame,
            departure,
            at,
            sojourn,
        });
        let turn = guest
            .round
            .turn(&mut lines.all, &mut chain.links, config.longest_frame());
        let next = if let Some((index, line)) = turn {
            chain.stamp(guest, line, index, departure.max(line.release))
        } else {
            guest.stamped = FrameIndex::NONE;
            None
        };
        if let Some(departure) = next {
            chain.departures.depart_again(number, departure);
        } else {
            chain.departures.leave();
            if !guest.round.is_empty() {
                self.pass_over(number, departure);
                return at + wire;
            }
        }
        if guest.ring != Ring::Read {
            self.read_again(number);
        }
        at + wire
    }

    /// Lets the next lines of a guest have their turns, from `at` on, if the first one must wait for
    /// a subtree.
    #[inline(never)]
    fn pass_over(&mut self, number: GuestIndex, at: Position) {
        let guest = guest::of_slot(&mut self.guests, number);
        let longest = self.config.longest_frame();
        self.chain
            .stamp_next(guest, &mut self.lines.all, longest, at);
        if guest.ring != Ring::Read {
            self.read_again(number);
        }
    }

    /// Permits reading a guest's ring again when few of its frames wait for {B, S}.
    #[inline(never)]
    pub(super) fn read_again(&mut self, number: GuestIndex) {
        let guest = guest::of_slot(&mut self.guests, number);
        if let Ring::Unread { by } = guest.ring
            && guest.has_room(self.lines.at(by).memory)
        {
            guest.ring = Ring::Read;
            if !std::mem::replace(&mut guest.is_noted, true) {
                self.read_again.push(guest.id);
            }
        }
    }

    /// Passes on the next frame without a guarantee, and returns its end.
    #[inline]
    fn send_best_effort(
        &mut self,
        now: Nanos,
        at: Position,
        sink: &mut impl FnMut(WireItem<F>),
    ) -> Option<Position> {
        let queued = self.best_effort.pull(now, &mut self.chain.stats.queue)?;
        let (frame, sojourn) = (queued.frame, now.since(queued.enqueued));
        let wire = void::on_the_wire(frame.len());
        self.chain.stats.best_effort.packets += 1;
        self.chain.stats.best_effort.bytes += wire;
        sink(WireItem::BestEffort { frame, at, sojourn });
        Some(at + wire)
    }

    /// Fills the wire up to `due`, or at most 83 bytes further. Returns the end.
    #[inline(always)]
    fn fill(
        &mut self,
        mut at: Position,
        due: Position,
        sink: &mut impl FnMut(WireItem<F>),
    ) -> Position {
        if !self.config.voids {
            return due;
        }
        let start = at;
        let mut voids = 0;
        // Most gaps are long.
        while due - at >= void::MAX_VOID + void::SHORTEST {
            let wire = void::MAX_VOID;
            sink(WireItem::Void { wire, at });
            voids += 1;
            at += wire;
        }
        while at < due {
            let wire = void::next(due - at);
            sink(WireItem::Void { wire, at });
            voids += 1;
            at += wire;
        }
        self.chain.stats.voids.packets += voids;
        self.chain.stats.voids.bytes += at - start;
        at
    }

    /// Time of the next call of [`Pacer::batch`]: half a batch before the wire must begin with a
    /// waiting frame, so that a caller who is late by less than that delays no frame. Not before
    /// the last `now`; `None` if no frame waits.
    pub fn poll_at(&self) -> Option<Nanos> {
        let is_empty = self.waiting() == 0 && self.best_effort.is_empty();
        if is_empty && !self.elastic.is_waiting() {
            return None;
        }
        let (clock, wire) = (&self.chain.clock, self.chain.wire);
        let mut next = self.chain.next();
        // The next batch applies changes of places, for which frames may wait.
        let is_stale = !self.lines.stale.is_empty() && self.waiting() > 0;
        if is_stale || self.best_effort.backlog().packets > 0 || self.elastic.is_waiting() {
            next = wire;
        }
        let mut next = next.max(wire);
        let (due, local) = (self.chain.departures.first(), self.chain.local.next);
        let release = self.chain.releases.first();
        // Otherwise it waits, as earlier releases do, for a frame that waits for the wire.
        if local < release || release <= due {
            next = next.min(local);
        }
        let timer = self.elastic.timer();
        let timer = timer.filter(|_| self.waiting() > 0);
        if next == Position::NEVER && timer.is_none() {
            return None;
        }
        let at = clock.moment_from_now(next.saturating_sub(self.lead));
        Some(timer.map_or(at, |timer| at.min(clock.moment_from_now(timer))))
    }
}

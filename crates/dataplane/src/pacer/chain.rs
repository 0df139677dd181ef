//! A frame's way through the chain of buckets.

use super::guest::{Guest, Patience, Place, Terms, TooLate, next_byte};
use super::wheel::{self, First};
use super::{Later, Pacer, void};
use crate::{Frame, GuestId};
use tailbound_units::{Nanos, Position, WireBytes};

/// Why a frame gets no stamp.
#[derive(Debug, Clone, Copy)]
enum Unplaced {
    /// Its guest has no guarantee.
    BestEffort,
    /// Longer than any may be.
    Oversized,
    /// Its stamp, or its release by its destination's limit, would be later than it
    /// may be.
    Later(TooLate),
    /// Its destination is closed and has no tokens left, or what waits for it is to
    /// be moved first.
    Closed,
}

/// After what time a frame to a closed destination may be tried again, at least.
const CLOSED: Nanos = Nanos::from_millis(1);

impl<F: Frame> Pacer<F> {
    /// Takes a frame in at `now`, or gives it back where it would wait longer than
    /// its guest's horizon. A large packet is segmented and each segment stamped;
    /// it is taken when the frame before it leaves within the horizon. A guest
    /// without a guarantee, and the outside, are best effort. Drops are counted.
    ///
    /// # Errors
    /// The frame, and when it may be tried again.
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "once for every frame, where a call and moving the frame cost as much"
    )]
    pub fn enqueue(&mut self, now: Nanos, mut frame: F) -> Result<(), Later<F>> {
        let position = self.advance(now);
        if frame.segments() > 1 {
            return self.enqueue_large(now, frame);
        }
        match self.place(position, &mut frame, Patience::Horizon) {
            Ok(place) => self.keep(place, frame),
            Err(Unplaced::BestEffort) => return self.enqueue_other(now, frame),
            Err(Unplaced::Oversized) => self.count_oversized(frame.source()),
            Err(Unplaced::Later(late)) => return Err(self.later(position, frame, late)),
            Err(Unplaced::Closed) => return self.enqueue_closed(now, frame),
        }
        Ok(())
    }

    /// Takes in what is not, or no longer, to be stamped.
    #[inline(never)]
    fn enqueue_other(&mut self, now: Nanos, frame: F) -> Result<(), Later<F>> {
        if let Some(id) = frame.source()
            && let Some(Some(guest)) = self.guests.get_mut(id.0 as usize)
            && guest.terms == Terms::Leaving
        {
            if guest.upstream > WireBytes::ZERO || self.due.first().stamp <= guest.last {
                let stamp = guest.last.max(next_byte(self.position + guest.horizon));
                return Err(self.later(self.position, frame, TooLate(stamp)));
            }
            guest.terms = Terms::BestEffort;
        }
        self.enqueue_best_effort(now, frame);
        Ok(())
    }

    #[inline(never)]
    fn enqueue_best_effort(&mut self, now: Nanos, frame: F) {
        let longest = self.config.longest_frame();
        let Self {
            best_effort, stats, ..
        } = self;
        each_segment(frame, |frame| {
            if void::on_the_wire(frame.len()) > longest {
                stats.drops.oversized += 1;
            } else {
                best_effort.push(now, frame, &mut stats.queue);
            }
        });
    }

    #[cold]
    fn enqueue_closed(&mut self, now: Nanos, frame: F) -> Result<(), Later<F>> {
        if self.changed.is_empty() {
            return Err(self.closed(frame));
        }
        self.settle();
        self.enqueue(now, frame)
    }

    #[inline(never)]
    fn enqueue_large(&mut self, now: Nanos, frame: F) -> Result<(), Later<F>> {
        self.settle();
        let position = self.position;
        let Some(guest) = frame.source().and_then(|id| self.guaranteed(id)) else {
            return self.enqueue_other(now, frame);
        };
        let until = position + guest.horizon;
        let mut last = guest.last;
        if guest.is_crowded() || self.store.is_full() {
            last = last.max(next_byte(until));
        }
        if let Some((index, limit)) = frame.flow().and_then(|flow| self.limits.find(flow)) {
            if limit.closed.is_some() {
                // None of its segments is to be left behind.
                let most = self.config.longest_frame() * frame.segments() as u64;
                let arrival = position.max(self.wire);
                if !limit.stay_closed(arrival) || !limit.bucket.holds(arrival, most) {
                    return Err(self.closed(frame));
                }
            }
            last = last.max(limit.last);
            if last > until {
                limit.waits(last);
                self.limits.note(index);
            }
        }
        if last > until {
            return Err(self.later(position, frame, TooLate(last)));
        }
        frame.segment(|segment| self.place_anyway(position, segment));
        Ok(())
    }

    /// Stamps a frame whatever its wait, as far as stamps reach.
    fn place_anyway(&mut self, position: Position, mut frame: F) {
        match self.place(position, &mut frame, Patience::Wheel) {
            Ok(place) => self.keep(place, frame),
            Err(Unplaced::Oversized) => self.count_oversized(frame.source()),
            Err(_) => {
                self.stats.drops.overdue += 1;
                self.count_drop(frame.source());
            }
        }
    }

    #[cold]
    fn count_oversized(&mut self, source: Option<GuestId>) {
        self.stats.drops.oversized += 1;
        self.count_drop(source);
    }

    /// Counts a frame that was dropped with its guest.
    fn count_drop(&mut self, source: Option<GuestId>) {
        if let Some(id) = source
            && let Some(Some(guest)) = self.guests.get_mut(id.0 as usize)
        {
            guest.stats.dropped += 1;
        }
    }

    /// Charges a frame to the chain, and marks it where it has to wait for long.
    ///
    /// # Errors
    /// Why it has no stamp. Then nothing was charged.
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "once for every frame, where a call costs as much"
    )]
    fn place(
        &mut self,
        position: Position,
        frame: &mut F,
        patience: Patience,
    ) -> Result<Place, Unplaced> {
        let id = frame.source().ok_or(Unplaced::BestEffort)?;
        let guest = match self.guests.get_mut(id.0 as usize) {
            Some(Some(guest)) if guest.terms == Terms::Guaranteed => guest,
            _ => return Err(Unplaced::BestEffort),
        };
        let wire = void::on_the_wire(frame.len());
        if wire > self.config.longest_frame() {
            return Err(Unplaced::Oversized);
        }
        let mut until = position + wheel::RANGE / 2;
        if patience == Patience::Horizon {
            until = position + guest.horizon;
            if self.store.is_full() {
                let late = guest.last.max(next_byte(until));
                return Err(Unplaced::Later(TooLate(late)));
            }
        }
        // What is on the wire already cannot be overtaken. Were a frame stamped from
        // `position` on, the batch would swallow the gaps behind it.
        let arrival = position.max(self.wire);
        let (upstream, stamped) = if guest.limited > 0
            && let Some(flow) = frame.flow()
            && let Some((index, limit)) = self.limits.find(flow)
        {
            if limit.moves.is_some() || limit.closed.is_some() && !limit.stay_closed(arrival) {
                return Err(Unplaced::Closed);
            }
            let charged = limit.bucket.charge(arrival, wire);
            let waits = charged.leaves > arrival
                || guest.upstream > WireBytes::ZERO && self.upstream.first().stamp <= limit.last;
            let stamped = if waits {
                if limit.closed.is_some() && charged.leaves > arrival {
                    limit.bucket.refund(charged);
                    return Err(Unplaced::Closed);
                }
                let release = charged.leaves.max(limit.last);
                let release = release.max(self.upstream.start_from(arrival));
                limit.waits(release);
                guest.hold(release, wire, until, patience)
            } else {
                guest.stamp(arrival, wire, until)
            };
            match stamped {
                Ok(release) if waits => limit.last = release,
                Ok(_) => {}
                Err(late) => {
                    limit.bucket.refund(charged);
                    limit.waits(late.0);
                    self.limits.note(index);
                    return Err(Unplaced::Later(late));
                }
            }
            if !limit.took(wire) {
                self.limits.note(index);
            }
            (waits, stamped)
        } else if guest.upstream > WireBytes::ZERO && self.upstream.first().stamp <= guest.after {
            // Behind frames of its flow that waited for a limit it had.
            let release = guest.after.max(self.upstream.start_from(arrival));
            (true, guest.hold(release, wire, until, patience))
        } else {
            (false, guest.stamp(arrival, wire, until))
        };
        let stamp = stamped.map_err(Unplaced::Later)?;
        guest.count(position, frame, wire, stamp);
        Ok(Place {
            guest: id.0,
            upstream,
            stamp,
        })
    }

    /// Lets a frame wait in its place.
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "once for every frame, where a call costs as much"
    )]
    fn keep(&mut self, place: Place, frame: F) {
        let index = self.store.put(frame, place.stamp, place.guest);
        let wheel = if place.upstream {
            &mut self.upstream
        } else {
            self.due.start_from(self.wire);
            &mut self.due
        };
        wheel.insert(&mut self.store.nodes, index, place.stamp);
        self.next = self.next.min(place.stamp);
    }

    /// Gives a frame back that could be stamped too late only.
    #[cold]
    fn later(&mut self, position: Position, frame: F, late: TooLate) -> Later<F> {
        let guest = self.count_held(frame.source());
        let at = guest.map_or(position, |guest| late.0.saturating_sub(guest.horizon));
        // A batch's work is worth a try, and the clock may be stopped.
        let pause = Nanos(self.config.batch.0 / 2);
        let at = self.clock.moment(at).max(self.clock.now() + pause);
        Later { frame, at }
    }

    /// Gives a frame to a closed destination back, and remembers that it waits.
    #[cold]
    fn closed(&mut self, frame: F) -> Later<F> {
        let pause = CLOSED.max(self.config.batch);
        let until = self.position + self.clock.bytes_in(pause);
        if let Some((index, limit)) = frame.flow().and_then(|flow| self.limits.find(flow)) {
            limit.waits(until);
            self.limits.note(index);
        }
        self.count_held(frame.source());
        let at = self.clock.now() + pause;
        Later { frame, at }
    }

    /// Counts a frame that is given back with its guest, which it gives.
    fn count_held(&mut self, source: Option<GuestId>) -> Option<&Guest> {
        self.stats.held += 1;
        let guest = self.guests.get_mut(source?.0 as usize)?.as_mut()?;
        guest.stats.held += 1;
        Some(guest)
    }

    /// Charges the first frame that waits for its destination to the rest of the
    /// chain, as one that comes when it is released.
    pub(super) fn release(&mut self, first: First) {
        let index = self.upstream.pop(&mut self.store.nodes, first);
        let node = &mut self.store.nodes[index as usize];
        let released = node.stamp;
        let mut stamp = released;
        if let Some(frame) = &mut node.frame
            && let Some(Some(guest)) = self.guests.get_mut(node.guest as usize)
        {
            let wire = void::on_the_wire(frame.len());
            guest.upstream -= wire;
            stamp = guest.stamp_anyway(released, wire);
            if stamp - released > guest.mark && frame.mark_congestion() {
                guest.stats.marked += 1;
            }
            node.stamp = stamp;
        }
        self.due.start_from(released);
        self.due.insert(&mut self.store.nodes, index, stamp);
    }

    /// Stamps a guest's frames that wait as best effort, in the order they came.
    pub(super) fn stamp_best_effort(&mut self, position: Position, id: GuestId) {
        let mut waiting = Vec::with_capacity(self.best_effort.backlog().packets);
        self.best_effort.drain(&mut waiting);
        for queued in waiting {
            if queued.frame.source() == Some(id) {
                self.place_anyway(position, queued.frame);
            } else {
                self.best_effort.restore(queued);
            }
        }
    }
}

/// Hands over each segment of a frame, or the frame where it is not to be cut.
fn each_segment<F: Frame>(frame: F, mut sink: impl FnMut(F)) {
    if frame.segments() > 1 {
        frame.segment(sink);
    } else {
        sink(frame);
    }
}

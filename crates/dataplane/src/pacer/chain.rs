//! A frame's way through the chain of buckets.

use super::guest::{Place, Terms};
use super::wheel::{self, First};
use super::{Later, Pacer, void};
use crate::{Frame, GuestId};
use tailbound_units::Nanos;

/// How long a frame may wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Patience {
    /// Until its guest's horizon; else it is given back.
    Horizon,
    /// As long as stamps reach: the packet it belongs to is taken already.
    Wheel,
}

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
        let Some(id) = frame.source() else {
            return self.enqueue_other(now, frame);
        };
        match self.guests.get(id.0 as usize) {
            Some(Some(guest)) if guest.terms == Terms::Guaranteed => {}
            _ => return self.enqueue_other(now, frame),
        }
        if frame.segments() > 1 {
            return self.enqueue_large(position, id, frame);
        }
        match self.place(position, id, &mut frame, Patience::Horizon) {
            Ok(Some(place)) => self.keep(place, id, frame),
            Ok(None) => self.stats.drops.oversized += 1,
            Err(stamp) => return Err(self.later(position, id, frame, stamp)),
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
            if guest.upstream > 0 || self.due.first().stamp <= guest.last {
                let stamp = guest.last.max(self.position + guest.horizon + 1);
                return Err(self.later(self.position, id, frame, stamp));
            }
            guest.terms = Terms::BestEffort;
        }
        self.enqueue_best_effort(now, frame);
        Ok(())
    }

    #[inline(never)]
    fn enqueue_best_effort(&mut self, now: Nanos, frame: F) {
        let longest = self.config.frame.0;
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

    #[inline(never)]
    fn enqueue_large(&mut self, position: u64, id: GuestId, frame: F) -> Result<(), Later<F>> {
        let limit = frame.flow().and_then(|flow| self.limits.find(flow));
        let mut last = limit.map_or(0, |limit| self.limits.at(limit).last);
        if let Some(Some(guest)) = self.guests.get(id.0 as usize) {
            last = last.max(guest.last);
            let until = position + guest.horizon;
            if guest.is_crowded() || self.store.is_full() {
                last = last.max(until + 1);
            }
            if last > until {
                if let Some(limit) = limit {
                    self.limits.waits(limit, last);
                }
                return Err(self.later(position, id, frame, last));
            }
        }
        frame.segment(|segment| self.place_anyway(position, id, segment));
        Ok(())
    }

    /// Stamps a frame whatever its wait, as far as stamps reach.
    fn place_anyway(&mut self, position: u64, id: GuestId, mut frame: F) {
        match self.place(position, id, &mut frame, Patience::Wheel) {
            Ok(Some(place)) => self.keep(place, id, frame),
            Ok(None) => self.stats.drops.oversized += 1,
            Err(_) => self.stats.drops.overdue += 1,
        }
    }

    /// Charges a frame to the chain, and marks it where it has to wait for long.
    /// `None` where it is longer than any may be.
    ///
    /// # Errors
    /// Its stamp, where that is later than it may be. Then nothing was charged.
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "once for every frame, where a call costs as much"
    )]
    fn place(
        &mut self,
        position: u64,
        id: GuestId,
        frame: &mut F,
        patience: Patience,
    ) -> Result<Option<Place>, u64> {
        let wire = void::on_the_wire(frame.len());
        if wire > self.config.frame.0 {
            return Ok(None);
        }
        let Some(Some(guest)) = self.guests.get_mut(id.0 as usize) else {
            return Ok(None);
        };
        let mut until = position + wheel::RANGE / 2;
        if patience == Patience::Horizon {
            until = position + guest.horizon;
            if self.store.is_full() {
                return Err(guest.last.max(until + 1));
            }
        }
        // What is on the wire already cannot be overtaken. Were a frame stamped from
        // `position` on, the batch would swallow the gaps behind it.
        let arrival = position.max(self.wire);
        let mut limit = None;
        let mut release = arrival;
        if guest.limited > 0
            && let Some(flow) = frame.flow()
            && let Some(found) = self.limits.find(flow)
        {
            let charged = self.limits.at(found).bucket.charge(arrival, wire);
            release = charged.leaves;
            limit = Some((found, charged));
        }
        let mut last = guest.after;
        if guest.upstream > 0
            && let Some((limit, _)) = limit
        {
            last = self.limits.at(limit).last;
        }
        let behind = guest.upstream > 0 && self.upstream.first().stamp <= last;
        let place = if release > arrival || behind {
            if let Some((limit, _)) = limit {
                last = self.limits.at(limit).last;
            }
            let release = release.max(last).max(self.upstream.start_from(arrival));
            let crowded = patience == Patience::Horizon && guest.is_crowded();
            if release <= until && !crowded {
                if let Some((limit, _)) = limit {
                    self.limits.at(limit).last = release;
                    self.limits.waits(limit, release);
                    self.limits.took(limit, wire);
                }
                guest.upstream += wire;
                guest.count(position, frame, wire, release);
                return Ok(Some(Place {
                    upstream: true,
                    stamp: release,
                }));
            }
            Err(release.max(until + 1))
        } else {
            let stamped = guest.stamp(arrival, wire);
            if stamped.stamp <= until {
                guest.last = stamped.stamp;
                guest.count(position, frame, wire, stamped.stamp);
                if let Some((limit, _)) = limit {
                    self.limits.took(limit, wire);
                }
                return Ok(Some(Place {
                    upstream: false,
                    stamp: stamped.stamp,
                }));
            }
            guest.refund(stamped);
            Err(stamped.stamp)
        };
        if let Some((limit, charged)) = limit {
            self.limits.at(limit).bucket.refund(charged);
            if let Err(stamp) = place {
                self.limits.waits(limit, stamp);
            }
        }
        place
    }

    /// Lets a frame wait in its place.
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "once for every frame, where a call costs as much"
    )]
    fn keep(&mut self, place: Place, id: GuestId, frame: F) {
        let index = self.store.put(frame, place.stamp, id.0);
        let wheel = if place.upstream {
            &mut self.upstream
        } else {
            self.due.start_from(self.wire);
            &mut self.due
        };
        wheel.insert(&mut self.store.nodes, index);
        self.next = self.next.min(place.stamp);
    }

    /// Gives a frame back that could be stamped with `stamp` only.
    #[cold]
    fn later(&mut self, position: u64, id: GuestId, frame: F, stamp: u64) -> Later<F> {
        self.stats.held += 1;
        let mut at = position;
        if let Some(Some(guest)) = self.guests.get_mut(id.0 as usize) {
            guest.stats.held += 1;
            at = stamp.saturating_sub(guest.horizon);
        }
        // A batch's work is worth a try, and the clock may be stopped.
        let pause = Nanos(self.config.batch.0 / 2);
        let at = self.clock.moment(at).max(self.clock.now() + pause);
        Later { frame, at }
    }

    /// Charges the first frame that waits for its destination to the rest of the
    /// chain, as one that comes when it is released.
    pub(super) fn release(&mut self, first: First) {
        let index = self.upstream.pop(&mut self.store.nodes, first);
        let node = &mut self.store.nodes[index as usize];
        let released = node.stamp;
        if let Some(frame) = &mut node.frame
            && let Some(Some(guest)) = self.guests.get_mut(node.guest as usize)
        {
            let wire = void::on_the_wire(frame.len());
            guest.upstream -= wire;
            let stamped = guest.stamp(released, wire);
            if stamped.stamp - released > guest.mark && frame.mark_congestion() {
                guest.stats.marked += 1;
            }
            guest.last = stamped.stamp;
            node.stamp = stamped.stamp;
        }
        self.due.start_from(released);
        self.due.insert(&mut self.store.nodes, index);
    }

    /// Stamps a guest's frames that wait as best effort, in the order they came.
    pub(super) fn stamp_best_effort(&mut self, position: u64, id: GuestId) {
        let mut waiting = Vec::with_capacity(self.best_effort.backlog().packets + 1);
        waiting.extend(self.held.take());
        self.best_effort.drain(&mut waiting);
        for queued in waiting {
            if queued.frame.source() == Some(id) {
                self.place_anyway(position, id, queued.frame);
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

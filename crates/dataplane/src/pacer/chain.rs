//! The chain of buckets: which frame departs when.

use super::guest::{self, Contract, Guest, Patience, Scheduled, Stage, TooLate, next_byte};
use super::limits::Limit;
use super::wheel::{self, First, Wheel};
use super::{Pacer, WouldBlock, void};
use crate::{Frame, GuestId};
use tailbound_units::{Nanos, Position, WireBytes};

/// Why a frame is not scheduled.
#[derive(Debug, Clone, Copy)]
enum Unscheduled {
    /// Its guest has no guarantee.
    BestEffort,
    /// It is longer than any may be.
    Oversized,
    /// Its departure, or its release by its destination's limit, would be later than
    /// it may be.
    TooLate(TooLate),
    /// Its destination is closed and has no tokens left, or what waits for it is to
    /// be rescaled first.
    Closed,
}

/// A frame that comes to the chain.
#[derive(Debug, Clone, Copy)]
struct Arrival {
    at: Position,
    wire: WireBytes,
    /// No departure may be later.
    until: Position,
    patience: Patience,
}

/// After what time a frame to a closed destination may be tried again, at least.
const RETRY_CLOSED: Nanos = Nanos::from_millis(1);

impl<F: Frame> Pacer<F> {
    /// Takes a frame in at `now`, unless it would wait longer than its guest's horizon.
    /// A large packet is segmented and each segment scheduled; it is taken when the
    /// frame before it departs within the horizon. Frames of a guest without a
    /// guarantee, and from the outside, are best effort. Drops are counted.
    ///
    /// # Errors
    /// The frame would wait too long: returns it, and when to try again.
    #[inline(always)]
    pub fn enqueue(&mut self, now: Nanos, mut frame: F) -> Result<(), WouldBlock<F>> {
        let position = self.advance(now);
        if frame.segments() > 1 {
            return self.enqueue_large(now, frame);
        }
        match self.schedule(position, &mut frame, Patience::Horizon) {
            Ok(scheduled) => self.keep(scheduled, frame),
            Err(Unscheduled::BestEffort) => return self.enqueue_other(now, frame),
            Err(Unscheduled::Oversized) => self.count_oversized(frame.source()),
            Err(Unscheduled::TooLate(late)) => return Err(self.would_block(position, frame, late)),
            Err(Unscheduled::Closed) => return self.enqueue_closed(now, frame),
        }
        Ok(())
    }

    /// Takes in what is not, or no longer, to be scheduled.
    #[inline(never)]
    fn enqueue_other(&mut self, now: Nanos, frame: F) -> Result<(), WouldBlock<F>> {
        if let Some(id) = frame.source()
            && let Some(guest) = guest::find(&self.guests, id)
            && guest.contract == Contract::Draining
        {
            if self.is_draining(guest) {
                let departure = guest
                    .last_departure
                    .max(next_byte(self.position + guest.horizon));
                return Err(self.would_block(self.position, frame, TooLate(departure)));
            }
            if let Some(guest) = guest::find_mut(&mut self.guests, id) {
                guest.contract = Contract::BestEffort;
            }
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
    fn enqueue_closed(&mut self, now: Nanos, frame: F) -> Result<(), WouldBlock<F>> {
        if self.changed.is_empty() {
            return Err(self.would_block_closed(frame));
        }
        self.rescale_pending();
        self.enqueue(now, frame)
    }

    #[inline(never)]
    fn enqueue_large(&mut self, now: Nanos, frame: F) -> Result<(), WouldBlock<F>> {
        self.rescale_pending();
        let position = self.position;
        let Some(guest) = frame.source().and_then(|id| self.guaranteed(id)) else {
            return self.enqueue_other(now, frame);
        };
        let until = position + guest.horizon;
        let mut last = guest.last_departure;
        if guest.is_crowded() || self.store.is_full() {
            last = last.max(next_byte(until));
        }
        if let Some((index, limit)) = frame.flow().and_then(|flow| self.limits.find(flow)) {
            if limit.closed.is_some() {
                // None of its segments is to be left behind.
                let most = self.config.longest_frame() * frame.segments() as u64;
                let arrival = position.max(self.wire);
                if !limit.stay_closed(arrival) || !limit.bucket.holds(arrival, most) {
                    return Err(self.would_block_closed(frame));
                }
            }
            last = last.max(limit.last_release);
            if last > until {
                limit.waits(last);
                self.limits.note(index);
            }
        }
        if last > until {
            return Err(self.would_block(position, frame, TooLate(last)));
        }
        frame.segment(|segment| self.schedule_whole(position, segment));
        Ok(())
    }

    /// Schedules a segment of a packet that is taken, whatever its wait, as far as a
    /// wheel reaches.
    fn schedule_whole(&mut self, position: Position, mut frame: F) {
        match self.schedule(position, &mut frame, Patience::Wheel) {
            Ok(scheduled) => self.keep(scheduled, frame),
            Err(Unscheduled::Oversized) => self.count_oversized(frame.source()),
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
            && let Some(guest) = guest::find_mut(&mut self.guests, id)
        {
            guest.stats.dropped += 1;
        }
    }

    /// Charges a frame to the chain, and marks it where it has to wait for long.
    ///
    /// # Errors
    /// Why it is not scheduled. Then nothing was charged.
    #[inline(always)]
    fn schedule(
        &mut self,
        position: Position,
        frame: &mut F,
        patience: Patience,
    ) -> Result<Scheduled, Unscheduled> {
        let id = frame.source().ok_or(Unscheduled::BestEffort)?;
        let guest = match guest::find_mut(&mut self.guests, id) {
            Some(guest) if guest.contract == Contract::Guaranteed => guest,
            _ => return Err(Unscheduled::BestEffort),
        };
        let wire = void::on_the_wire(frame.len());
        if wire > self.config.longest_frame() {
            return Err(Unscheduled::Oversized);
        }
        let mut until = position + wheel::RANGE / 2;
        if patience == Patience::Horizon {
            until = position + guest.horizon;
            if self.store.is_full() {
                let late = guest.last_departure.max(next_byte(until));
                return Err(Unscheduled::TooLate(TooLate(late)));
            }
        }
        let arrival = Arrival {
            // What is on the wire already cannot be overtaken. Were a frame scheduled from
            // `position` on, the batch would swallow the gaps behind it.
            at: position.max(self.wire),
            wire,
            until,
            patience,
        };
        let stage = &mut self.destination_stage;
        let (stage, departure) = if guest.limited > 0
            && let Some(flow) = frame.flow()
            && let Some((index, limit)) = self.limits.find(flow)
        {
            let scheduled = schedule_limited(guest, limit, stage, arrival);
            let is_noted = match &scheduled {
                Ok(_) => limit.took(wire),
                Err(Unscheduled::TooLate(_)) => false,
                Err(_) => true,
            };
            if !is_noted {
                self.limits.note(index);
            }
            scheduled?
        } else {
            schedule_unlimited(guest, stage, arrival)?
        };
        guest.count(position, frame, wire, departure);
        Ok(Scheduled {
            guest: id.slot() as u32,
            stage,
            departure,
        })
    }

    /// Lets a frame wait in its place.
    #[inline(always)]
    fn keep(&mut self, scheduled: Scheduled, frame: F) {
        let Scheduled {
            guest,
            stage,
            departure,
        } = scheduled;
        let index = self.store.put(frame, departure, guest);
        let wheel = match stage {
            Stage::Destination => &mut self.destination_stage,
            Stage::Link => {
                // After a long rest the wire is far behind, further than the wheel reaches.
                self.link_stage.start_from(self.wire.max(self.position));
                &mut self.link_stage
            }
        };
        wheel.insert(&mut self.store.nodes, index, departure);
        self.next = self.next.min(departure);
    }

    /// Counts a frame that could be scheduled too late only, and says when to try again.
    #[cold]
    fn would_block(&mut self, position: Position, frame: F, late: TooLate) -> WouldBlock<F> {
        let guest = self.count_blocked(frame.source());
        let at = guest.map_or(position, |guest| late.0.saturating_sub(guest.horizon));
        // A batch's work is worth a try, and virtual time may be frozen.
        let pause = Nanos(self.config.batch.0 / 2);
        let retry_at = self.clock.moment(at).max(self.clock.now() + pause);
        WouldBlock { frame, retry_at }
    }

    /// Counts a frame to a closed destination, remembers that it waits, and says when
    /// to try again.
    #[cold]
    fn would_block_closed(&mut self, frame: F) -> WouldBlock<F> {
        let pause = RETRY_CLOSED.max(self.config.batch);
        let until = self.position + self.clock.bytes_in(pause);
        if let Some((index, limit)) = frame.flow().and_then(|flow| self.limits.find(flow)) {
            limit.waits(until);
            self.limits.note(index);
        }
        self.count_blocked(frame.source());
        let retry_at = self.clock.now() + pause;
        WouldBlock { frame, retry_at }
    }

    /// Counts a frame that would block with its guest, and returns that.
    fn count_blocked(&mut self, source: Option<GuestId>) -> Option<&Guest> {
        self.stats.blocked += 1;
        let guest = guest::find_mut(&mut self.guests, source?)?;
        guest.stats.blocked += 1;
        Some(guest)
    }

    /// Charges the first frame that waits for its destination to the rest of the
    /// chain, as one that comes when it is released.
    pub(super) fn release(&mut self, first: First) {
        let index = self.destination_stage.pop(&mut self.store.nodes, first);
        let node = &mut self.store.nodes[index as usize];
        let released = node.departure;
        let mut departure = released;
        if let Some(frame) = &mut node.frame
            && let Some(Some(guest)) = self.guests.get_mut(node.guest as usize)
        {
            let wire = void::on_the_wire(frame.len());
            guest.at_destinations -= wire;
            departure = guest.schedule_anyway(released, wire);
            if departure - released > guest.mark && frame.mark_congestion() {
                guest.stats.marked += 1;
            }
            node.departure = departure;
        }
        self.link_stage.start_from(released);
        self.link_stage
            .insert(&mut self.store.nodes, index, departure);
    }

    /// Schedules a guest's frames that wait as best effort, in the order they came.
    pub(super) fn schedule_best_effort(&mut self, position: Position, id: GuestId) {
        let mut waiting = Vec::with_capacity(self.best_effort.backlog().packets);
        self.best_effort.drain(&mut waiting);
        for queued in waiting {
            if queued.frame.source() == Some(id) {
                self.schedule_whole(position, queued.frame);
            } else {
                self.best_effort.restore(queued);
            }
        }
    }
}

/// Charges a frame to its destination's limit, and to its guest where it need not wait
/// for that. Returns where it waits, and until when.
///
/// # Errors
/// Why it is not scheduled. Then nothing was charged.
#[inline(always)]
fn schedule_limited(
    guest: &mut Guest,
    limit: &mut Limit,
    stage: &mut Wheel,
    arrival: Arrival,
) -> Result<(Stage, Position), Unscheduled> {
    let Arrival {
        at,
        wire,
        until,
        patience,
    } = arrival;
    if limit.pending_rescale.is_some() || limit.closed.is_some() && !limit.stay_closed(at) {
        return Err(Unscheduled::Closed);
    }
    let charged = limit.bucket.charge(at, wire);
    let waits = charged.leaves > at
        || guest.at_destinations > WireBytes::ZERO && stage.first().departure <= limit.last_release;
    let scheduled = if waits {
        if limit.closed.is_some() && charged.leaves > at {
            limit.bucket.refund(charged);
            return Err(Unscheduled::Closed);
        }
        let release = charged.leaves.max(limit.last_release);
        let release = release.max(stage.start_from(at));
        limit.waits(release);
        guest.wait_for_destination(release, wire, until, patience)
    } else {
        guest.schedule(at, wire, until)
    };
    match scheduled {
        Ok(release) if waits => {
            limit.last_release = release;
            Ok((Stage::Destination, release))
        }
        Ok(departure) => Ok((Stage::Link, departure)),
        Err(late) => {
            limit.bucket.refund(charged);
            limit.waits(late.0);
            Err(Unscheduled::TooLate(late))
        }
    }
}

/// Charges a frame of a flow without a limit to its guest. Returns where it waits, and
/// until when.
///
/// # Errors
/// Its departure would be too late. Then nothing was charged.
#[inline(always)]
fn schedule_unlimited(
    guest: &mut Guest,
    stage: &mut Wheel,
    arrival: Arrival,
) -> Result<(Stage, Position), Unscheduled> {
    let Arrival {
        at,
        wire,
        until,
        patience,
    } = arrival;
    let is_behind =
        guest.at_destinations > WireBytes::ZERO && stage.first().departure <= guest.not_before;
    let (stage, departure) = if is_behind {
        // Behind frames of its flow that waited for a limit it had.
        let release = guest.not_before.max(stage.start_from(at));
        let departure = guest.wait_for_destination(release, wire, until, patience);
        (Stage::Destination, departure)
    } else {
        (Stage::Link, guest.schedule(at, wire, until))
    };
    let departure = departure.map_err(Unscheduled::TooLate)?;
    Ok((stage, departure))
}

/// Hands over each segment of a frame, or the frame where it is not to be cut.
fn each_segment<F: Frame>(frame: F, mut sink: impl FnMut(F)) {
    if frame.segments() > 1 {
        frame.segment(sink);
    } else {
        sink(frame);
    }
}

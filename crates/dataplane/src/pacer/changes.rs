//! Changes of guarantees, limits, places and the wire.

use super::cap::Cap;
use super::core::Core;
use super::guarantees::Guarantees;
use super::level::{DestinationLevel, GuestLevel};
use super::limit::{FlowUse, WaitingFlow};
use super::limits::Limits;
use super::place::{mark_stale, set_home, set_place};
use super::translate::Translation;
use super::tree::{Home, Place};
use super::{Guarantee, Pacer, PacerConfig, PacerError, void};
use crate::{FlowKey, Frame, GuestId, RateLimit};
use tailbound_units::{Bytes, Nanos, Rate, WireBytes};

impl<F: Frame> Pacer<F> {
    /// Changes a guest's guarantee from `now` on, or ends it.
    ///
    /// No frame overtakes one of its flow, and none is lost except beyond a lower bound of memory.
    /// The frame that has a departure time keeps it, and the guest keeps its tokens up to the new
    /// depth. A guest without a guarantee so far starts with empty buckets, which are full after S
    /// / B, because its earlier traffic, also through another process, is unknown. Its frames that
    /// wait as best effort join its lines first. Frames of a guest whose guarantee ends become best
    /// effort immediately, and those to guests of this host wait no longer
    /// ([`Pacer::drain_freed`]).
    ///
    /// # Errors
    /// The rule that the guarantee breaks; the pacer is then unchanged.
    pub fn set_guest(
        &mut self,
        now: Nanos,
        id: GuestId,
        guarantee: Option<&Guarantee>,
    ) -> Result<(), PacerError> {
        self.core.chain.advance(now);
        let mut guarantees = Guarantees {
            core: &mut self.core,
            elastic: &mut self.elastic,
            best_effort: &mut self.best_effort,
            now,
        };
        if let Some(guarantee) = guarantee {
            return guarantees.set(id, guarantee);
        }
        guarantees.end(id);
        Ok(())
    }

    /// Limits the total traffic of a guaranteed guest from `now` on, or removes the limit. It caps
    /// elastic traffic: guaranteed frames never wait for it. The rate is at least B, and the depth
    /// at least S; lower values count as these. A changed cap keeps the tokens of its bucket, a new
    /// one is full, and the cap ends with the guarantee. Guests without a guarantee are ignored.
    pub fn set_cap(&mut self, now: Nanos, id: GuestId, limit: Option<&RateLimit>) {
        let at = self.core.start_at(now);
        let Some(guest) = self.core.guests.guaranteed_mut(id) else {
            return;
        };
        if guest.cap.as_deref().map(Cap::limit) == limit {
            return;
        }
        let fresh = limit.map(|limit| Cap::new(*limit, &guest.guarantee, &self.core.config));
        match (&mut guest.cap, fresh) {
            (Some(cap), Some(fresh)) => cap.reconfigure(&fresh, at, at),
            (cap, fresh) => *cap = fresh.map(Box::new),
        }
        self.elastic.set_target(guest, &self.core.chain.stats);
    }

    /// Forgets a guest without a guarantee, so that another can use its slot. Returns false if it
    /// has a guarantee.
    pub fn forget(&mut self, id: GuestId) -> bool {
        if self.core.guests.guaranteed(id).is_some() {
            return false;
        }
        if self.core.guests.find(id).is_some() {
            self.core.guests.vacate(id);
        }
        true
    }

    /// Limits a guaranteed guest's traffic to one destination to `rate` (the hose model's `B_i`),
    /// or removes the limit. The bucket is as deep as the guest's: a burst is not limited by its
    /// receiver (Silo 4.1), unless the guest has a part of its inward burst. No frame is lost or overtakes one of its flow. The rate applies
    /// immediately, to all but the frame that has a departure time.
    ///
    /// A rate of 0 closes the destination: its bucket does not fill. Its tokens may be used, and a
    /// new limit's bucket is full, so that a first message does not wait for a grant. With a part of
    /// an inward burst it is empty, and reported as used until it is full. Further frames wait, and the limit's use reports them as backlogged. A bucket that opens continues
    /// with its tokens.
    ///
    /// # Errors
    /// The rule that the limit breaks; the pacer is then unchanged.
    pub fn set_destination(
        &mut self,
        now: Nanos,
        id: GuestId,
        destination: u128,
        rate: Option<Rate>,
    ) -> Result<(), PacerError> {
        self.limits(now).set(id, destination, rate)
    }

    /// Lends a guaranteed guest `lent` bytes of a receiver's inward burst, in place of those that
    /// were lent before: the bucket of that limited destination is deeper by that, up to S. It keeps
    /// its debt, up to its depth, so more adds as many tokens. Destinations of one machine share
    /// the bytes. Without a limit, or without a part of inward bursts, nothing changes.
    pub fn lend(&mut self, now: Nanos, id: GuestId, destination: u128, lent: Bytes) {
        let key = FlowKey {
            source: id,
            destination,
        };
        self.limits(now).lend(key, lent);
    }

    /// Changes of limits at `now`.
    fn limits(&mut self, now: Nanos) -> Limits<'_, F> {
        let at = self.core.start_at(now);
        Limits {
            core: &mut self.core,
            elastic: &mut self.elastic,
            at,
        }
    }

    /// Passes on the use of limits since the last call: of each flow that had a frame's turn, whose
    /// frames still wait for the limit, or whose bucket is not full again. The cost depends on the
    /// number of such flows, not on the number of limits.
    ///
    /// A bucket of a host's destinations fills at the sum of their rates. While it is not full, all of
    /// them are passed on as lacking its bytes, also those without a frame: their receivers then grant
    /// rates, and the bucket fills as fast as all machines of the host permit.
    pub fn destinations_used(&mut self, now: Nanos, mut sink: impl FnMut(FlowUse)) {
        let at = self.core.start_at(now);
        let Core {
            guests,
            lines,
            chain,
            ..
        } = &mut self.core;
        let sight = (at, chain.wire.change());
        lines.drain_used(&mut chain.used, sight, &mut sink);
        let sharing = lines.take_sharing();
        for number in &sharing {
            let Some(tree) = guests
                .get_mut(*number)
                .and_then(|guest| guest.lines.tree.as_mut())
            else {
                continue;
            };
            tree.for_lacking(at, chain.wire.change(), |line, lacks| {
                let unused = lines.limit(line).filter(|limit| limit.used.is_none());
                unused
                    .map(|limit| limit.unused(lacks))
                    .into_iter()
                    .for_each(&mut sink);
            });
        }
        lines.return_sharing(sharing);
    }

    /// Accounts for a frame that reaches the wire at `now` past the pacer, such as one of the host
    /// itself: the next frame begins behind it. `len` is its length without FCS.
    pub fn take_wire(&mut self, now: Nanos, len: Bytes) {
        let start = self.core.start_at(now);
        let end = start + void::on_the_wire(len.0 as usize);
        self.core.chain.wire.take_until(end);
    }

    /// Returns the flows whose frames began to wait for their limits since the last call, and had not
    /// waited at the last [`Self::destinations_used`]. More than 64 are reported there only.
    pub fn flows_that_wait(&mut self) -> impl Iterator<Item = WaitingFlow> + '_ {
        let Core { lines, chain, .. } = &mut self.core;
        chain.began.drain().map(|flow| {
            let line = lines.find(flow);
            let queued = line.map_or(WireBytes::ZERO, |line| lines.at(line).wire);
            WaitingFlow { flow, queued }
        })
    }

    /// Returns the present levels of a guest's buckets; `None` if it has no guarantee.
    pub fn level(&mut self, now: Nanos, id: GuestId) -> Option<GuestLevel> {
        let at = self.core.start_at(now);
        GuestLevel::read(&mut self.core, id, at)
    }

    /// Adds tokens to {B, S} of a guest, up to its depth: for bytes that it is known not to have
    /// sent. Guests without a guarantee are ignored.
    pub fn fill_bucket(&mut self, now: Nanos, id: GuestId, bytes: WireBytes) {
        let at = self.core.start_at(now);
        if let Some(guest) = self.core.guests.guaranteed_mut(id) {
            guest.buckets.make_up(self.core.chain.wire.lost());
            guest.buckets.fill(bytes, at);
        }
    }

    /// Empties the buckets of a guest and of its destinations: it begins here now, and its earlier
    /// traffic elsewhere is unknown. Guests without a guarantee are ignored.
    pub fn empty_buckets(&mut self, now: Nanos, id: GuestId) {
        let at = self.core.start_at(now);
        let (lost, change) = (self.core.chain.wire.lost(), *self.core.chain.wire.change());
        let Some(guest) = self.core.guests.guaranteed_mut(id) else {
            return;
        };
        guest.buckets.make_up(lost);
        guest.buckets.drain(at.max(guest.buckets.last_departure()));
        if let Some(tree) = &mut guest.lines.tree {
            tree.accounts_mut().for_each(|account| {
                account.translate(&change);
                account.change(at, |account| account.hold(WireBytes::ZERO, at));
            });
        }
        mark_stale(guest, &mut self.core.lines);
        self.limits(now).empty(id);
    }

    /// Limits a destination ([`Pacer::set_destination`]), with this level of its bucket.
    ///
    /// # Errors
    /// The rule that the limit breaks; the pacer is then unchanged.
    pub fn set_destination_level(
        &mut self,
        now: Nanos,
        id: GuestId,
        level: DestinationLevel,
    ) -> Result<(), PacerError> {
        if level.place.is_some() {
            self.set_place(id, level.destination, level.place);
        }
        self.set_destination(now, id, level.destination, Some(level.rate))?;
        let key = FlowKey {
            source: id,
            destination: level.destination,
        };
        if let Some(index) = self.core.lines.find(key) {
            self.limits(now).hold(index, level.holds);
        }
        Ok(())
    }

    /// Sets the place of a guaranteed guest's destination, or forgets it. It applies to the
    /// destination's present and future limits, until the guarantee ends. Destinations of one
    /// machine share {sum of `B_i`, S}. Destinations of one host, rack or pod share {sum of `B_i`, K·S} if
    /// the guarantee has a number K ([`super::Guarantee::bursts`]); such a guest sends nothing to a
    /// limited destination without a place. A bucket that destinations join owes what theirs owe.
    /// The next batch applies the change.
    pub fn set_place(&mut self, id: GuestId, destination: u128, place: Option<Place>) {
        if let Some(guest) = self.core.guests.guaranteed_mut(id) {
            set_place(guest, &mut self.core.lines, destination, place);
        }
    }

    /// Sets the place of a guaranteed guest itself, or forgets it. Without it, a guest with a number
    /// K sends nothing to limited destinations. The next batch applies the change.
    pub fn set_home(&mut self, id: GuestId, home: Option<Home>) {
        if let Some(guest) = self.core.guests.guaranteed_mut(id) {
            set_home(guest, &mut self.core.lines, home);
        }
    }

    /// Changes the wire from `now` on: its rate, the batch and all other configuration.
    ///
    /// No frame is lost or overtakes one of its flow. Departures keep their times, rounded up to a
    /// byte of the new link, but not before the end of the frames that were passed on; those take
    /// the same number of bytes on both links. Guests keep their guarantees, their limits and their
    /// tokens; a limit that the new link cannot count becomes the nearest one that it can. The
    /// times of bytes change with the rate: call [`Pacer::clock`] again.
    ///
    /// The call takes time for each guest. Limits are left to [`Pacer::translate`], which the
    /// caller must repeat until all are converted; the rest of an earlier change is converted here.
    ///
    /// # Errors The rule that the configuration breaks, or that a guarantee would break under it;
    /// the pacer is then unchanged.
    pub fn reconfigure(&mut self, now: Nanos, config: &PacerConfig) -> Result<(), PacerError> {
        let core = &mut self.core;
        let former = Translation { core }.reconfigure(now, config)?;
        if config.best_effort != former.best_effort {
            self.best_effort.reconfigure(&config.best_effort);
        }
        let at = self.core.chain.wire.start();
        self.elastic.reconfigure(config, at);
        Ok(())
    }

    /// Converts some lines, at most `most` of them, to the wire's rate after its last change.
    /// Returns whether all are converted. Until then a line that waits for its limit may wait
    /// longer than necessary, if the rate was lowered.
    pub fn translate(&mut self, most: usize) -> bool {
        let core = &mut self.core;
        core.lines.is_translated() || Translation { core }.translate_lines(most)
    }
}

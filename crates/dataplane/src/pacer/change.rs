//! What is guaranteed, and on which wire, as it changes.

use super::config::{Guarantee, MAX_GUESTS, MAX_RATIO, PacerConfig, PacerError};
use super::guest::{self, Contract, Guest};
use super::limits::{FlowUse, RateChange};
use super::wheel::{self, Node, Wheel};
use super::{Pacer, WireClock};
use crate::{FlowKey, Frame, GuestId};
use std::mem;
use tailbound_units::exact::TokenBucket;
use tailbound_units::{Nanos, Position, Rate, WireBytes};

impl<F: Frame> Pacer<F> {
    /// Guarantees a guest something else from `now` on, or nothing any more.
    ///
    /// No frame is lost or overtakes one of its flow. Scheduled frames keep their
    /// departure times, and the guest its tokens as far as the new bucket holds them. A guest
    /// that had no guarantee starts with empty buckets, which are full after
    /// S / B: what it sent until now, by another process too, is not known. Its
    /// frames that wait as best effort are scheduled first. One that has none any more
    /// is best effort as soon as its scheduled frames have left.
    ///
    /// # Errors
    /// The rule that the guarantee breaks; then nothing has changed.
    pub fn set_guest(
        &mut self,
        now: Nanos,
        id: GuestId,
        guarantee: Option<&Guarantee>,
    ) -> Result<(), PacerError> {
        let position = self.advance(now);
        self.rescale_pending();
        let before = guest::find(&self.guests, id);
        let before = before.map_or(Contract::BestEffort, |guest| guest.contract);
        let held = self.bandwidth_of(id);
        let Some(guarantee) = guarantee else {
            if let Some(guest) = guest::find_mut(&mut self.guests, id)
                && guest.contract == Contract::Guaranteed
            {
                guest.contract = Contract::Draining;
                guest.limited = 0;
                guest.not_before = guest.not_before.max(self.limits.remove_all(id));
                self.committed.0 -= held.0;
            }
            return Ok(());
        };
        let index = id.slot();
        if index >= MAX_GUESTS {
            return Err(PacerError::Guest(index));
        }
        let fresh = fresh_guest(&self.config, id, guarantee)?;
        // Every term is at most the link's rate.
        let committed = Rate(self.committed.0 - held.0 + guarantee.bandwidth.0);
        check_sum(committed, self.config.link)?;
        if let Some(Some(former)) = self.guests.get(index)
            && former.id != id
        {
            let former = former.id;
            if !self.forget(former) {
                return Err(PacerError::Occupied { id, former });
            }
        }
        if self.guests.len() <= index {
            self.guests.resize_with(index + 1, || None);
        }
        self.committed = committed;
        let start = position.max(self.wire);
        match &mut self.guests[index] {
            Some(guest) if before != Contract::BestEffort => {
                guest.contract = Contract::Guaranteed;
                let from = start.max(guest.last_departure);
                guest.reconfigure(&fresh, from, from);
            }
            Some(guest) => {
                let stats = guest.stats;
                *guest = fresh.empty(start);
                guest.stats = stats;
            }
            none => *none = Some(fresh.empty(start)),
        }
        if before == Contract::BestEffort {
            self.schedule_best_effort(start, id);
        }
        Ok(())
    }

    /// Forgets a guest that has no guarantee any more, so that its slot can become
    /// another's. Returns false where it has one, or its scheduled frames still wait.
    pub fn forget(&mut self, id: GuestId) -> bool {
        let Some(guest) = guest::find(&self.guests, id) else {
            return true;
        };
        let waits = match guest.contract {
            Contract::Guaranteed => true,
            Contract::Draining => self.is_draining(guest),
            Contract::BestEffort => false,
        };
        if !waits {
            self.guests[id.slot()] = None;
        }
        !waits
    }

    /// Whether scheduled frames of a guest, that has no guarantee any more, may wait.
    pub(super) fn is_draining(&self, guest: &Guest) -> bool {
        guest.at_destinations > WireBytes::ZERO
            || self.link_stage.first().departure <= guest.last_departure
    }

    /// What of the link is guaranteed to a guest.
    fn bandwidth_of(&self, id: GuestId) -> Rate {
        self.guarantee(id).map_or(Rate(0), |held| held.bandwidth)
    }

    /// Limits what a guaranteed guest sends to one destination to `rate` (the hose
    /// model's `B_i`), or no longer. Its bucket is as deep as the guest's: a burst is
    /// not limited by its receiver (Silo 4.1). No frame is lost or overtakes one of
    /// its flow. What is released within the guest's horizon keeps its time; what
    /// comes after it is released as if it had been charged at the new rate.
    ///
    /// A rate of 0 closes the destination: its bucket does not fill. What is in it
    /// may be sent, and a new limit's is full, so that a first message waits for
    /// nobody; a large packet goes where full frames for all its segments would.
    /// What is beyond that would block, to be tried again after 1 ms, or a batch where
    /// that is longer, and its use tells that it is backlogged. What waits leaves at the
    /// rate before. A bucket that opens goes on with what it holds.
    ///
    /// # Errors
    /// The rule that the limit breaks; then nothing has changed.
    pub fn set_destination(
        &mut self,
        now: Nanos,
        id: GuestId,
        destination: u128,
        rate: Option<Rate>,
    ) -> Result<(), PacerError> {
        let position = self.advance(now);
        let key = FlowKey {
            source: id,
            destination,
        };
        if self.limits.is_moving(key) {
            self.rescale_pending();
        }
        let guest = match guest::find_mut(&mut self.guests, id) {
            Some(guest) if guest.contract == Contract::Guaranteed => guest,
            _ => return Err(PacerError::NotGuaranteed(id)),
        };
        let link = self.config.link;
        let burst = guest.guarantee.burst;
        let Some(rate) = rate else {
            if self.limits.get_mut(key).is_some() {
                // What waits is to wait no longer.
                self.set_destination(now, id, destination, Some(link))?;
                self.rescale_pending();
                self.forget_destination(key);
            }
            return Ok(());
        };
        let mut held = self.limits.get_mut(key);
        if rate.0 == 0 {
            let from = position.max(self.wire);
            if let Some(limit) = held {
                limit.close(from);
            } else {
                guest.limited += 1;
                self.limits
                    .insert(key, guest.full_bucket(), guest.not_before, Some(from));
            }
            return Ok(());
        }
        if let Some(limit) = &mut held
            && limit.bucket.is(rate, burst.into())
        {
            limit.open(position.max(self.wire));
            return Ok(());
        }
        check_rate(rate, link)?;
        let fresh = TokenBucket::on_wire(link, rate, burst.into())
            .ok_or(PacerError::BurstTooLong(burst))?;
        if let Some(limit) = held {
            let from = position.max(self.wire);
            let change = RateChange {
                from,
                floor: self.destination_stage.start_from(from),
                horizon: guest.horizon,
                until: position + wheel::RANGE / 2,
            };
            let moves = limit.reconfigure(&fresh, change);
            if moves.map_err(|_| PacerError::TooSlow { rate, link })? {
                self.changed.push(key);
            }
        } else {
            guest.limited += 1;
            self.limits.insert(key, fresh, guest.not_before, None);
        }
        Ok(())
    }

    /// Removes a flow's limit. Its next frames wait only for those that wait now.
    fn forget_destination(&mut self, key: FlowKey) {
        if let Some(last) = self.limits.remove(key)
            && let Some(guest) = guest::find_mut(&mut self.guests, key.source)
        {
            guest.not_before = guest.not_before.max(last);
            guest.limited -= 1;
        }
    }

    /// Returns whether what a guest sends to one destination has a limit. A closed
    /// destination has one.
    pub fn is_limited(&self, flow: FlowKey) -> bool {
        self.limits.has(flow)
    }

    /// Hands over what each flow with a limit did since the last call: those of
    /// which a frame was taken in or met backpressure, and those whose frames still
    /// wait. It takes as long as there are such, however many limits there are.
    pub fn destinations_used(&mut self, now: Nanos, sink: impl FnMut(FlowUse)) {
        let position = self.advance(now);
        self.limits.drain_used(position, sink);
    }

    /// Changes the wire from `now` on: its rate, the batch and all else that is
    /// configured.
    ///
    /// No frame is lost or overtakes one of its flow. Departures stay at the moments
    /// they were given for, rounded up to a byte of the new link; what was handed
    /// over takes as many bytes of it as of the old one. Guests keep their
    /// guarantees, their limits and their tokens; a limit that the new link cannot
    /// count becomes the nearest that it can. Positions of the wire are new
    /// where the rate is: ask for [`Pacer::clock`] again.
    ///
    /// # Errors
    /// The rule that the configuration breaks, or that a guarantee would break under
    /// it; then nothing has changed.
    pub fn reconfigure(&mut self, now: Nanos, config: &PacerConfig) -> Result<(), PacerError> {
        let position = self.advance(now);
        self.rescale_pending();
        let link = config.link;
        let batch = config.batch_on_the_wire()?;
        let translation = Translation::new(&self.clock, position, link);
        let fresh = self.fresh_guests(config)?;
        check_sum(self.committed, link)?;
        let mut last = Position::ZERO;
        for limit in self.limits.iter() {
            fresh_limit(&limit.bucket, link)?;
            last = last.max(limit.last_release);
        }
        for guest in self.guests.iter().flatten() {
            last = last.max(guest.last_departure).max(guest.not_before);
        }
        if translation.at(last) > translation.to + wheel::RANGE / 2 {
            return Err(PacerError::TooFarAhead(link));
        }

        let start = position.max(self.wire);
        for (guest, fresh) in self.guests.iter_mut().zip(fresh) {
            let Some(guest) = guest else { continue };
            if let Some(fresh) = fresh {
                let from = start.max(guest.last_departure);
                guest.reconfigure(&fresh, from, translation.at(from));
            }
            guest.last_departure = translation.at(guest.last_departure);
            guest.not_before = translation.at(guest.not_before);
        }
        self.limits.each_mut(|limit| {
            if let Ok(fresh) = fresh_limit(&limit.bucket, link) {
                let from = start.max(limit.last_release);
                limit.stay_closed(from);
                limit.bucket.reconfigure(&fresh, from, translation.at(from));
            }
            limit.translate(|moment| translation.at(moment));
        });
        if link != self.config.link {
            self.translate_wire(&translation);
        }
        self.batch = batch;
        self.lead = batch / 2;
        self.catch_up = config.catch_up_on_the_wire();
        self.store.set_capacity(config.packets);
        if config.best_effort != self.config.best_effort {
            self.best_effort.reconfigure(&config.best_effort);
        }
        self.config = config.clone();
        Ok(())
    }

    /// Every guest that has a guarantee, or had one that its frames still wait for,
    /// as it would be on another wire.
    fn fresh_guests(&self, config: &PacerConfig) -> Result<Vec<Option<Guest>>, PacerError> {
        let fresh = |guest: &Option<Guest>| match guest {
            Some(guest) if guest.contract != Contract::BestEffort => {
                fresh_guest(config, guest.id, &guest.guarantee).map(Some)
            }
            _ => Ok(None),
        };
        self.guests.iter().map(fresh).collect()
    }

    /// Turns every moment into one of another link.
    fn translate_wire(&mut self, translation: &Translation) {
        self.stats.frozen += self.clock.frozen();
        self.clock = translation.clock;
        self.wire = translation.to + self.wire.since(self.position);
        self.position = self.clock.advance(self.clock.now());
        self.next = if self.next == Position::NEVER {
            Position::NEVER
        } else {
            translation.at(self.next)
        };
        // What waits, and what comes from now on.
        let floor = self.next.min(self.wire);
        for wheel in [&mut self.destination_stage, &mut self.link_stage] {
            let mut old = mem::replace(wheel, Wheel::new());
            wheel.start_from(floor);
            translate_all(&mut old, wheel, &mut self.store.nodes, translation);
        }
    }
}

/// A link's moments as those of another link.
#[derive(Debug)]
struct Translation {
    /// The other link's clock.
    clock: WireClock,
    /// One moment on both.
    from: Position,
    to: Position,
    /// Bytes of one are so many of the other.
    old: Rate,
    new: Rate,
}

impl Translation {
    /// From a link whose clock is at `position` to one with `rate`. None but the
    /// same where it is the same.
    fn new(clock: &WireClock, position: Position, rate: Rate) -> Self {
        let mut translation = Self {
            clock: *clock,
            from: position,
            to: position,
            old: clock.rate(),
            new: rate,
        };
        if translation.old != rate {
            translation.clock = WireClock::new(rate);
            translation.clock.advance(clock.now());
            // A byte of the old link may begin a little after now: moments are not
            // to become earlier.
            translation.to = { translation.clock }.advance(clock.moment(position));
        }
        translation
    }

    /// When the byte `moment` began, rounded up: moments keep their order.
    fn at(&self, moment: Position) -> Position {
        let (old, new) = (u128::from(self.old.0), u128::from(self.new.0));
        let scaled = |length: WireBytes| u128::from(length.0) * new;
        if let Some(before) = self.from.checked_since(moment) {
            let before = scaled(before) / old;
            self.to.saturating_sub(WireBytes(before as u64))
        } else {
            let after = scaled(moment - self.from).div_ceil(old);
            self.to + WireBytes(after as u64)
        }
    }
}

/// Moves everything to a wheel that is empty, in order.
fn translate_all<T>(
    old: &mut Wheel,
    new: &mut Wheel,
    nodes: &mut [Node<T>],
    translation: &Translation,
) {
    loop {
        let first = old.first();
        if first.departure == Position::NEVER {
            return;
        }
        let index = old.pop(nodes, first);
        let departure = translation.at(first.departure);
        nodes[index as usize].departure = departure;
        new.insert(nodes, index, departure);
    }
}

/// A guest under a guarantee, with full buckets, where that keeps the rules.
fn fresh_guest(
    config: &PacerConfig,
    id: GuestId,
    guarantee: &Guarantee,
) -> Result<Guest, PacerError> {
    let Guarantee {
        bandwidth,
        burst,
        burst_rate,
        horizon,
        ..
    } = *guarantee;
    let PacerConfig {
        link, frame, batch, ..
    } = *config;
    check_rate(bandwidth, link)?;
    if burst_rate < bandwidth {
        return Err(PacerError::BurstRateBelowBandwidth {
            burst_rate,
            bandwidth,
        });
    }
    check_rate(burst_rate, link)?;
    if burst < frame {
        return Err(PacerError::BurstBelowFrame { burst, frame });
    }
    let most = link.time_for((wheel::RANGE / 8).into());
    if horizon < batch || horizon > most {
        return Err(PacerError::Horizon {
            horizon,
            batch,
            most,
        });
    }
    Guest::new(config, id, guarantee).ok_or(PacerError::BurstTooLong(burst))
}

/// A full bucket as that of a limit, on another link: at its rate, or the nearest
/// that the link can count. Whoever limits destinations knows nothing of the link.
fn fresh_limit(
    bucket: &TokenBucket<Position>,
    link: Rate,
) -> Result<TokenBucket<Position>, PacerError> {
    let burst = bucket.burst();
    let rate = bucket.rate().clamp(slowest(link), link);
    TokenBucket::on_wire(link, rate, burst).ok_or(PacerError::BurstTooLong(burst.into()))
}

/// The lowest rate that can be counted on a link.
const fn slowest(link: Rate) -> Rate {
    Rate(link.0.div_ceil(MAX_RATIO))
}

fn check_rate(rate: Rate, link: Rate) -> Result<(), PacerError> {
    if rate.0 == 0 {
        return Err(PacerError::NoBandwidth);
    }
    if rate > link {
        return Err(PacerError::AboveLink { rate, link });
    }
    if rate < slowest(link) {
        return Err(PacerError::TooSlow { rate, link });
    }
    Ok(())
}

fn check_sum(sum: Rate, link: Rate) -> Result<(), PacerError> {
    if sum > link {
        return Err(PacerError::SumAboveLink { sum, link });
    }
    Ok(())
}

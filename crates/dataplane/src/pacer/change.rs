//! Changes of guarantees, caps and limits of destinations.

use super::Pacer;
use super::account::Account;
use super::cap::Cap;
use super::config::{Guarantee, MAX_GUESTS, PacerConfig, PacerError, slowest};
use super::guest::{self, Contract, Guest, Ring, number_of};
use super::index::{FrameIndex, LineIndex};
use super::limit::{FlowUse, Limit, UsedLines};
use super::line::{Line, Stage};
use super::lines::Lines;
use super::place::{join_tree, mark_stale, set_bursts};
use super::round::weight;
use super::shared::is_in_tree;
use super::store::Arrival;
use super::take::line_of;
use super::wheel;
use crate::queue::Queued;
use crate::{FlowKey, Frame, GuestId, RateLimit};
use tailbound_units::exact::TokenBucket;
use tailbound_units::{Bytes, Nanos, Position, Rate, WireBytes};

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
        let position = self.advance(now);
        let held = self.guarantee(id).copied();
        let Some(guarantee) = guarantee else {
            if held.is_some() {
                self.end_guarantee(id);
                self.share_memory(id, held.as_ref());
            }
            return Ok(());
        };
        if id.slot() >= MAX_GUESTS {
            return Err(PacerError::Guest(id.slot()));
        }
        let fresh = fresh_guest(&self.config, id, guarantee)?;
        let before = held.map_or(Rate(0), |held| held.bandwidth);
        // Every term is at most the link's rate.
        let committed = Rate(self.committed.0 - before.0 + guarantee.bandwidth.0);
        check_sum(committed, self.config.link)?;
        if let Some(Some(former)) = self.guests.get(number_of(id))
            && former.id != id
        {
            let former = former.id;
            if !self.forget(former) {
                return Err(PacerError::Occupied { id, former });
            }
        }
        self.committed = committed;
        let start = position.max(self.chain.wire);
        if held.is_some() {
            if let Some(guest) = guest::find_mut(&mut self.guests, id) {
                guest.make_up(self.chain.lost);
                let from = start.max(guest.last_departure);
                guest.reconfigure(&self.config, &fresh, (from, from));
            }
            self.share_memory(id, held.as_ref());
        } else {
            self.begin_guarantee(now, start, id, fresh);
        }
        if let Some(guest) = guest::find_mut(&mut self.guests, id) {
            set_bursts(guest, &mut self.lines, guarantee.bursts);
        }
        if let Some(held) = held
            && held.credit != guarantee.credit
        {
            deepen_destinations(self, id, start);
        }
        Ok(())
    }

    /// Limits the total traffic of a guaranteed guest from `now` on, or removes the limit. It caps
    /// elastic traffic: guaranteed frames never wait for it. The rate is at least B, and the depth
    /// at least S; lower values count as these. A changed cap keeps the tokens of its bucket, a new
    /// one is full, and the cap ends with the guarantee. Guests without a guarantee are ignored.
    pub fn set_cap(&mut self, now: Nanos, id: GuestId, limit: Option<&RateLimit>) {
        let at = self.advance(now).max(self.chain.wire);
        let Some(guest) = guest::guaranteed(&mut self.guests, Some(id)) else {
            return;
        };
        if guest.cap.as_deref().map(Cap::limit) == limit {
            return;
        }
        let fresh = limit.map(|limit| Cap::new(*limit, &guest.guarantee, &self.config));
        match (&mut guest.cap, fresh) {
            (Some(cap), Some(fresh)) => cap.reconfigure(&fresh, at, at),
            (cap, fresh) => *cap = fresh.map(Box::new),
        }
        let target = guest.target();
        let flows = guest.elastic.flows;
        self.hold_elastic_to(flows, target);
    }

    /// Forgets a guest without a guarantee, so that another can use its slot. Returns false if it
    /// has a guarantee.
    pub fn forget(&mut self, id: GuestId) -> bool {
        if self.guarantee(id).is_some() {
            return false;
        }
        if guest::find(&self.guests, id).is_some() {
            self.guests[number_of(id)] = None;
        }
        true
    }

    /// Begins the guarantee of a guest, and takes in its frames that wait as best effort.
    fn begin_guarantee(&mut self, now: Nanos, start: Position, id: GuestId, fresh: Guest) {
        let number = number_of(id);
        let count = number.number() + 1;
        if self.guests.len() < count {
            self.guests.entries_mut().resize_with(count, || None);
            self.chain.departures.reserve(count);
        }
        let before = self.guests[number].take();
        let guarantee = fresh.guarantee;
        let line = Line::new(number, weight(guarantee.bandwidth, self.config.link), None);
        let mut guest = fresh.empty(start, self.chain.lost);
        guest.unlimited = self.insert_line(line);
        guest.stats = before.map(|guest| guest.stats).unwrap_or_default();
        self.guests[number] = Some(guest);
        self.share_memory(id, None);
        let mut waiting = Vec::with_capacity(self.best_effort.backlog().packets);
        self.best_effort.drain(&mut waiting);
        for queued in waiting {
            match guest::find_mut(&mut self.guests, id) {
                Some(guest) if queued.frame.source() == Some(id) => {
                    let line = line_of(guest, &self.lines, &queued.frame);
                    let arrival = Arrival {
                        enqueued: queued.enqueued.min(now),
                        at: start,
                    };
                    self.take(line, queued.frame, arrival);
                }
                _ => self.best_effort.restore(queued),
            }
        }
    }

    /// Ends the guarantee of a guest; its frames become best effort.
    fn end_guarantee(&mut self, id: GuestId) {
        let Some(guest) = guest::find_mut(&mut self.guests, id) else {
            return;
        };
        guest.contract = Contract::BestEffort;
        self.committed.0 -= guest.guarantee.bandwidth.0;
        let (stamped, unlimited, first) =
            (guest.stamped, guest.unlimited, guest.destinations.first);
        guest.stamped = FrameIndex::NONE;
        guest.memory = Bytes(0);
        if guest.ring != Ring::Read && !std::mem::replace(&mut guest.is_noted, true) {
            self.read_again.push(id);
        }
        if stamped.is_some() {
            let number = number_of(id);
            if !self.chain.local.remove(number) {
                self.chain.departures.remove(number);
            }
            self.restore(stamped);
        }
        self.end_elastic(number_of(id), Self::restore);
        if let Some(guest) = guest::find_mut(&mut self.guests, id)
            && let Some(tree) = guest.destinations.tree.take()
        {
            tree.for_wheel(|line| self.chain.releases.remove(line));
        }
        let mut line = unlimited;
        let mut next = first;
        while line.is_some() {
            if self.lines.at(line).stage == Stage::Limited {
                self.chain.releases.remove(line);
            }
            let mut index = self.lines.at_mut(line).take_all(&mut self.chain.store);
            while index.is_some() {
                let next = self.chain.store.at(index).next;
                self.restore(index);
                index = next;
            }
            let sibling = self.lines.sibling(next);
            self.lines.remove(line, &mut self.chain.used);
            line = next;
            next = sibling;
        }
    }

    /// Queues a frame as best effort, or frees it if it goes to a guest of this host.
    fn restore(&mut self, index: FrameIndex) {
        let enqueued = self.chain.store.at(index).enqueued;
        let Some(frame) = self.chain.store.take(index) else {
            return;
        };
        if frame.is_local() {
            self.chain.local.free(frame);
        } else {
            self.best_effort.restore(Queued { frame, enqueued });
        }
    }

    fn insert_line(&mut self, line: Line) -> LineIndex {
        let index = self.lines.insert(line);
        self.chain.releases.reserve(self.lines.count());
        self.chain.links.reserve(self.lines.count());
        index
    }

    /// Divides the memory again after a guest's guarantee has changed.
    fn share_memory(&mut self, id: GuestId, before: Option<&Guarantee>) {
        let after = self.guarantee(id).copied();
        let memory =
            |guarantee: Option<&Guarantee>| guarantee.map_or(0, |g| Guest::memory_for(g).0);
        let parts = self.memory_parts();
        self.wanted.0 = self.wanted.0 - memory(before) + memory(after.as_ref());
        if self.memory_parts() == parts {
            let there = self.config.memory;
            if let Some(guest) = guest::find_mut(&mut self.guests, id) {
                guest.set_bound(there, parts);
            }
        } else {
            self.divide_memory();
        }
    }

    /// Number of parts into which the memory is divided; a guest with a maximum of n bytes gets n
    /// parts. A part is a byte, or less if the memory is insufficient: the number is then a power
    /// of two, so that it rarely changes.
    fn memory_parts(&self) -> Bytes {
        if self.wanted <= self.config.memory {
            self.config.memory
        } else {
            Bytes(self.wanted.0.next_power_of_two())
        }
    }

    /// Sets the memory limit of each guest.
    pub(super) fn divide_memory(&mut self) {
        let (there, parts) = (self.config.memory, self.memory_parts());
        for guest in self.guests.iter_mut().flatten() {
            guest.set_bound(there, parts);
        }
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
        let at = self.advance(now).max(self.chain.wire);
        let key = FlowKey {
            source: id,
            destination,
        };
        let Some(guest) = self.guaranteed(id) else {
            return Err(PacerError::NotGuaranteed(id));
        };
        let (link, burst) = (self.config.link, guest.guarantee.to_each());
        let held = self.lines.find(key);
        let Some(rate) = rate else {
            if let Some(index) = held {
                self.forget_destination(id, index, at);
            }
            return Ok(());
        };
        if rate.0 == 0 {
            if let Some(index) = held {
                let lost = self.chain.lost;
                self.change_limit(index, at, |account| account.close(at, lost));
            } else {
                let bucket = guest.new_bucket(link, at);
                let limit = Limit::new(key, bucket, Some(at), self.chain.lost);
                self.add_destination(id, limit, at);
                note_unless_full(&mut self.lines, &mut self.chain.used, key, at);
            }
            return Ok(());
        }
        if let Some(index) = held
            && let Some(limit) = &self.lines.at(index).limit
            && limit.account.rate() == rate
            && limit.account.is(rate, burst.into())
        {
            return Ok(());
        }
        check_rate(rate, link)?;
        let lost = self.chain.lost;
        let starts_empty = guest.guarantee.credit.is_some();
        let fresh = TokenBucket::on_wire(link, rate, burst.into())
            .ok_or(PacerError::BurstTooLong(burst))?;
        if let Some(index) = held {
            self.change_limit(index, at, |account| {
                account.open(at, lost);
                if !account.is(rate, burst.into()) {
                    account.reconfigure(&fresh, at, at);
                }
            });
        } else {
            let bucket = if starts_empty { fresh.empty(at) } else { fresh };
            self.add_destination(id, Limit::new(key, bucket, None, lost), at);
            note_unless_full(&mut self.lines, &mut self.chain.used, key, at);
        }
        Ok(())
    }

    /// Changes the limit of a line at `at`, and checks its first frame again.
    pub(super) fn change_limit(
        &mut self,
        index: LineIndex,
        at: Position,
        change: impl FnOnce(&mut Account),
    ) {
        let Self {
            guests,
            lines,
            chain,
            config,
            ..
        } = self;
        let number = lines.at(index).guest;
        let guest = guest::of_slot(guests, number);
        let line = lines.at_mut(index);
        let mut waits = chain.withdraw(line, index);
        let is_in_tree = is_in_tree(guest, line);
        if let Some(limit) = &mut line.limit {
            limit.account.translate(&chain.change);
            limit.account.change(at, change);
            let (rate, open_rate) = (limit.account.rate(), limit.account.open_rate());
            let weight = weight(open_rate, config.link);
            line.target = frame_and_a_half(open_rate, config.frame);
            if is_in_tree {
                chain.set_rate_in_tree(guest, line, rate, weight, at);
                if !chain.conforms_in_tree(line, at) {
                    chain.retreat(guest, line, index, at);
                    waits = true;
                }
            } else {
                let before = std::mem::replace(&mut line.weight, weight);
                chain.set_rate_in_tree(guest, line, rate, weight, at);
                if line.stage == Stage::Released {
                    guest.round.reweigh(before, weight);
                    chain.check_released(guest, line, index, at);
                }
            }
        }
        if waits {
            chain.set_head((guest, line), index, at);
        }
    }

    /// Sets the condition that the first frame of a line waits for: see `Chain::set_head`.
    pub(super) fn set_head(&mut self, index: LineIndex, at: Position) {
        let line = self.lines.at_mut(index);
        let guest = guest::of_slot(&mut self.guests, line.guest);
        self.chain.set_head((guest, line), index, at);
    }

    /// Adds a limit to a flow without one. The flow's waiting frames join its line.
    fn add_destination(&mut self, id: GuestId, limit: Limit, at: Position) {
        let flow = limit.key;
        let weight = weight(limit.account.open_rate(), self.config.link);
        let target = frame_and_a_half(limit.account.open_rate(), self.config.frame);
        let mut line = Line::new(number_of(id), weight, Some(limit));
        line.target = target;
        let index = self.insert_line(line);
        let Self {
            guests,
            lines,
            chain,
            ..
        } = self;
        let Some(guest) = guest::find_mut(guests, id) else {
            return;
        };
        guest.destinations.count += 1;
        join_tree(guest, lines, index);
        if let Some(limit) = &mut lines.at_mut(index).limit {
            limit.sibling = guest.destinations.first;
        }
        guest.destinations.first = index;
        let Some((line, unlimited)) = lines.two_mut(index, guest.unlimited) else {
            return;
        };
        if unlimited.is_empty() {
            return;
        }
        line.take_from(&mut chain.store, unlimited, |frame: &F| {
            frame.flow() == Some(flow)
        });
        guest.released -= line.wire;
        let (took, took_all) = (!line.is_empty(), unlimited.is_empty());
        if took_all {
            unlimited.stage = Stage::Empty;
            guest.lines -= 1;
            let weight = unlimited.weight;
            guest
                .round
                .remove(&mut chain.links, guest.unlimited, weight);
        }
        if took {
            guest.lines += 1;
            self.set_head(index, at);
        }
    }

    /// Removes a limit. The frames that wait for it move behind those without a limit.
    fn forget_destination(&mut self, id: GuestId, index: LineIndex, at: Position) {
        let Self {
            guests,
            lines,
            chain,
            ..
        } = self;
        let Some(guest) = guest::find_mut(guests, id) else {
            return;
        };
        let line = lines.at_mut(index);
        chain.retreat(guest, line, index, at);
        chain.set_rate_in_tree(guest, line, Rate(0), line.weight, at);
        chain.withdraw(line, index);
        let line = lines.at(index);
        if line.stage == Stage::Released {
            guest.round.remove(&mut chain.links, index, line.weight);
            guest.released -= line.wire;
        }
        let mut was_empty = false;
        if let Some((line, unlimited)) = lines.two_mut(index, guest.unlimited)
            && !line.is_empty()
        {
            was_empty = unlimited.is_empty();
            guest.lines -= u32::from(!was_empty);
            if !was_empty {
                guest.released += line.wire;
            }
            unlimited.take_from(&mut chain.store, line, |_| true);
        }
        let next = lines
            .at(index)
            .limit
            .as_ref()
            .map_or(LineIndex::NONE, |limit| limit.sibling);
        guest.destinations.count -= 1;
        if guest.destinations.first == index {
            guest.destinations.first = next;
        } else {
            let mut before = guest.destinations.first;
            while let Some(limit) = &mut lines.at_mut(before).limit {
                if limit.sibling == index {
                    limit.sibling = next;
                    break;
                }
                before = limit.sibling;
            }
        }
        let unlimited = guest.unlimited;
        mark_stale(guest, lines);
        lines.remove(index, &mut chain.used);
        if was_empty {
            self.set_head(unlimited, at);
        }
        self.trim(unlimited);
    }

    /// Passes on the use of limits since the last call: of each flow that had a frame's turn, whose
    /// frames still wait for the limit, or whose bucket is not full again. The cost depends on the
    /// number of such flows, not on the number of limits.
    pub fn destinations_used(&mut self, now: Nanos, sink: impl FnMut(FlowUse)) {
        let at = self.advance(now).max(self.chain.wire);
        let sight = (at, &self.chain.change);
        self.lines.drain_used(&mut self.chain.used, sight, sink);
    }
}

/// Sets the depth of the buckets of all destinations of a guest, whose part of inward bursts has
/// changed. Each keeps its debt, up to its depth.
fn deepen_destinations<F: Frame>(pacer: &mut Pacer<F>, id: GuestId, at: Position) {
    let Some(guest) = pacer.guaranteed(id) else {
        return;
    };
    let depth = guest.guarantee.to_each().into();
    let mut next = guest.destinations.first;
    let (link, lost) = (pacer.config.link, pacer.chain.lost);
    while let Some(limit) = pacer.lines.limit(next) {
        let index = std::mem::replace(&mut next, limit.sibling);
        pacer.change_limit(index, at, |account| {
            let owes = account.lacks(at);
            account.configure(account.rate(), depth, link, at, lost);
            account.hold(depth.saturating_sub(owes), at);
        });
    }
    if let Some(guest) = guest::find_mut(&mut pacer.guests, id) {
        mark_stale(guest, &mut pacer.lines);
    }
}

/// Reports a new limit as used, unless its bucket is full.
fn note_unless_full(lines: &mut Lines, used: &mut UsedLines, key: FlowKey, at: Position) {
    if let Some(index) = lines.find(key)
        && let Some(limit) = lines.limit_mut(index)
        && limit.account.lacks(at) > WireBytes::ZERO
    {
        limit.note(index, used);
    }
}

/// Time of a destination for a frame and a half: a shorter wait never counts as too long.
fn frame_and_a_half(rate: Rate, frame: Bytes) -> Nanos {
    rate.time_for(Bytes(frame.0 * 3 / 2))
}

impl PacerConfig {
    /// Checks a guarantee by itself: whether a guest that is alone on the wire could have it.
    ///
    /// # Errors
    /// The broken rule.
    pub fn check(&self, guarantee: &Guarantee) -> Result<(), PacerError> {
        fresh_guest(self, GuestId::first(0), guarantee).map(drop)
    }

    /// The lowest rate that can be counted on this wire.
    pub const fn slowest(&self) -> Rate {
        slowest(self.link)
    }
}

/// Returns a guest under a guarantee, with full buckets, if the guarantee follows the rules.
pub(super) fn fresh_guest(
    config: &PacerConfig,
    id: GuestId,
    guarantee: &Guarantee,
) -> Result<Guest, PacerError> {
    let Guarantee {
        bandwidth,
        burst,
        burst_rate,
        horizon,
        credit,
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
    if let Some(credit) = credit.filter(|credit| *credit < frame) {
        return Err(PacerError::CreditBelowFrame { credit, frame });
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

pub(super) fn check_sum(sum: Rate, link: Rate) -> Result<(), PacerError> {
    if sum > link {
        return Err(PacerError::SumAboveLink { sum, link });
    }
    Ok(())
}

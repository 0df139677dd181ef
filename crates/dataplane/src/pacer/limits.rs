//! Limits of destinations: their rates, the levels of their buckets, and their lines.

use super::account::Account;
use super::config::{PacerError, check_rate};
use super::core::Core;
use super::flows::Elastic;
use super::guests::number_of;
use super::index::LineIndex;
use super::limit::{Limit, Sharing};
use super::line::{Line, Stage};
use super::place::{join_tree, mark_stale};
use super::room::Room;
use super::round::weight;
use super::shared::is_in_tree;
use crate::{FlowKey, Frame, GuestId};
use tailbound_units::exact::TokenBucket;
use tailbound_units::{Bytes, Nanos, Position, Rate, WireBytes};

/// Changes of limits at a position.
pub(super) struct Limits<'p, F> {
    pub(super) core: &'p mut Core<F>,
    pub(super) elastic: &'p mut Elastic,
    pub(super) at: Position,
}

impl<F: Frame> Limits<'_, F> {
    /// Limits a destination, or removes its limit: see [`super::Pacer::set_destination`].
    ///
    /// # Errors
    /// The rule that the limit breaks.
    pub(super) fn set(
        &mut self,
        id: GuestId,
        destination: u128,
        rate: Option<Rate>,
    ) -> Result<(), PacerError> {
        let key = FlowKey {
            source: id,
            destination,
        };
        let Some(guest) = self.core.guests.guaranteed(id) else {
            return Err(PacerError::NotGuaranteed(id));
        };
        let held = self.core.lines.find(key);
        let limit = held.and_then(|index| self.core.lines.limit(index));
        let lent = limit.map_or(Bytes::ZERO, |limit| limit.lent);
        let burst = guest.guarantee.to_each(lent);
        let Some(rate) = rate else {
            if let Some(index) = held {
                self.forget(id, index);
            }
            return Ok(());
        };
        if rate.0 == 0 {
            self.close(key, held);
            return Ok(());
        }
        if let Some(index) = held
            && let Some(limit) = &self.core.lines.at(index).limit
            && limit.account.rate() == rate
            && limit.account.is(rate, burst.into())
        {
            return Ok(());
        }
        self.open(key, held, rate, burst)
    }

    /// Closes a limit, or adds a closed one.
    fn close(&mut self, key: FlowKey, held: Option<LineIndex>) {
        let (at, lost) = (self.at, self.core.chain.wire.lost());
        if let Some(index) = held {
            self.change(index, |account| account.close(at, lost));
        } else if let Some(guest) = self.core.guests.guaranteed(key.source) {
            let bucket = guest.new_bucket(self.core.config.link, at);
            self.add(Limit::new(key, bucket, Some(at), lost));
            self.note_unless_full(key);
        }
    }

    /// Opens a limit at a rate, or adds an open one.
    fn open(
        &mut self,
        key: FlowKey,
        held: Option<LineIndex>,
        rate: Rate,
        burst: Bytes,
    ) -> Result<(), PacerError> {
        let (at, lost, link) = (self.at, self.core.chain.wire.lost(), self.core.config.link);
        check_rate(rate, link)?;
        let fresh = TokenBucket::on_wire(link, rate, burst.into())
            .ok_or(PacerError::BurstTooLong(burst))?;
        if let Some(index) = held {
            self.change(index, |account| {
                account.open(at, lost);
                if !account.is(rate, burst.into()) {
                    account.reconfigure(&fresh, at, at);
                }
            });
        } else if let Some(guest) = self.core.guests.guaranteed(key.source) {
            let starts_empty = guest.guarantee.credit.is_some();
            let bucket = if starts_empty { fresh.empty(at) } else { fresh };
            self.add(Limit::new(key, bucket, None, lost));
            self.note_unless_full(key);
        }
        Ok(())
    }

    /// Changes the limit of a line, and checks its first frame again.
    fn change(&mut self, index: LineIndex, change: impl FnOnce(&mut Account)) {
        let at = self.at;
        let Core {
            guests,
            lines,
            chain,
            config,
        } = &mut *self.core;
        let number = lines.at(index).guest;
        let guest = guests.at_mut(number);
        let line = lines.at_mut(index);
        let mut waits = chain.withdraw(line, index);
        let is_in_tree = is_in_tree(guest, line);
        if let Some(limit) = &mut line.limit {
            limit.account.translate(chain.wire.change());
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

    /// Adds a limit to a flow without one. The flow's waiting frames join its line.
    fn add(&mut self, limit: Limit) {
        let at = self.at;
        let id = limit.key.source;
        let flow = limit.key;
        let weight = weight(limit.account.open_rate(), self.core.config.link);
        let target = frame_and_a_half(limit.account.open_rate(), self.core.config.frame);
        let mut line = Line::new(number_of(id), weight, Some(limit));
        line.target = target;
        let index = self.core.insert_line(line);
        let Core {
            guests,
            lines,
            chain,
            ..
        } = &mut *self.core;
        let guest = guests.find_mut(id).expect("its limits were looked up");
        guest.lines.limited += 1;
        join_tree(guest, lines, index);
        if let Some(limit) = &mut lines.at_mut(index).limit {
            limit.sibling = guest.lines.first;
        }
        guest.lines.first = index;
        let two = lines.two_mut(index, guest.lines.unlimited);
        let (line, unlimited) = two.expect("the new line is another one");
        if unlimited.is_empty() {
            return;
        }
        line.take_from(&mut chain.store, unlimited, |frame: &F| {
            frame.flow() == Some(flow)
        });
        guest.backlog.released -= line.wire;
        let (took, took_all) = (!line.is_empty(), unlimited.is_empty());
        if took_all {
            unlimited.stage = Stage::Empty;
            guest.lines.busy -= 1;
            let weight = unlimited.weight;
            guest
                .round
                .remove(&mut chain.links, guest.lines.unlimited, weight);
        }
        if took {
            guest.lines.busy += 1;
            self.core.set_head(index, at);
        }
    }

    /// Removes a limit. The frames that wait for it move behind those without a limit.
    fn forget(&mut self, id: GuestId, index: LineIndex) {
        let at = self.at;
        let Core {
            guests,
            lines,
            chain,
            ..
        } = &mut *self.core;
        let guest = guests.find_mut(id).expect("its limits were looked up");
        let line = lines.at_mut(index);
        chain.retreat(guest, line, index, at);
        chain.set_rate_in_tree(guest, line, Rate(0), line.weight, at);
        chain.withdraw(line, index);
        let line = lines.at(index);
        if line.stage == Stage::Released {
            guest.round.remove(&mut chain.links, index, line.weight);
            guest.backlog.released -= line.wire;
        }
        let mut was_empty = false;
        if let Some((line, unlimited)) = lines.two_mut(index, guest.lines.unlimited)
            && !line.is_empty()
        {
            was_empty = unlimited.is_empty();
            guest.lines.busy -= u32::from(!was_empty);
            if !was_empty {
                guest.backlog.released += line.wire;
            }
            unlimited.take_from(&mut chain.store, line, |_| true);
        }
        let next = lines
            .at(index)
            .limit
            .as_ref()
            .map_or(LineIndex::NONE, |limit| limit.sibling);
        guest.lines.limited -= 1;
        if guest.lines.first == index {
            guest.lines.first = next;
        } else {
            let mut before = guest.lines.first;
            while let Some(limit) = &mut lines.at_mut(before).limit {
                if limit.sibling == index {
                    limit.sibling = next;
                    break;
                }
                before = limit.sibling;
            }
        }
        let unlimited = guest.lines.unlimited;
        mark_stale(guest, lines);
        lines.remove(index, &mut chain.used);
        if was_empty {
            self.core.set_head(unlimited, at);
        }
        self.room().trim(unlimited);
    }

    fn room(&mut self) -> Room<'_, F> {
        Room {
            core: self.core,
            elastic: self.elastic,
        }
    }

    /// Sets the level of the bucket of a line's limit. Queries of used limits include the limit
    /// until its bucket is full.
    pub(super) fn hold(&mut self, index: LineIndex, bytes: WireBytes) {
        let at = self.at;
        self.change(index, |account| account.hold(bytes, at));
        if let Some(limit) = self.core.lines.limit_mut(index) {
            limit.note(index, &mut self.core.chain.used);
        }
    }

    /// Empties the buckets of all destinations of a guest.
    pub(super) fn empty(&mut self, id: GuestId) {
        let guest = self.core.guests.guaranteed(id);
        let mut next = guest.map_or(LineIndex::NONE, |guest| guest.lines.first);
        while let Some(limit) = self.core.lines.limit(next) {
            let index = std::mem::replace(&mut next, limit.sibling);
            self.hold(index, WireBytes::ZERO);
        }
    }

    /// Sets the depth of the buckets of all destinations of a guest, whose part of inward bursts has
    /// changed. Each keeps its debt, up to its depth.
    pub(super) fn deepen(&mut self, id: GuestId) {
        let guest = self.core.guests.guaranteed(id);
        let guest = guest.expect("its guarantee has changed");
        let guarantee = guest.guarantee;
        let mut next = guest.lines.first;
        while let Some(limit) = self.core.lines.limit(next) {
            let depth = guarantee.to_each(limit.lent).into();
            let index = std::mem::replace(&mut next, limit.sibling);
            self.set_depth(index, depth);
        }
        if let Some(guest) = self.core.guests.find_mut(id) {
            mark_stale(guest, &mut self.core.lines);
        }
    }

    /// Changes the bytes that are lent to a limited destination: see [`super::Pacer::lend`].
    pub(super) fn lend(&mut self, key: FlowKey, lent: Bytes) {
        let Core { guests, lines, .. } = &mut *self.core;
        let Some(index) = lines.find(key) else { return };
        let (Some(guest), Some(limit)) = (guests.find_mut(key.source), lines.limit_mut(index))
        else {
            return;
        };
        if !guest.is_guaranteed() || std::mem::replace(&mut limit.lent, lent) == lent {
            return;
        }
        let depth = guest.guarantee.to_each(lent).into();
        if limit.sharing != Sharing::Alone {
            // Destinations of one machine share a bucket of that depth.
            mark_stale(guest, lines);
        }
        self.set_depth(index, depth);
        self.note_unless_full(key);
    }

    /// Changes the depth of a bucket, which keeps its debt, up to its depth.
    fn set_depth(&mut self, index: LineIndex, depth: WireBytes) {
        let (at, lost, link) = (self.at, self.core.chain.wire.lost(), self.core.config.link);
        self.change(index, |account| {
            let owes = account.lacks(at);
            account.configure(account.rate(), depth, link, at, lost);
            account.hold(depth.saturating_sub(owes), at);
        });
    }

    /// Reports a new limit as used, unless its bucket is full.
    fn note_unless_full(&mut self, key: FlowKey) {
        let lines = &mut self.core.lines;
        if let Some(index) = lines.find(key)
            && let Some(limit) = lines.limit_mut(index)
            && limit.account.lacks(self.at) > WireBytes::ZERO
        {
            limit.note(index, &mut self.core.chain.used);
        }
    }
}

/// Time of a destination for a frame and a half: a shorter wait never counts as too long.
fn frame_and_a_half(rate: Rate, frame: Bytes) -> Nanos {
    rate.time_for(Bytes(frame.0 * 3 / 2))
}

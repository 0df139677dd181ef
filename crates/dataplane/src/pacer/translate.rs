//! Conversion of guarantees to a wire of another rate.
//!
//! Positions continue from one rate to the other, so all arrivals before the change remain valid.
//! Future positions are converted: departures and the buckets of guests immediately; a limit when
//! it is used next, or in a call of [`super::Pacer::translate`]. So a change takes time for each
//! guest, but not for each limit or waiting frame.

use super::class::Rank;
use super::config::{PacerConfig, PacerError, check_sum};
use super::core::Core;
use super::guest::Guest;
use super::index::{GuestIndex, LineIndex};
use super::line::Stage;
use super::place::mark_stale;
use crate::Frame;
use tailbound_units::{Nanos, Position};

/// A change of the wire.
pub(super) struct Translation<'p, F> {
    pub(super) core: &'p mut Core<F>,
}

impl<F: Frame> Translation<'_, F> {
    /// Changes the wire from `now` on: see [`super::Pacer::reconfigure`]. Returns the former
    /// configuration.
    ///
    /// # Errors
    /// The rule that the configuration breaks, or that a guarantee would break under it.
    pub(super) fn reconfigure(
        &mut self,
        now: Nanos,
        config: &PacerConfig,
    ) -> Result<PacerConfig, PacerError> {
        self.core.chain.advance(now);
        let batch = config.batch_on_the_wire()?;
        for guest in self.core.guests.iter() {
            if guest.is_guaranteed() {
                config.check(&guest.guarantee)?;
            }
        }
        check_sum(self.core.guests.committed(), config.link)?;
        let is_other = config.link != self.core.config.link;
        if is_other {
            self.translate_lines(usize::MAX);
            self.core.lines.begin_translation();
        }
        self.core.chain.wire.reconfigure(config, batch);
        let former = std::mem::replace(&mut self.core.config, config.clone());
        self.translate_guests(is_other);
        self.core.guests.set_memory(config.memory);
        let at = self.core.chain.wire.start();
        for guest in self.core.guests.iter_mut() {
            guest.elastic.restart(at);
        }
        Ok(former)
    }

    /// Converts the guests' buckets, and the departures in the future.
    fn translate_guests(&mut self, is_other: bool) {
        let change = *self.core.chain.wire.change();
        let config = &self.core.config;
        for guest in self.core.guests.iter_mut() {
            let fresh = Guest::new(config, guest.id, &guest.guarantee);
            let fresh = fresh.filter(|_| guest.is_guaranteed());
            guest.buckets.make_up(self.core.chain.wire.lost());
            let from = change.start.max(guest.buckets.last_departure());
            if let Some(fresh) = fresh {
                let to = if is_other { change.at(from) } else { from };
                guest.reconfigure(config, &fresh, (from, to));
            }
            if is_other {
                let departure = change.at(guest.buckets.last_departure());
                guest.buckets.move_last_departure(departure);
            }
            if let Some(tree) = &mut guest.lines.tree {
                tree.accounts_mut()
                    .for_each(|account| account.translate(&change));
            }
            mark_stale(guest, &mut self.core.lines);
        }
        if is_other {
            self.translate_departures();
        }
    }

    /// Converts departures to the same times on another wire. A frame whose time has passed,
    /// because the host or the wire was late, is charged again.
    fn translate_departures(&mut self) {
        let change = *self.core.chain.wire.change();
        let mut waiting = Vec::new();
        for departures in self.core.chain.departures.all_mut() {
            departures.drain(|number, _| waiting.push(number));
            departures.restart(change.start);
        }
        let local = self.core.chain.local.take_due();
        for (number, is_local) in waiting
            .into_iter()
            .map(|number| (number, false))
            .chain(local.into_iter().map(|number| (number, true)))
        {
            let Some(departure) = self.translate_departure(number, is_local) else {
                continue;
            };
            if is_local {
                self.core.chain.local.insert(number, departure);
            } else {
                let guest = self.core.guests.get_mut(number);
                let rank = guest.map_or(Rank::ORDINARY, |guest| guest.guarantee.rank());
                let departures = self.core.chain.departures.of(rank);
                departures.insert(number, departure, change.start);
            }
        }
    }

    /// Returns the converted departure of a guest's frame that has one.
    fn translate_departure(&mut self, number: GuestIndex, is_local: bool) -> Option<Position> {
        let change = *self.core.chain.wire.change();
        let guest = self.core.guests.get_mut(number)?;
        let waiting = self.core.chain.store.at(guest.stamped);
        let frame = waiting.frame.as_ref();
        let line = frame.map_or(guest.lines.unlimited, |frame| {
            self.core.lines.of_frame(guest, frame)
        });
        let held = self.core.lines.at_mut(line);
        if let Some(limit) = &mut held.limit {
            limit.account.translate(&change);
        }
        if guest.buckets.last_departure() < change.start {
            let before = guest.buckets.last_departure();
            guest
                .buckets
                .charge_anew(waiting.wire, change.start, is_local);
            if let Some(limit) = &mut held.limit {
                let after = guest.buckets.last_departure();
                limit.account.charge_anew(before, after, waiting.wire);
                let tree = guest.lines.tree.as_mut();
                if let (Some(tree), Some(leaf)) = (tree, limit.leaf()) {
                    tree.for_accounts_of(leaf, |account| {
                        account.charge_anew(before, after, waiting.wire);
                    });
                }
            }
        }
        // The next frame of its line is released when it departs, and no other line later.
        held.translate_release(&change);
        if line != guest.lines.unlimited {
            let unlimited = self.core.lines.at_mut(guest.lines.unlimited);
            unlimited.translate_release(&change);
        }
        Some(guest.buckets.last_departure())
    }

    /// Converts some lines: see [`super::Pacer::translate`].
    pub(super) fn translate_lines(&mut self, most: usize) -> bool {
        let at = self.core.chain.wire.start();
        let lines = self.core.lines.next_to_translate(most);
        for index in lines.map(LineIndex::new) {
            let Core { lines, chain, .. } = &mut *self.core;
            let line = lines.at_mut(index);
            let Some(limit) = &mut line.limit else {
                continue;
            };
            if limit.account.is_on(chain.wire.change().new) {
                continue;
            }
            let waits = line.stage == Stage::Limited && chain.withdraw(line, index);
            if let Some(limit) = &mut line.limit {
                limit.account.translate(chain.wire.change());
            }
            if waits {
                self.core.set_head(index, at);
            }
        }
        self.core.lines.is_translated()
    }
}

//! Conversion of guarantees to a wire of another rate.
//!
//! Positions continue from one rate to the other, so all arrivals before the change remain valid.
//! Future positions are converted: departures and the buckets of guests immediately; a limit when
//! it is used next, or in a call of [`Pacer::translate`]. So a change takes time for each guest,
//! but not for each limit or waiting frame.

use super::Pacer;
use super::chain::Chain;
use super::change::check_sum;
use super::config::{PacerConfig, PacerError};
use super::guest::{Contract, Guest};
use super::index::{GuestIndex, LineIndex};
use super::line::Stage;
use super::place::mark_stale;
use super::rate_change::RateChange;
use super::take::line_of;
use crate::Frame;
use std::mem;
use tailbound_units::{Nanos, Position, Rate};

impl<F: Frame> Pacer<F> {
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
        let position = self.advance(now);
        let batch = config.batch_on_the_wire()?;
        for guest in self.guests.iter().flatten() {
            if guest.contract == Contract::Guaranteed {
                config.check(&guest.guarantee)?;
            }
        }
        check_sum(self.committed, config.link)?;
        if config.link != self.config.link {
            self.translate(usize::MAX);
            self.chain.change_rate(position, config.link);
            self.translated = 0;
        }
        self.translate_guests(config);
        self.batch = batch;
        self.lead = batch / 2;
        self.catch_up = config.catch_up_on_the_wire();
        if config.best_effort != self.config.best_effort {
            self.best_effort.reconfigure(&config.best_effort);
        }
        let memory = mem::replace(&mut self.config, config.clone()).memory;
        if memory != config.memory {
            self.divide_memory();
        }
        let at = self.chain.position.max(self.chain.wire);
        self.elastic.reconfigure(config, at);
        for guest in self.guests.iter_mut().flatten() {
            guest.elastic.restart(at);
        }
        Ok(())
    }

    /// Converts the guests' buckets, and the departures in the future.
    fn translate_guests(&mut self, config: &PacerConfig) {
        let change = self.chain.change;
        for guest in self.guests.iter_mut().flatten() {
            let fresh = Guest::new(config, guest.id, &guest.guarantee);
            let fresh = fresh.filter(|_| guest.contract == Contract::Guaranteed);
            guest.make_up(self.chain.lost);
            let from = change.start.max(guest.last_departure);
            let is_other = config.link != self.config.link;
            if let Some(fresh) = fresh {
                let to = if is_other { change.at(from) } else { from };
                guest.reconfigure(config, &fresh, (from, to));
            }
            if is_other {
                guest.last_departure = change.at(guest.last_departure);
            }
            if let Some(tree) = &mut guest.destinations.tree {
                tree.accounts_mut()
                    .for_each(|account| account.translate(&change));
            }
            mark_stale(guest, &mut self.lines);
        }
        if config.link != self.config.link {
            self.translate_departures();
        }
    }

    /// Converts departures to the same times on another wire. A frame whose time has passed,
    /// because the host or the wire was late, is charged again.
    fn translate_departures(&mut self) {
        let change = self.chain.change;
        let mut waiting = Vec::new();
        self.chain
            .departures
            .drain(|number, _| waiting.push(number));
        self.chain.departures.restart(change.start);
        let local = self.chain.local.take_due();
        for (number, is_local) in waiting
            .into_iter()
            .map(|number| (number, false))
            .chain(local.into_iter().map(|number| (number, true)))
        {
            let Some(departure) = self.translate_departure(number, is_local) else {
                continue;
            };
            if is_local {
                self.chain.local.insert(number, departure);
            } else {
                self.chain
                    .departures
                    .insert(number, departure, change.start);
            }
        }
    }

    /// Returns the converted departure of a guest's frame that has one.
    fn translate_departure(&mut self, number: GuestIndex, is_local: bool) -> Option<Position> {
        let change = self.chain.change;
        let guest = self.guests.get_mut(number)?.as_mut()?;
        let waiting = self.chain.store.at(guest.stamped);
        let frame = waiting.frame.as_ref();
        let line = frame.map_or(guest.unlimited, |frame| line_of(guest, &self.lines, frame));
        let held = self.lines.at_mut(line);
        if let Some(limit) = &mut held.limit {
            limit.account.translate(&change);
        }
        if guest.last_departure < change.start {
            let before = guest.last_departure;
            guest.charge_anew(waiting.wire, change.start, is_local);
            if let Some(limit) = &mut held.limit {
                let after = guest.last_departure;
                limit.account.charge_anew(before, after, waiting.wire);
                let tree = guest.destinations.tree.as_mut();
                if let (Some(tree), Some(leaf)) = (tree, limit.leaf()) {
                    tree.for_accounts_of(leaf, |account| {
                        account.charge_anew(before, after, waiting.wire);
                    });
                }
            }
        }
        // The next frame of its line is released when it departs, and no other line later.
        held.translate_release(&change);
        if line != guest.unlimited {
            let unlimited = self.lines.at_mut(guest.unlimited);
            unlimited.translate_release(&change);
        }
        Some(guest.last_departure)
    }

    /// Converts some lines, at most `most` of them, to the wire's rate after its last change.
    /// Returns whether all are converted. Until then a line that waits for its limit may wait
    /// longer than necessary, if the rate was lowered.
    pub fn translate(&mut self, most: usize) -> bool {
        let all = self.lines.count();
        if self.translated >= all {
            return true;
        }
        let end = all.min(self.translated.saturating_add(most));
        let at = self.chain.position.max(self.chain.wire);
        for index in (self.translated..end).map(LineIndex::new) {
            let line = self.lines.at_mut(index);
            let Some(limit) = &mut line.limit else {
                continue;
            };
            if limit.account.is_on(self.chain.change.new) {
                continue;
            }
            let waits = line.stage == Stage::Limited && self.chain.withdraw(line, index);
            if let Some(limit) = &mut line.limit {
                limit.account.translate(&self.chain.change);
            }
            if waits {
                self.set_head(index, at);
            }
        }
        // Lines that are added from now on are of this wire.
        self.translated = if end == all { usize::MAX } else { end };
        end == all
    }
}

impl<F: Frame> Chain<F> {
    /// Continues at another rate.
    fn change_rate(&mut self, position: Position, rate: Rate) {
        self.stats.frozen += self.clock.frozen();
        self.change = RateChange {
            at: position,
            start: position.max(self.wire),
            old: self.clock.rate(),
            new: rate,
        };
        self.clock = self.clock.at_rate(rate);
    }
}

//! What is guaranteed, on a wire of another rate.
//!
//! Positions go on from one rate to the other, so whatever came before the change did so
//! at any rate. What lies ahead is counted anew: departures, and the buckets of guests, at
//! once; a limit when it is looked at next, or when its turn comes ([`Pacer::translate`]).
//! So a change takes time for each guest, and for no limit and no frame that waits.

use super::Pacer;
use super::chain::Chain;
use super::change::check_sum;
use super::config::{PacerConfig, PacerError};
use super::guest::{Contract, Guest};
use super::line::Stage;
use super::rate_change::RateChange;
use super::take::line_of;
use crate::Frame;
use std::mem;
use tailbound_units::{Nanos, Position, Rate};

impl<F: Frame> Pacer<F> {
    /// Changes the wire from `now` on: its rate, the batch and all else that is
    /// configured.
    ///
    /// No frame is lost or overtakes one of its flow. Departures stay at the moments
    /// they were given for, rounded up to a byte of the new link, but not before what was
    /// handed over ends; that takes as many bytes of it as of the old one. Guests keep their
    /// guarantees, their limits and their tokens; a limit that the new link cannot
    /// count becomes the nearest that it can. How long bytes take is new where the rate is:
    /// ask for [`Pacer::clock`] again.
    ///
    /// It takes time for each guest. Limits are left to [`Pacer::translate`], which is to be
    /// called until all are done; what it had left from the change before is done here.
    ///
    /// # Errors
    /// The rule that the configuration breaks, or that a guarantee would break under
    /// it; then nothing has changed.
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

    /// Gives guests their buckets on another wire, and the departures that lie ahead.
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
        }
        if config.link != self.config.link {
            self.translate_departures();
        }
    }

    /// Lets frames that have a departure leave at the same moments of another wire. One whose
    /// moment has passed, as the host or the wire was late, is charged anew.
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

    /// When the frame of a guest departs that has a departure.
    fn translate_departure(&mut self, number: u32, is_local: bool) -> Option<Position> {
        let change = self.chain.change;
        let guest = self.guests.get_mut(number as usize)?.as_mut()?;
        let waiting = self.chain.store.at(guest.stamped);
        let frame = waiting.frame.as_ref();
        let line = frame.map_or(guest.unlimited, |frame| line_of(guest, &self.lines, frame));
        if guest.last_departure < change.start {
            guest.charge_anew(waiting.wire, change.start, is_local);
        }
        // The next of its line is released when it departs, and no other line later.
        self.lines.at_mut(line).translate_release(&change);
        if line != guest.unlimited {
            let unlimited = self.lines.at_mut(guest.unlimited);
            unlimited.translate_release(&change);
        }
        Some(guest.last_departure)
    }

    /// Brings some lines, `most` of them, to the wire that came with the last change of its
    /// rate. Returns whether all are. Until then a line whose limit holds it up may wait
    /// longer than it has to, where the rate became less.
    pub fn translate(&mut self, most: usize) -> bool {
        let all = self.lines.count();
        if self.translated >= all {
            return true;
        }
        let end = all.min(self.translated.saturating_add(most));
        let at = self.chain.position.max(self.chain.wire);
        for index in self.translated as u32..end as u32 {
            let line = self.lines.at_mut(index);
            let Some(limit) = &mut line.limit else {
                continue;
            };
            if limit.is_on(self.chain.change.new) {
                continue;
            }
            let waits = line.stage == Stage::Limited && self.chain.withdraw(line, index);
            if let Some(limit) = &mut line.limit {
                limit.translate(&self.chain.change);
            }
            if waits {
                self.set_head(index, at);
            }
        }
        // Lines that are added from here on are of this wire.
        self.translated = if end == all { usize::MAX } else { end };
        end == all
    }
}

impl<F: Frame> Chain<F> {
    /// Goes on at another rate.
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

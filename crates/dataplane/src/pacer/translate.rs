//! What is guaranteed, on another wire.

use super::chain::Chain;
use super::change::{check_sum, fresh_guest, fresh_limit};
use super::config::{PacerConfig, PacerError};
use super::guest::{Contract, Guest};
use super::line::Stage;
use super::{Pacer, WireClock};
use crate::Frame;
use tailbound_units::exact::TokenBucket;
use tailbound_units::{Nanos, Position, Rate, WireBytes};

/// The buckets of all guests and limits as they would be on another wire.
struct Fresh {
    guests: Vec<Option<Guest>>,
    limits: Vec<Option<TokenBucket<Position>>>,
}

impl<F: Frame> Pacer<F> {
    /// Changes the wire from `now` on: its rate, the batch and all else that is
    /// configured.
    ///
    /// No frame is lost or overtakes one of its flow. Departures stay at the moments
    /// they were given for, rounded up to a byte of the new link; what was handed
    /// over takes as many bytes of it as of the old one. Guests keep their
    /// guarantees, their limits and their tokens; a limit that the new link cannot
    /// count becomes the nearest that it can. Positions of the wire are new
    /// where the rate is: ask for [`Pacer::clock`] again. It takes time for each guest,
    /// limit and frame.
    ///
    /// # Errors
    /// The rule that the configuration breaks, or that a guarantee would break under
    /// it; then nothing has changed.
    pub fn reconfigure(&mut self, now: Nanos, config: &PacerConfig) -> Result<(), PacerError> {
        let position = self.advance(now);
        let link = config.link;
        let batch = config.batch_on_the_wire()?;
        let fresh = Fresh {
            guests: self.fresh_guests(config)?,
            limits: self.fresh_limits(link)?,
        };
        check_sum(self.committed, link)?;
        self.translate(position, link, fresh);
        self.batch = batch;
        self.lead = batch / 2;
        self.catch_up = config.catch_up_on_the_wire();
        if config.best_effort != self.config.best_effort {
            self.best_effort.reconfigure(&config.best_effort);
        }
        self.config = config.clone();
        self.divide_memory();
        let at = self.chain.position.max(self.chain.wire);
        self.elastic.reconfigure(config, at);
        for guest in self.guests.iter_mut().flatten() {
            guest.elastic.restart(at);
        }
        Ok(())
    }

    fn fresh_guests(&self, config: &PacerConfig) -> Result<Vec<Option<Guest>>, PacerError> {
        let fresh = |guest: &Option<Guest>| match guest {
            Some(guest) if guest.contract == Contract::Guaranteed => {
                fresh_guest(config, guest.id, &guest.guarantee).map(Some)
            }
            _ => Ok(None),
        };
        self.guests.iter().map(fresh).collect()
    }

    fn fresh_limits(&self, link: Rate) -> Result<Vec<Option<TokenBucket<Position>>>, PacerError> {
        let fresh = |index: u32| {
            let limit = self.lines.at(index).limit.as_ref();
            let fresh = limit.map(|limit| fresh_limit(limit.open_rate(), limit.burst(), link));
            fresh.transpose()
        };
        self.lines.numbers().map(fresh).collect()
    }

    /// Turns every moment into one of another link, or the same.
    fn translate(&mut self, position: Position, rate: Rate, fresh: Fresh) {
        let translation = Translation::new(&self.chain.clock, position, rate);
        let start = position.max(self.chain.wire);
        let mut held_back = Vec::new();
        for index in self.lines.numbers() {
            let line = self.lines.at_mut(index);
            if line.stage == Stage::Limited {
                self.chain.withdraw(line, index);
                held_back.push(index);
            }
        }
        for (guest, fresh) in self.guests.iter_mut().zip(fresh.guests) {
            let Some(guest) = guest else { continue };
            if let Some(fresh) = fresh {
                let from = start.max(guest.last_departure);
                guest.reconfigure(&fresh, from, translation.at(from));
            }
            guest.last_departure = translation.at(guest.last_departure);
        }
        for (index, fresh) in self.lines.numbers().zip(fresh.limits) {
            let line = self.lines.at_mut(index);
            line.release = translation.at(line.release);
            if let Some(limit) = &mut line.limit
                && let Some(fresh) = fresh
            {
                limit.reconfigure(&fresh, start, translation.at(start));
            }
        }
        if rate != self.config.link {
            self.chain.translate(&translation);
        }
        let start = self.chain.position.max(self.chain.wire);
        for index in held_back {
            self.set_head(index, start);
        }
    }
}

impl<F: Frame> Chain<F> {
    /// Turns its moments into those of another link.
    fn translate(&mut self, translation: &Translation) {
        self.stats.frozen += self.clock.frozen();
        self.clock = translation.clock;
        self.wire = translation.to + self.wire.since(self.position);
        self.position = self.clock.advance(self.clock.now());
        self.store
            .each(|waiting| waiting.arrival = translation.at(waiting.arrival));
        let first = self.departures.first();
        let floor = if first == Position::NEVER {
            self.wire
        } else {
            translation.at(first).min(self.wire)
        };
        let mut waiting = Vec::new();
        self.departures.drain(|guest, at| waiting.push((guest, at)));
        self.departures.restart(floor);
        self.releases.restart(floor);
        for (guest, at) in waiting {
            self.departures.insert(guest, translation.at(at), floor);
        }
        self.local.translate(|departure| translation.at(departure));
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

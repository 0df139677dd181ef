//! The wire: its virtual time, the part of it that is taken, and the length of a batch.

use super::WireClock;
use super::account::Sight;
use super::config::{PacerConfig, PacerError};
use super::rate_change::RateChange;
use tailbound_units::{Nanos, Position, WireBytes};

/// The wire. The module describes it.
#[derive(Debug)]
pub(super) struct Wire {
    clock: WireClock,
    /// Conversion of limits that were not used since the last change of the rate.
    change: RateChange,
    /// Virtual time.
    position: Position,
    /// Bytes for which virtual time was frozen, each at the rate at that time.
    lost: WireBytes,
    /// Time for which virtual time was frozen before the last change of the rate.
    frozen: Nanos,
    /// Position up to which the wire is taken.
    taken: Position,
    /// The length of a batch, and the longest delay that is made up for.
    batch: WireBytes,
    catch_up: WireBytes,
    /// True while the wire has not taken the frames that were passed on.
    is_blocked: bool,
}

impl Wire {
    /// Creates an idle wire.
    ///
    /// # Errors
    /// The rule that the configuration breaks.
    pub(super) fn new(config: &PacerConfig) -> Result<Self, PacerError> {
        Ok(Self {
            clock: WireClock::new(config.link),
            change: RateChange::none(config.link),
            position: Position::ZERO,
            lost: WireBytes::ZERO,
            frozen: Nanos::ZERO,
            taken: Position::ZERO,
            batch: config.batch_on_the_wire()?,
            catch_up: config.catch_up_on_the_wire(),
            is_blocked: false,
        })
    }

    /// Changes the rate and the bounds at the present position. The configuration is valid.
    pub(super) fn reconfigure(&mut self, config: &PacerConfig, batch: WireBytes) {
        self.batch = batch;
        self.catch_up = config.catch_up_on_the_wire();
        if self.clock.rate() == config.link {
            return;
        }
        self.frozen += self.clock.frozen();
        self.change = RateChange {
            at: self.position,
            start: self.start(),
            old: self.clock.rate(),
            new: config.link,
        };
        self.clock = self.clock.at_rate(config.link);
    }

    /// The clock as of the last call.
    pub(super) const fn clock(&self) -> &WireClock {
        &self.clock
    }

    /// The time of the last call.
    #[inline(always)]
    pub(super) const fn now(&self) -> Nanos {
        self.clock.now()
    }

    /// Virtual time.
    #[inline(always)]
    pub(super) const fn position(&self) -> Position {
        self.position
    }

    /// Position up to which the wire is taken.
    #[inline(always)]
    pub(super) const fn taken(&self) -> Position {
        self.taken
    }

    /// The first position at which a further frame may begin.
    #[inline(always)]
    pub(super) fn start(&self) -> Position {
        self.position.max(self.taken)
    }

    /// Bytes for which virtual time was frozen.
    #[inline(always)]
    pub(super) const fn lost(&self) -> WireBytes {
        self.lost
    }

    /// The last change of the rate.
    #[inline(always)]
    pub(super) const fn change(&self) -> &RateChange {
        &self.change
    }

    /// Frozen time and the last change, for accounts.
    #[inline(always)]
    pub(super) const fn sight(&self) -> Sight<'_> {
        Sight {
            lost: self.lost,
            change: &self.change,
        }
    }

    /// The length of a batch.
    #[inline(always)]
    pub(super) const fn batch(&self) -> WireBytes {
        self.batch
    }

    /// Records that the wire is taken up to a position.
    #[inline(always)]
    pub(super) const fn take_until(&mut self, end: Position) {
        self.taken = end;
    }

    /// Checks whether the wire holds back frames that were passed on.
    #[inline]
    pub(super) const fn is_blocked(&self) -> bool {
        self.is_blocked
    }

    /// Records whether the wire holds back frames that were passed on.
    pub(super) const fn set_blocked(&mut self, is_blocked: bool) {
        self.is_blocked = is_blocked;
    }

    /// Advances virtual time to `now`, but not beyond `catch_up` after `due`, the first departure.
    pub(super) fn advance(&mut self, now: Nanos, due: Position) {
        self.position = self.clock.advance(now);
        // Counted from the first due frame, not from the wire, which advances with each batch, even
        // if its frames are late.
        let limit = self.taken.max(due.saturating_add(self.catch_up));
        if self.position > limit && due != Position::NEVER {
            if !self.is_blocked {
                self.lost += self.position.since(limit);
            }
            self.clock.freeze_at(limit);
            self.position = limit;
        }
    }

    /// Time of the batch whose first frame begins at a position: half a batch before, so that a
    /// caller who is late by less than that delays no frame.
    #[inline]
    pub(super) fn time_of_batch(&self, first: Position) -> Nanos {
        self.clock
            .moment_from_now(first.saturating_sub(self.batch / 2))
    }

    /// Total time for which virtual time was frozen.
    pub(super) fn frozen(&self) -> Nanos {
        self.frozen + self.clock.frozen()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tailbound_units::Rate;

    const LINK: Rate = Rate::from_mbit(10_000);

    fn wire() -> Wire {
        Wire::new(&PacerConfig::new(LINK)).expect("sound")
    }

    #[test]
    fn time_after_a_due_frame_is_lost_unless_the_wire_is_blocked() {
        let mut wire = wire();
        // 1,250 bytes take a microsecond.
        wire.advance(Nanos::from_micros(3), Position(1250));
        assert_eq!(wire.position(), Position(1250));
        assert_eq!(wire.lost(), WireBytes(2500));
        wire.set_blocked(true);
        wire.advance(Nanos::from_micros(5), Position(1250));
        assert_eq!(wire.position(), Position(1250));
        assert_eq!(wire.lost(), WireBytes(2500));
        assert_eq!(wire.frozen(), Nanos::from_micros(4));
    }

    #[test]
    fn an_idle_wire_and_a_wire_that_is_taken_lose_no_time() {
        let mut wire = wire();
        wire.advance(Nanos::from_micros(3), Position::NEVER);
        assert_eq!(wire.start(), Position(3750));
        wire.take_until(Position(10_000));
        assert_eq!(wire.start(), Position(10_000));
        wire.advance(Nanos::from_micros(8), Position(5000));
        assert_eq!(wire.position(), Position(10_000));
        assert_eq!(wire.lost(), WireBytes::ZERO);
    }

    #[test]
    fn frozen_time_counts_at_the_rate_at_that_time() {
        let mut wire = wire();
        wire.advance(Nanos::from_micros(3), Position(1250));
        let slower = PacerConfig::new(Rate::from_mbit(1000));
        let batch = slower.batch_on_the_wire().expect("sound");
        wire.reconfigure(&slower, batch);
        assert_eq!(wire.frozen(), Nanos::from_micros(2));
        wire.advance(Nanos::from_micros(11), Position(1250));
        assert_eq!(wire.position(), Position(1250));
        assert_eq!(wire.frozen(), Nanos::from_micros(10));
    }
}

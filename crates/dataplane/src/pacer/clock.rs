//! The wire's virtual time, in bytes.

use tailbound_units::exact::{BYTE_IN_NANOS as BYTE, Carry};
use tailbound_units::{Nanos, Position, Rate, WireBytes};

/// Upper bound of all positions, so that sums of positions cannot overflow: 11 years of a 100
/// Gbit/s wire.
const END: Position = Position(1 << 62);

/// Converts times into bytes of the wire, and back.
///
/// A *position* is the number of bytes that the wire could have carried since time zero, preambles
/// and gaps included, each at the rate at that time. The remainder of the conversion is carried
/// from call to call, so that positions are exact at any frequency of calls.
///
/// Virtual time is frozen while the wire does not take due frames. Frames that are scheduled for
/// later are then later by the same time.
#[derive(Debug, Clone, Copy)]
pub struct WireClock {
    rate: Rate,
    now: Nanos,
    /// Bytes up to `now`, whole and the remainder, without the frozen ones.
    position: Position,
    rest: Carry,
    /// Bytes for which the clock was frozen.
    frozen: WireBytes,
    /// Time and position at which the wire got its rate.
    start: (Nanos, Position),
}

impl WireClock {
    pub(super) const fn new(rate: Rate) -> Self {
        Self {
            rate,
            now: Nanos::ZERO,
            position: Position::ZERO,
            rest: Carry::NONE,
            frozen: WireBytes::ZERO,
            start: (Nanos::ZERO, Position::ZERO),
        }
    }

    /// Returns the clock of the same wire at another rate, from its next byte on. That byte keeps
    /// its position, and its time is the clock's.
    pub(super) fn at_rate(&self, rate: Rate) -> Self {
        let position = self.first_byte();
        let now = self.moment(position).max(self.now);
        Self {
            now,
            position,
            start: (now, position),
            ..Self::new(rate)
        }
    }

    /// Returns the first byte that begins at `now` or after it. A `now` before an earlier one
    /// counts as that one.
    #[inline]
    pub(super) fn advance(&mut self, now: Nanos) -> Position {
        if now > self.now {
            let passed = now.0 - self.now.0;
            self.now = now;
            let bytes = WireBytes(self.rest.divide(passed, self.rate.0, BYTE));
            self.position = self.position.saturating_add(bytes).min(END);
        }
        self.first_byte()
    }

    /// Sets virtual time back to `position`, which is not after the present position.
    #[cold]
    pub(super) fn freeze_at(&mut self, position: Position) {
        let ahead = self.first_byte().since(position);
        self.frozen += ahead;
        self.position = self.position.saturating_sub(ahead);
    }

    /// The first byte that begins at the clock's time or after it.
    #[inline]
    fn first_byte(&self) -> Position {
        self.position + WireBytes(u64::from(self.rest.is_some()))
    }

    /// The wire's rate.
    pub(super) const fn rate(&self) -> Rate {
        self.rate
    }

    /// The latest time that was passed in.
    pub const fn now(&self) -> Nanos {
        self.now
    }

    /// Returns the first nanosecond at which byte `position` may begin, if virtual time is not
    /// frozen until then; for a byte that began at another rate, the time of the last change.
    pub fn moment(&self, position: Position) -> Nanos {
        let (since, start) = self.start;
        let byte = u128::from(position.since(start).0) + u128::from(self.frozen.0);
        let nanos = (byte * u128::from(BYTE)).div_ceil(u128::from(self.rate.0));
        since.saturating_add(Nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
    }

    /// Returns the later of [`WireClock::moment`] and [`WireClock::now`]: counted from now on, for
    /// the next seconds with one division of 64 bits.
    #[inline]
    pub(super) fn moment_from_now(&self, position: Position) -> Nanos {
        let ahead = position.since(self.position).0;
        // Zero bytes ahead: the byte has begun. Otherwise a byte is more than the remainder.
        match ahead.checked_mul(BYTE) {
            Some(0) => self.now,
            Some(parts) => {
                let nanos = (parts - self.rest.parts()).div_ceil(self.rate.0);
                self.now.saturating_add(Nanos(nanos))
            }
            None => self.moment(position).max(self.now),
        }
    }

    /// Returns the bytes that the wire carries in `time`, rounded down.
    pub fn bytes_in(&self, time: Nanos) -> WireBytes {
        self.rate.bytes_in(time).into()
    }

    /// Returns the total time for which virtual time has been frozen.
    pub fn frozen(&self) -> Nanos {
        let nanos = u128::from(self.frozen.0) * u128::from(BYTE) / u128::from(self.rate.0);
        Nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests;

//! The wire's virtual time, in bytes.

use tailbound_units::exact::{BYTE_IN_NANOS as BYTE, Carry};
use tailbound_units::{Nanos, Position, Rate, WireBytes};

/// No position is later, so that sums of positions cannot overflow: 11 years of a
/// 100 Gbit/s wire.
const END: Position = Position(1 << 62);

/// Turns moments into bytes of the wire, and back.
///
/// A *position* is how many bytes the wire could have carried since moment zero,
/// preambles and gaps included, each at the rate that it had then. The remainder of the
/// conversion is carried from call to call, so that positions are exact however often they
/// are asked for.
///
/// Virtual time is frozen while the wire does not take what is due. What is scheduled
/// for later is then later by as much.
#[derive(Debug, Clone, Copy)]
pub struct WireClock {
    rate: Rate,
    now: Nanos,
    /// Bytes up to `now`, whole and what is left over, without those it was frozen
    /// for.
    position: Position,
    rest: Carry,
    /// Bytes that it was frozen for.
    frozen: WireBytes,
    /// Where it was when it got its rate.
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

    /// The clock of the same wire as it gets another rate, from its next byte on. That has
    /// the same position, and its moment is the clock's.
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

    /// The first byte that begins at `now` or after it. A `now` before an earlier
    /// one is taken for that.
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

    /// Sets virtual time back to `position`, which is not after where it is.
    #[cold]
    pub(super) fn freeze_at(&mut self, position: Position) {
        let ahead = self.first_byte().since(position);
        self.frozen += ahead;
        self.position = self.position.saturating_sub(ahead);
    }

    /// The first byte that begins at the clock's moment or after it.
    #[inline]
    fn first_byte(&self) -> Position {
        self.position + WireBytes(u64::from(self.rest.is_some()))
    }

    /// The wire's rate.
    pub(super) const fn rate(&self) -> Rate {
        self.rate
    }

    /// The latest moment that was handed in.
    pub const fn now(&self) -> Nanos {
        self.now
    }

    /// Returns the first nanosecond at which byte `position` may begin, if virtual time
    /// is not frozen until then; of one that began at another rate, when this one came.
    pub fn moment(&self, position: Position) -> Nanos {
        let (since, start) = self.start;
        let byte = u128::from(position.since(start).0) + u128::from(self.frozen.0);
        let nanos = (byte * u128::from(BYTE)).div_ceil(u128::from(self.rate.0));
        since.saturating_add(Nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
    }

    /// Returns what the wire carries in `time`, rounded down.
    pub fn bytes_in(&self, time: Nanos) -> WireBytes {
        self.rate.bytes_in(time).into()
    }

    /// Returns for how long virtual time has been frozen in all.
    pub fn frozen(&self) -> Nanos {
        let nanos = u128::from(self.frozen.0) * u128::from(BYTE) / u128::from(self.rate.0);
        Nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests;

//! A wire's bytes before and after a change of its rate.

use tailbound_units::{Position, Rate, WireBytes};

/// The last change of a wire's rate.
#[derive(Debug, Clone, Copy)]
pub(super) struct RateChange {
    /// The position of the change.
    pub(super) at: Position,
    /// The position up to which the wire was taken then: no frame departs before it.
    pub(super) start: Position,
    /// Bytes of both rates are converted by this ratio.
    pub(super) old: Rate,
    pub(super) new: Rate,
}

impl RateChange {
    /// Returns no change, on a wire of this rate.
    pub(super) const fn none(rate: Rate) -> Self {
        Self {
            at: Position::ZERO,
            start: Position::ZERO,
            old: rate,
            new: rate,
        }
    }

    /// Converts a position that was counted at the old rate, rounded up: positions keep their
    /// order.
    pub(super) fn at(&self, moment: Position) -> Position {
        let (old, new) = (u128::from(self.old.0), u128::from(self.new.0));
        let scaled = |length: WireBytes| u128::from(length.0) * new;
        if let Some(before) = self.at.checked_since(moment) {
            let before = scaled(before) / old;
            self.at.saturating_sub(WireBytes(before as u64))
        } else {
            let after = scaled(moment - self.at).div_ceil(old);
            self.at + WireBytes(after as u64)
        }
    }
}

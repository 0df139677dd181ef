//! How long messages took.

use tailbound_units::Nanos;

/// The times of some messages, from when they came to when their last bit left.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tail {
    /// In order.
    times: Vec<Nanos>,
    /// Messages of which a frame was dropped.
    pub lost: usize,
}

impl Tail {
    pub(super) fn new(mut times: Vec<Nanos>, lost: usize) -> Self {
        times.sort_unstable();
        Self { times, lost }
    }

    /// How many arrived.
    pub fn count(&self) -> usize {
        self.times.len()
    }

    /// The time that so many of a thousand do not exceed; `None` where the messages are too
    /// few to tell: fewer than one is above it.
    pub fn quantile(&self, thousandths: usize) -> Option<Nanos> {
        let above = 1000 - thousandths.min(1000);
        if self.times.len() * above < 1000 {
            return None;
        }
        let rank = (self.times.len() * thousandths).div_ceil(1000).max(1);
        self.times.get(rank - 1).copied()
    }

    /// The longest.
    pub fn longest(&self) -> Option<Nanos> {
        self.times.last().copied()
    }
}

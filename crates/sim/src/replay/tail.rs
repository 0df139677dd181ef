//! Distribution of message times.

use tailbound_units::Nanos;

/// Times of messages, from their arrival to the departure of their last bit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tail {
    /// Sorted times.
    times: Vec<Nanos>,
    /// Number of messages with a dropped frame.
    pub lost: usize,
}

impl Tail {
    pub(super) fn new(mut times: Vec<Nanos>, lost: usize) -> Self {
        times.sort_unstable();
        Self { times, lost }
    }

    /// Number of messages that arrived.
    pub fn count(&self) -> usize {
        self.times.len()
    }

    /// Returns the time that this part of messages, in thousandths, does not exceed; `None` if
    /// there are too few messages: fewer than one is above it.
    pub fn quantile(&self, thousandths: usize) -> Option<Nanos> {
        let above = 1000 - thousandths.min(1000);
        if self.times.len() * above < 1000 {
            return None;
        }
        let rank = (self.times.len() * thousandths).div_ceil(1000).max(1);
        self.times.get(rank - 1).copied()
    }

    /// Returns the longest time.
    pub fn longest(&self) -> Option<Nanos> {
        self.times.last().copied()
    }
}

//! The share of the thread that a port has in one direction: its credit ([`super::work`]), and the
//! measured excess of its frames over their general cost ([`super::timing`]).

use super::timing::{Lap, Stopwatch, Timing};
use super::work::{Cost, Credit};
use tailbound_units::Nanos;

/// The share of a port in one direction.
#[derive(Debug, Default)]
pub(super) struct Share {
    credit: Credit,
    timing: Timing,
}

/// A burst that is measured.
#[derive(Debug, Clone, Copy)]
pub(super) struct Measurement {
    lap: Lap,
    /// The credit before the burst.
    credit: Credit,
}

impl Share {
    /// Adds the share of a round. The unused part of earlier ones is lost.
    pub(super) fn begin_round(&mut self) {
        self.credit.begin_round();
    }

    /// Returns true if no credit is left.
    pub(super) const fn is_spent(&self) -> bool {
        self.credit.is_spent()
    }

    /// Charges forwarded packets.
    pub(super) fn charge(&mut self, cost: Cost) {
        self.credit.charge(cost);
    }

    /// Returns the most frames that fit into one burst of the port.
    pub(super) fn max_frames(&self) -> usize {
        self.timing.most_frames(Credit::share())
    }

    /// Begins to measure a burst.
    pub(super) fn begin(&self, stopwatch: &mut dyn Stopwatch) -> Measurement {
        Measurement {
            lap: self.timing.begin(stopwatch),
            credit: self.credit,
        }
    }

    /// Ends the measurement of a burst whose frames are charged already; charges the excess. Returns
    /// the time for which the port is left alone.
    pub(super) fn end(
        &mut self,
        Measurement { lap, credit }: Measurement,
        stopwatch: &mut dyn Stopwatch,
    ) -> Nanos {
        let worth = self.credit.paid_since(credit);
        self.settle(lap, stopwatch, Cost::frames_in(worth), worth)
    }

    /// Ends the measurement of a burst with frames of a cost that others are charged; charges the
    /// excess. Returns the time for which the port is left alone.
    pub(super) fn end_unpaid(
        &mut self,
        measurement: Measurement,
        stopwatch: &mut dyn Stopwatch,
        cost: Cost,
    ) -> Nanos {
        self.settle(measurement.lap, stopwatch, cost.frames as u64, cost.worth())
    }

    fn settle(
        &mut self,
        lap: Lap,
        stopwatch: &mut dyn Stopwatch,
        frames: u64,
        worth: Nanos,
    ) -> Nanos {
        let excess = self.timing.end(lap, stopwatch, frames, worth);
        self.credit.charge_time(excess.charge);
        excess.rest
    }
}

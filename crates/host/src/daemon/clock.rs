//! The clock of the packet loop.

use std::time::{Duration, Instant, SystemTime};
use tailbound_units::Nanos;

/// The clock of the packet loop: `CLOCK_MONOTONIC`, zero at the start.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clock {
    start: Instant,
    /// The time of day at the start, since 1970.
    epoch: Duration,
}

impl Clock {
    /// Starts a clock at zero.
    pub(super) fn start() -> Self {
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Self {
            start: Instant::now(),
            epoch: since_1970.unwrap_or_default(),
        }
    }

    /// Returns the time since the start.
    pub(super) fn now(&self) -> Nanos {
        self.start.elapsed().into()
    }

    /// Returns the time of day at zero, since 1970.
    pub(super) const fn epoch(&self) -> Duration {
        self.epoch
    }

    /// Returns the value of `CLOCK_MONOTONIC` at zero, in nanoseconds: the most exact of three
    /// readings.
    pub(super) fn zero(&self) -> u64 {
        let look = |_| {
            let (before, shown) = (self.now(), tailbound_sys::timer::now());
            (self.now().since(before), shown.0.saturating_sub(before.0))
        };
        (0..3).map(look).min().map_or(0, |(_, zero)| zero)
    }
}

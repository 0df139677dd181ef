//! The schedule of a watcher.

use super::watch::Watcher;
use std::time::{Duration, Instant};

/// The next round and the next sample of a [`Watcher`].
#[derive(Debug)]
pub struct Schedule {
    round: Instant,
    sample: Instant,
}

impl Schedule {
    /// Returns a schedule in which both are due now.
    pub fn start() -> Self {
        let now = Instant::now();
        Self {
            round: now,
            sample: now,
        }
    }

    /// Does what is due; returns how long there is nothing to do.
    pub fn run_due(&mut self, watcher: &mut Watcher) -> Duration {
        let (every, sample) = (watcher.config().every, watcher.config().sample);
        if Instant::now() >= self.round {
            watcher.round();
            self.round = Instant::now() + every.into();
        }
        if Instant::now() >= self.sample {
            watcher.sample();
            self.sample = Instant::now() + sample.into();
        }
        let next = self.round.min(self.sample);
        next.saturating_duration_since(Instant::now())
    }
}

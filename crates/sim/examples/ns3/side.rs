//! Results of one of the two simulators for a cell.

use std::time::Duration;

/// Results of a simulator.
#[derive(Debug, Default)]
pub(super) struct Side {
    /// Time of each message, in nanoseconds, in the order of their starts.
    pub(super) took: Vec<u64>,
    /// Frames whose transmission over a link ended.
    pub(super) events: u64,
    pub(super) dropped: u64,
    pub(super) timeouts: u64,
    /// CPU time.
    pub(super) took_cpu: Duration,
}

impl Side {
    /// Returns the time in milliseconds that this part of the messages does not exceed.
    pub(super) fn percentile(&self, part: f64) -> f64 {
        let mut took = self.took.clone();
        took.sort_unstable();
        let place = (part * took.len() as f64).ceil() as usize;
        let value = took.get(place.saturating_sub(1));
        value.map_or(f64::NAN, |it| *it as f64 / 1e6)
    }

    /// Events per second of CPU time, in millions.
    pub(super) fn speed(&self) -> f64 {
        self.events as f64 / self.took_cpu.as_secs_f64() / 1e6
    }
}

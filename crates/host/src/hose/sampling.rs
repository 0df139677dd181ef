//! Samples of the rates that guests use, at the interval of the exchange.

use std::collections::{HashMap, HashSet};
use tailbound_dataplane::GuestId;
use tailbound_units::{Bytes, Nanos};

/// The times of samples, and the counters at the last one.
#[derive(Debug)]
pub(super) struct SampleTimes {
    /// For each guest that receives traffic, the bytes that it had taken from its port at the last
    /// sample.
    drained: HashMap<GuestId, Bytes>,
    next: Nanos,
    /// True if a rate may have been used since the last sample.
    is_open: bool,
}

impl SampleTimes {
    /// The first sample is due at `now`.
    pub(super) fn new(now: Nanos) -> Self {
        Self {
            drained: HashMap::new(),
            next: now,
            is_open: false,
        }
    }

    /// Returns true if a sample is due.
    pub(super) fn is_due(&self, now: Nanos) -> bool {
        now >= self.next
    }

    /// Begins the sample that is due; the next one follows after `interval`. Returns false if none
    /// is due.
    pub(super) fn begin(&mut self, now: Nanos, interval: Nanos) -> bool {
        let is_due = self.is_due(now);
        self.is_open = !is_due;
        if is_due {
            self.next = now + interval;
        }
        is_due
    }

    /// Returns true if a rate may have been used since the last sample.
    pub(super) const fn is_open(&self) -> bool {
        self.is_open
    }

    /// Returns the time of the next sample.
    pub(super) const fn next(&self) -> Nanos {
        self.next
    }

    /// Returns the bytes that a guest has taken since the last sample, of `total` bytes so far.
    pub(super) fn taken(&mut self, guest: GuestId, total: Bytes) -> Bytes {
        let last = self.drained.insert(guest, total).unwrap_or(total);
        total.saturating_sub(last)
    }

    /// Forgets the guests that are not `here`.
    pub(super) fn retain(&mut self, here: &HashSet<GuestId>) {
        self.drained.retain(|guest, _| here.contains(guest));
    }
}

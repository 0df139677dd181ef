//! Receive rate of a VM, measured at its port: back-pressure of the receiver (`PicNIC`, SIGCOMM
//! 2019, 4.3).
//!
//! A guest that reads its port too slowly has a queue that the division of bandwidth does not know.
//! If frames wait for a whole window, grants are limited to the rate that the guest drained in that
//! window. Without waiting frames the limit rises by a tenth per interval.

use tailbound_units::{Bytes, Nanos, Rate};

/// Interval that is counted in one slot.
const SLOT: Nanos = Nanos::from_millis(1);
/// Number of slots in a window.
const SLOTS: usize = 10;

/// Drained bytes of a machine's queue in the last slots, and the resulting limit on grants.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Drain {
    /// Bytes by the number of the slot, modulo the number of slots.
    slots: [Bytes; SLOTS],
    /// The number of the last one.
    last: u64,
    /// Start of the time in which frames have been waiting without a break.
    waiting_since: Option<Nanos>,
    /// Time of the last rise of the limit.
    raised: Nanos,
    /// Limit on the grants; `None` without a limit.
    limit: Option<Rate>,
}

impl Drain {
    /// The most that is granted of a bandwidth.
    pub(super) fn limit(&self, bandwidth: Rate) -> Rate {
        self.limit.map_or(bandwidth, |limit| limit.min(bandwidth))
    }

    /// Records the bytes drained since the last call, and whether frames are waiting. Returns true
    /// if the limit has changed.
    pub(super) fn handle(
        &mut self,
        now: Nanos,
        interval: Nanos,
        bandwidth: Rate,
        drained: Bytes,
        waiting: bool,
    ) -> bool {
        self.count(now, drained);
        let before = self.limit;
        if !waiting {
            self.waiting_since = None;
            self.raise(now, interval, bandwidth);
            return self.limit != before;
        }
        let since = *self.waiting_since.get_or_insert(now);
        self.raised = now;
        let window = Nanos(SLOT.0 * SLOTS as u64);
        if now.since(since) >= window {
            let floor = Rate(bandwidth.0 / 100);
            let drained = self
                .slots
                .iter()
                .map(|slot| u128::from(slot.0))
                .sum::<u128>();
            // A sample may be longer than the window.
            let rate = drained * 8_000_000_000 / u128::from(window.max(interval).0);
            let rate = u64::try_from(rate).unwrap_or(u64::MAX);
            self.limit = Some(Rate(rate).max(floor)).filter(|limit| *limit < bandwidth);
        }
        self.limit != before
    }

    /// Adds to the slot of `now`, and empties those that time has passed over.
    fn count(&mut self, now: Nanos, drained: Bytes) {
        let slot = now.0 / SLOT.0;
        for passed in (self.last + 1..=slot).take(SLOTS) {
            self.slots[passed as usize % SLOTS] = Bytes::ZERO;
        }
        self.last = slot;
        let current = &mut self.slots[slot as usize % SLOTS];
        *current = current.saturating_add(drained);
    }

    /// Raises the limit by a tenth for each interval since it was raised last, up to the
    /// bandwidth.
    fn raise(&mut self, now: Nanos, interval: Nanos, bandwidth: Rate) {
        while let Some(limit) = self.limit
            && now.since(self.raised) >= interval
        {
            self.raised += interval;
            let more = Rate(limit.0.saturating_add(limit.0 / 10 + 1));
            self.limit = Some(more).filter(|limit| *limit < bandwidth);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const B: Rate = Rate(1_000_000_000);
    const INTERVAL: Nanos = Nanos::from_millis(1);

    /// Drains `bytes` in each of `millis` milliseconds.
    fn run(drain: &mut Drain, now: &mut Nanos, millis: u64, bytes: u64, waiting: bool) {
        for _ in 0..millis {
            *now += INTERVAL;
            drain.handle(*now, INTERVAL, B, Bytes(bytes), waiting);
        }
    }

    #[test]
    fn a_backlog_shorter_than_a_window_limits_no_sender() {
        let (mut drain, mut now) = (Drain::default(), Nanos::from_secs(5));
        for _ in 0..5 {
            run(&mut drain, &mut now, 10, 1000, true);
            run(&mut drain, &mut now, 1, 1000, false);
        }
        assert_eq!(drain.limit(B), B);
    }

    #[test]
    fn a_slow_guest_is_granted_its_drain_rate_and_a_stalled_one_1_pct() {
        let (mut drain, mut now) = (Drain::default(), Nanos::from_secs(5));
        // 25 KB in a millisecond are 200 Mbit/s.
        run(&mut drain, &mut now, 11, 25_000, true);
        assert_eq!(drain.limit(B), Rate::from_mbit(200));
        run(&mut drain, &mut now, 10, 12_500, true);
        assert_eq!(drain.limit(B), Rate::from_mbit(100));
        run(&mut drain, &mut now, 10, 0, true);
        assert_eq!(drain.limit(B), Rate(B.0 / 100));
        // No more than its bandwidth counts as a limit.
        run(&mut drain, &mut now, 20, 200_000, true);
        assert_eq!(drain.limit(B), B);
    }

    #[test]
    fn the_limit_rises_by_a_tenth_an_interval_while_nothing_waits() {
        let (mut drain, mut now) = (Drain::default(), Nanos::from_secs(5));
        run(&mut drain, &mut now, 11, 0, true);
        assert_eq!(drain.limit(B), Rate(B.0 / 100));
        run(&mut drain, &mut now, 1, 0, false);
        assert_eq!(drain.limit(B).0 / 1000, 11_000);
        // 1.1^48 is 97, 1.1^49 is 107.
        run(&mut drain, &mut now, 47, 0, false);
        assert!(drain.limit(B) < B);
        run(&mut drain, &mut now, 1, 0, false);
        assert_eq!(drain.limit(B), B);
    }
}

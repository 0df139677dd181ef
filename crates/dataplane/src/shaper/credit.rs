//! The credit algorithm of Xen's netback at the time of the paper: the smooth window's baseline.
//!
//! A guest gets `rate · interval` bytes of credit, and a packet costs its length. If the credit is
//! insufficient, netback checks whether an interval has passed since the last replenishment, and if
//! not, sets a timer to its end (`netif_schedule_work` and `tx_add_credit` in
//! `drivers/xen/netback/netback.c` of Linux 2.6.32 for Xen). Credit grows to that of one interval,
//! or to the length of the waiting packet if that is longer. So if a packet is longer than an
//! interval's credit, the excess is lost each time, and the guest gets less than its rate.

use super::config::CreditConfig;
use tailbound_units::Nanos;

/// Maximum to which credit grows for a long packet.
const JUMBO: u64 = 131_072;

/// The credit of a guest. The module describes it.
#[derive(Debug)]
pub(super) struct Credit {
    /// Credit of one interval in bytes.
    amount: u64,
    /// The interval, a whole number of ticks.
    interval: Nanos,
    tick: Nanos,
    remaining: u64,
    /// Time of the last replenishment.
    given: Nanos,
    /// End of the running timer.
    timer: Option<Nanos>,
}

impl Credit {
    pub(super) fn new(config: &CreditConfig) -> Self {
        let tick = Nanos(config.tick.0.max(1));
        let amount = config.rate.bytes_in(config.interval).0;
        Self {
            amount,
            interval: Nanos(config.interval.0.div_ceil(tick.0) * tick.0),
            tick,
            remaining: amount,
            given: Nanos::ZERO,
            timer: None,
        }
    }

    /// Time of the last tick.
    const fn clock(&self, now: Nanos) -> Nanos {
        Nanos(now.0 / self.tick.0 * self.tick.0)
    }

    /// Checks whether a packet leaves at `now`, and if so, takes its credit. Otherwise starts the
    /// timer.
    pub(super) fn admits(&mut self, now: Nanos, len: usize) -> bool {
        let len = len as u64;
        if let Some(at) = self.timer {
            if now < at {
                return false;
            }
            self.timer = None;
            self.given = at;
            self.give(len);
        }
        if len > self.remaining {
            let next = self.given + self.interval;
            if self.clock(now) >= next {
                self.given = self.clock(now);
                self.give(len);
            }
            if len > self.remaining {
                self.timer = Some((self.given + self.interval).max(self.clock(now) + self.tick));
                return false;
            }
        }
        self.remaining -= len;
        true
    }

    fn give(&mut self, len: u64) {
        let most = len.min(JUMBO).max(self.amount);
        self.remaining = (self.remaining + self.amount).min(most);
    }

    /// Time at which [`Credit::admits`] must be called again.
    pub(super) fn admits_at(&self, now: Nanos, len: usize) -> Nanos {
        match self.timer {
            Some(at) => at,
            None if len as u64 <= self.remaining => now,
            // The call sets the timer.
            None => now,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tailbound_units::Rate;

    /// Ticks of 4 ms: an interval of 30 ms has 8 of them, and begins and ends with a tick.
    #[test]
    fn credit_is_given_at_whole_ticks() {
        let mut credit = Credit::new(&CreditConfig {
            tick: Nanos::from_millis(4),
            ..CreditConfig::new(Rate::from_mbit(8), Nanos::from_millis(30))
        });
        // 1 MB/s for 30 ms.
        let begin = Nanos::from_millis(1_001);
        let admitted = [30_000, 30_000, 1].map(|len| credit.admits(begin, len));
        assert_eq!(admitted, [true, true, false], "that of an interval, twice");
        assert_eq!(credit.admits_at(begin, 1), Nanos::from_millis(1_032));
    }
}

//! The credit of Xen's netback, as it was when the paper was written: what the smooth window
//! is compared with.
//!
//! A guest gets `rate · interval` bytes of credit, and a packet needs as much as it is long.
//! Where there is less, netback looks whether an interval has passed since it was last given,
//! and else sets a timer to when it has (`netif_schedule_work` and `tx_add_credit` in
//! `drivers/xen/netback/netback.c` of Linux 2.6.32 for Xen). Credit grows to that of one
//! interval, or to the packet that waits where that is longer. So where a packet is longer
//! than an interval's credit, what is beyond it is lost each time, and the guest gets less
//! than its rate.

use super::config::CreditConfig;
use tailbound_units::Nanos;

/// The longest packet that credit grows to.
const JUMBO: u64 = 131_072;

/// Credit. See the module.
#[derive(Debug)]
pub(super) struct Credit {
    /// Of one interval, in bytes,
    amount: u64,
    /// which takes a whole number of ticks.
    interval: Nanos,
    tick: Nanos,
    remaining: u64,
    /// When credit was last given.
    given: Nanos,
    /// Until when a timer runs.
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

    /// The last tick.
    const fn clock(&self, now: Nanos) -> Nanos {
        Nanos(now.0 / self.tick.0 * self.tick.0)
    }

    /// Whether a packet leaves at `now`; then its credit is taken. If not, a timer runs.
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

    /// When a packet is to be asked for again.
    pub(super) fn admits_at(&self, now: Nanos, len: usize) -> Nanos {
        match self.timer {
            Some(at) => at,
            None if len as u64 <= self.remaining => now,
            // Asking sets the timer.
            None => now,
        }
    }
}

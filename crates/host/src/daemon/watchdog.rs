//! Telling systemd that the packet loop turns (`WatchdogSec=`), from the loop itself: one that stands
//! still is not heard, and systemd starts the daemon anew.

use tailbound_sys::notify;
use tailbound_units::Nanos;

/// When the loop is to be heard next. Without a watchdog never, and the loop sets no timer for it.
#[derive(Debug)]
pub(super) struct Watchdog {
    /// A third of what systemd waits for.
    every: Option<Nanos>,
    next: Nanos,
}

impl Watchdog {
    /// As systemd asks for it.
    pub(super) fn start(now: Nanos) -> Self {
        Self {
            every: notify::watchdog().map(|wait| Nanos(wait.as_nanos() / 3)),
            next: now,
        }
    }

    /// When to call [`Watchdog::turn`] at the latest.
    pub(super) fn poll_at(&self) -> Option<Nanos> {
        self.every.map(|_| self.next)
    }

    /// The loop has a turn at `now`.
    pub(super) fn turn(&mut self, now: Nanos) {
        let Some(every) = self.every.filter(|_| now >= self.next) else {
            return;
        };
        self.next = now + every;
        if let Err(error) = notify::alive() {
            tracing::warn!(%error, "cannot tell systemd's watchdog that the packet loop turns");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loop_is_heard_three_times_in_what_systemd_waits_for() {
        let mut watchdog = Watchdog {
            every: Some(Nanos::from_secs(3)),
            next: Nanos::ZERO,
        };
        for (now, next) in [(0, 3), (1, 3), (3, 6), (20, 23)] {
            watchdog.turn(Nanos::from_secs(now));
            assert_eq!(watchdog.poll_at(), Some(Nanos::from_secs(next)));
        }
        let mut none = Watchdog {
            every: None,
            next: Nanos::ZERO,
        };
        none.turn(Nanos::from_secs(9));
        assert_eq!(none.poll_at(), None);
    }
}

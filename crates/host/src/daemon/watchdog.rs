//! Messages to systemd's watchdog (`WatchdogSec=`), from the packet loop itself: a loop that stands
//! still sends none, and systemd starts the daemon anew.

use tailbound_sys::notify;
use tailbound_units::Nanos;

/// The moment of the next message. Without a watchdog there is none, and the loop sets no timer.
#[derive(Debug)]
pub(super) struct Watchdog {
    /// A third of systemd's watchdog timeout.
    every: Option<Nanos>,
    next: Nanos,
}

impl Watchdog {
    /// As the unit has it.
    pub(super) fn start(now: Nanos) -> Self {
        Self {
            every: notify::watchdog().map(|wait| Nanos(wait.as_nanos() / 3)),
            next: now,
        }
    }

    /// The latest moment for [`Watchdog::turn`].
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
            tracing::warn!(%error, "systemd's watchdog does not take the message of the packet loop");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loop_notifies_the_watchdog_once_per_interval() {
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

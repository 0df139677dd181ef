//! The pauses between attempts: exponential back-off with jitter.

use super::random::random;
use std::time::Duration;

/// Pauses that double up to a limit, each shortened at random by up to a half, so that clients that
/// lost a service at one moment do not come back at one moment.
#[derive(Debug, Clone)]
pub struct Backoff {
    first: Duration,
    most: Duration,
    next: Duration,
}

impl Backoff {
    /// Waits from `first`, at most `most`.
    pub const fn new(first: Duration, most: Duration) -> Self {
        Self {
            first,
            most,
            next: first,
        }
    }

    /// Returns the next pause.
    pub fn wait(&mut self) -> Duration {
        let full = self.next.min(self.most);
        self.next = full.saturating_mul(2);
        // Without randomness each pause is shortened by half.
        let part = random::<2>().map_or(0, u16::from_le_bytes);
        full / 2 + full / 2 * u32::from(part) / u32::from(u16::MAX)
    }

    /// Begins with the first pause again after a success.
    pub fn reset(&mut self) {
        self.next = self.first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_limit_and_start_again() {
        let (first, most) = (Duration::from_millis(100), Duration::from_millis(350));
        let mut backoff = Backoff::new(first, most);
        for full in [100, 200, 350, 350].map(Duration::from_millis) {
            let wait = backoff.wait();
            assert!(wait <= full && wait >= full / 2, "{wait:?} of {full:?}");
        }
        backoff.reset();
        assert!(backoff.wait() <= first);
    }

    #[test]
    fn backoff_waits_of_two_clients_differ() {
        let waits: std::collections::HashSet<_> = (0..64)
            .map(|_| Backoff::new(Duration::from_secs(1), Duration::from_secs(1)).wait())
            .collect();
        assert!(waits.len() > 8, "{waits:?}");
    }
}

//! Replay protection per peer (RFC 4303, 3.4.3, with epochs).

use crate::ids::{Epoch, SequenceNumber, TimeOfDay};

/// Number of sequence numbers below the highest that may still arrive.
const WINDOW: u64 = 64;

/// Window of received datagrams of one peer.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Window {
    pub(crate) epoch: Epoch,
    pub(crate) highest: SequenceNumber,
    /// Bit i: `highest - i` was seen.
    seen: u64,
}

/// Reason why a datagram is not new.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stale {
    /// The datagram is a duplicate.
    Duplicate,
    /// The datagram belongs to an earlier epoch, or is older than the window.
    Old,
    /// The epoch is so far ahead that a clock must be wrong.
    Ahead,
}

/// Kind of a new datagram's epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fresh {
    /// The next one of the epoch.
    Next,
    /// The peer has started again.
    Restarted,
}

impl Window {
    /// Records a datagram with a correct MAC, if it is new. `today` is the time of day on this
    /// host.
    ///
    /// An epoch at most an hour after the last one is never too far ahead: a peer that learns of an
    /// unknown epoch of its own continues from there.
    pub(crate) fn note(
        &mut self,
        today: TimeOfDay,
        epoch: Epoch,
        sequence: SequenceNumber,
    ) -> Result<Fresh, Stale> {
        if epoch < self.epoch || epoch == Epoch(0) {
            return Err(Stale::Old);
        }
        if epoch > self.epoch {
            if epoch > Epoch::latest(today).max(self.epoch.an_hour_on()) {
                return Err(Stale::Ahead);
            }
            *self = Self {
                epoch,
                highest: sequence,
                seen: 1,
            };
            return Ok(Fresh::Restarted);
        }
        if sequence > self.highest {
            let ahead = sequence.0 - self.highest.0;
            self.seen = self.seen.checked_shl(ahead.min(WINDOW) as u32).unwrap_or(0) | 1;
            self.highest = sequence;
            return Ok(Fresh::Next);
        }
        let behind = self.highest.0 - sequence.0;
        if behind >= WINDOW {
            return Err(Stale::Old);
        }
        if self.seen >> behind & 1 == 1 {
            return Err(Stale::Duplicate);
        }
        self.seen |= 1 << behind;
        Ok(Fresh::Next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(window: &mut Window, epoch: u64, sequence: u64) -> Result<Fresh, Stale> {
        window.note(TimeOfDay(0), Epoch(epoch), SequenceNumber(sequence))
    }

    #[test]
    fn each_number_is_taken_once_in_any_order() {
        let mut window = Window::default();
        assert_eq!(note(&mut window, 1, 10), Ok(Fresh::Restarted));
        assert_eq!(note(&mut window, 1, 8), Ok(Fresh::Next));
        assert_eq!(note(&mut window, 1, 8), Err(Stale::Duplicate));
        assert_eq!(note(&mut window, 1, 73), Ok(Fresh::Next));
        assert_eq!(note(&mut window, 1, 10), Err(Stale::Duplicate));
        assert_eq!(note(&mut window, 1, 9), Err(Stale::Old));
        assert_eq!(note(&mut window, 1, u64::MAX), Ok(Fresh::Next));
        assert_eq!(note(&mut window, 1, 73), Err(Stale::Old));
    }

    #[test]
    fn datagrams_of_an_earlier_epoch_are_refused() {
        let mut window = Window::default();
        assert_eq!(note(&mut window, 0, 1), Err(Stale::Old));
        assert_eq!(note(&mut window, 5, 100), Ok(Fresh::Restarted));
        assert_eq!(note(&mut window, 4, 101), Err(Stale::Old));
        assert_eq!(note(&mut window, 6, 1), Ok(Fresh::Restarted));
        assert_eq!(note(&mut window, 5, 102), Err(Stale::Old));
    }

    #[test]
    fn an_epoch_more_than_an_hour_ahead_of_the_clock_and_of_the_last_one_is_refused() {
        let hour = 3_600_000_000_000;
        let today = TimeOfDay(50 * hour);
        let mut window = Window::default();
        let mut note = |epoch| window.note(today, Epoch(epoch), SequenceNumber(1));
        assert_eq!(note(u64::MAX), Err(Stale::Ahead));
        assert_eq!(note(51 * hour + 1), Err(Stale::Ahead));
        assert_eq!(note(51 * hour), Ok(Fresh::Restarted));
        assert_eq!(note(52 * hour + 1), Err(Stale::Ahead));
        assert_eq!(note(52 * hour), Ok(Fresh::Restarted));
        assert_eq!(note(51 * hour), Err(Stale::Old));
    }
}

//! The grant that a pair's sender confirms.

use crate::ids::SequenceNumber;
use tailbound_units::Nanos;

/// The latest grant of a pair, and the one that its sender may confirm.
///
/// Frames that have departure times leave at the rate at which they got them. With a commitment of that
/// time, a grant is confirmed no earlier than the commitment after its arrival: until then the receiver's
/// host counts the former grant, too.
#[derive(Debug, Clone, Copy)]
pub(super) struct Confirmation {
    /// The datagram with the latest grant.
    latest: SequenceNumber,
    /// The datagram that may be confirmed.
    due: SequenceNumber,
    /// A later datagram, and the time from which it may be confirmed.
    next: Option<Pending>,
}

#[derive(Debug, Clone, Copy)]
struct Pending {
    sequence: SequenceNumber,
    at: Nanos,
}

impl Confirmation {
    /// Of a pair that keeps to no grant up to `latest`.
    pub(super) const fn new(latest: SequenceNumber) -> Self {
        Self {
            latest,
            due: latest,
            next: None,
        }
    }

    /// Returns the datagram with the latest grant.
    pub(super) const fn latest(&self) -> SequenceNumber {
        self.latest
    }

    /// Notes a grant that came in datagram `sequence`.
    pub(super) fn handle_grant(&mut self, now: Nanos, commitment: Nanos, sequence: SequenceNumber) {
        self.advance(now, commitment);
        self.latest = sequence;
        if self.next.is_none() {
            self.next = Some(Pending {
                sequence,
                at: now + commitment,
            });
            self.advance(now, commitment);
        }
    }

    /// Returns the datagram that may be confirmed now.
    pub(super) fn due(&mut self, now: Nanos, commitment: Nanos) -> SequenceNumber {
        self.advance(now, commitment);
        self.due
    }

    fn advance(&mut self, now: Nanos, commitment: Nanos) {
        let Some(Pending { sequence, at }) = self.next else {
            return;
        };
        if at > now {
            return;
        }
        self.due = sequence;
        // It came after the one that was pending, at a time that is not known any more.
        self.next = (self.latest > sequence).then(|| Pending {
            sequence: self.latest,
            at: now + commitment,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_is_confirmed_a_commitment_after_it_came() {
        let number = SequenceNumber;
        let ms = Nanos::from_millis;
        let mut pair = Confirmation::new(number(3));
        for (now, sequence) in [(1, 4), (2, 5), (7, 6)] {
            pair.handle_grant(ms(now), ms(10), number(sequence));
            assert_eq!(pair.due(ms(now), ms(10)), number(3));
        }
        assert_eq!(pair.due(ms(11), ms(10)), number(4));
        // The latest one came no later than at 11 ms.
        assert_eq!(pair.due(ms(20), ms(10)), number(4));
        assert_eq!(pair.due(ms(21), ms(10)), number(6));
        assert_eq!(pair.latest(), number(6));
    }

    #[test]
    fn without_a_commitment_the_latest_grant_is_confirmed() {
        let mut pair = Confirmation::new(SequenceNumber(0));
        for sequence in [2, 7] {
            pair.handle_grant(Nanos(5), Nanos::ZERO, SequenceNumber(sequence));
            assert_eq!(pair.due(Nanos(5), Nanos::ZERO), SequenceNumber(sequence));
        }
    }
}

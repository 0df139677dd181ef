//! A pair at its receiver's host.

use super::IncomingRequest;
use crate::ids::{PairKey, SequenceNumber};
use crate::machines::LocalIndex;
use tailbound_units::{Bytes, Nanos, Rate};

/// Largest number of unconfirmed grants of one pair; beyond it the last two are counted as one.
const UNCONFIRMED: usize = 16;

/// A rate that was granted, by one datagram or several in a row.
#[derive(Debug, Clone, Copy)]
struct IssuedGrant {
    first: SequenceNumber,
    last: SequenceNumber,
    rate: Rate,
    /// Bytes that are lent, at least `least` and at most `lent`.
    lent: Bytes,
    least: Bytes,
    /// Latest end of its lease.
    until: Nanos,
}

/// Demand of a remote machine, and its grants.
#[derive(Debug)]
pub(super) struct Grant {
    pub(super) key: PairKey,
    /// The receiver.
    pub(super) local: LocalIndex,
    /// Demand of the sender, its time, and its datagram.
    pub(super) demand: Rate,
    pub(super) heard: Nanos,
    asked_in: SequenceNumber,
    /// The sender's own bandwidth.
    pub(super) limit: Rate,
    /// Bytes of the inward burst that the sender requests; zero if it has none.
    pub(super) wanted: Bytes,
    /// Issued grants, the oldest first: any of them may be in force.
    issued: Vec<IssuedGrant>,
    /// Rate of the next grant, and the bytes that it lends.
    next: Rate,
    next_lent: Bytes,
}

impl Grant {
    /// Makes a pair without demand and grants.
    pub(super) const fn new(key: PairKey, local: LocalIndex, limit: Rate, now: Nanos) -> Self {
        Self {
            key,
            local,
            demand: Rate::ZERO,
            heard: now,
            asked_in: SequenceNumber(0),
            limit,
            wanted: Bytes::ZERO,
            issued: Vec::new(),
            next: Rate::ZERO,
            next_lent: Bytes::ZERO,
        }
    }

    /// The most that the sender may be using, now or when `next` is issued. `share`
    /// is the static share.
    pub(super) fn in_force(&self, now: Nanos, share: Rate) -> Rate {
        let rates = self.issued.iter().map(|issued| {
            if now < issued.until {
                issued.rate
            } else {
                issued.rate.min(share)
            }
        });
        rates.fold(self.next, Rate::max)
    }

    /// Returns the rate of the next grant.
    pub(super) const fn next(&self) -> Rate {
        self.next
    }

    /// Sets what is granted next. Returns what was issued last.
    pub(super) fn set_next(&mut self, rate: Rate) -> Rate {
        self.next = rate;
        self.issued.last().map_or(Rate::ZERO, |issued| issued.rate)
    }

    /// Records the demand of a request, if it is the latest one.
    pub(super) fn handle_demand(&mut self, now: Nanos, request: &IncomingRequest) {
        if request.sequence > self.asked_in {
            self.asked_in = request.sequence;
            self.demand = request.demand;
            self.wanted = request.wanted;
            self.heard = now;
        }
    }

    /// The most that may be lent, now or when the next grant is issued.
    pub(super) fn lent(&self) -> Bytes {
        self.issued_lent().max(self.next_lent)
    }

    /// The most that may be lent by issued grants.
    pub(super) fn issued_lent(&self) -> Bytes {
        let lent = self.issued.iter().map(|issued| issued.lent);
        lent.fold(Bytes::ZERO, Bytes::max)
    }

    /// Returns what the last grant lends.
    pub(super) fn last_lent(&self) -> Bytes {
        self.issued.last().map_or(Bytes::ZERO, |issued| issued.lent)
    }

    /// Returns whether less was lent by the last grant than may still be lent. More is not lent
    /// before the sender confirms that: it might get the difference twice.
    pub(super) fn is_lent_less(&self) -> bool {
        let least = self
            .issued
            .last()
            .map_or(Bytes::ZERO, |issued| issued.least);
        least < self.issued_lent()
    }

    /// Returns what the next grant lends.
    pub(super) const fn next_lent(&self) -> Bytes {
        self.next_lent
    }

    /// Sets what the next grant lends. Returns what was lent last.
    pub(super) fn set_lent(&mut self, lent: Bytes) -> Bytes {
        self.next_lent = lent;
        self.last_lent()
    }

    /// Ends loans whose leases are over. Returns their bytes.
    pub(super) fn end_loans(&mut self, now: Nanos) -> Bytes {
        let before = self.issued_lent();
        for issued in &mut self.issued {
            if now >= issued.until {
                (issued.lent, issued.least) = (Bytes::ZERO, Bytes::ZERO);
            }
        }
        before.saturating_sub(self.issued_lent())
    }

    /// The sender keeps to the grant of datagram `sequence`: older ones are void. Returns the bytes
    /// that are not lent any more.
    pub(super) fn confirm(&mut self, sequence: SequenceNumber) -> Bytes {
        let before = self.issued_lent();
        let older = self
            .issued
            .partition_point(|issued| issued.first <= sequence);
        self.issued.drain(..older.saturating_sub(1));
        before.saturating_sub(self.issued_lent())
    }

    /// Voids the grants up to datagram `sequence`, which the sender has given back. Later grants
    /// stay, even with the same rate, because the sender may use them. Returns the bytes that are
    /// not lent any more and may have been spent: all if the bucket was not full, and at least those
    /// beyond the last loan.
    pub(super) fn give_back(&mut self, sequence: SequenceNumber, is_full: bool) -> Bytes {
        let before = self.issued_lent();
        let void = self
            .issued
            .partition_point(|issued| issued.last <= sequence);
        let last = self.issued.drain(..void).next_back();
        let last = last.filter(|last| is_full && last.last == sequence);
        let unspent = last.map_or(Bytes::ZERO, |last| last.least);
        let ended = before.saturating_sub(self.issued_lent());
        ended.saturating_sub(unspent)
    }

    /// Returns whether no grant is left or may be in force.
    pub(super) fn is_over(&self) -> bool {
        let nothing = |issued: &IssuedGrant| issued.rate == Rate::ZERO;
        self.next == Rate::ZERO && self.issued.iter().all(nothing) && self.lent() == Bytes::ZERO
    }

    /// Records that datagram `sequence` contains the next grant, with a lease that is over at
    /// `until`.
    pub(super) fn issue(&mut self, sequence: SequenceNumber, until: Nanos) {
        let full = self.issued.len() >= UNCONFIRMED;
        let (rate, lent) = (self.next, self.next_lent);
        match self.issued.last_mut() {
            Some(last) if (last.rate, last.lent, last.least) == (rate, lent, lent) || full => {
                debug_assert!(
                    last.last < sequence,
                    "datagrams are numbered in their order"
                );
                last.last = sequence;
                last.rate = last.rate.max(rate);
                last.lent = last.lent.max(lent);
                last.least = last.least.min(lent);
                last.until = until;
            }
            _ => self.issued.push(IssuedGrant {
                first: sequence,
                last: sequence,
                rate,
                lent,
                least: lent,
                until,
            }),
        }
        debug_assert!(self.issued.len() <= UNCONFIRMED);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{MachineId, PairId, PeerIndex};
    use crate::table::Place;

    /// A pair with grants of these loans, in datagrams 1, 2 and so on, one millisecond apart.
    fn lent(loans: &[u64]) -> Grant {
        let pair = PairId {
            sender: MachineId(1),
            receiver: MachineId(2),
        };
        let peer = PeerIndex(0);
        let key = PairKey { peer, pair };
        let mut grant = Grant::new(key, LocalIndex::new(0), Rate(9), Nanos::ZERO);
        for (sequence, loan) in (1..).zip(loans) {
            grant.set_lent(Bytes(*loan));
            let until = Nanos::from_millis(20 + sequence);
            grant.issue(SequenceNumber(sequence), until);
        }
        grant
    }

    #[test]
    fn a_loan_is_in_force_until_its_sender_keeps_to_a_lower_one() {
        let mut grant = lent(&[4, 10, 6]);
        assert_eq!((grant.lent(), grant.last_lent()), (Bytes(10), Bytes(6)));
        assert!(grant.is_lent_less());
        assert_eq!(grant.confirm(SequenceNumber(2)), Bytes(0));
        assert!(grant.is_lent_less());
        assert_eq!(grant.confirm(SequenceNumber(3)), Bytes(4));
        assert!(!grant.is_lent_less());
        assert_eq!(grant.lent(), Bytes(6));
        // It was never issued.
        grant.set_lent(Bytes(8));
        assert_eq!(grant.lent(), Bytes(8));
        grant.set_lent(Bytes(6));
        assert_eq!(grant.lent(), Bytes(6));
    }

    #[test]
    fn only_the_last_loan_of_a_full_bucket_comes_back_unspent() {
        let back = |loans: &[u64], sequence, is_full| {
            let mut grant = lent(loans);
            let spent = grant.give_back(SequenceNumber(sequence), is_full);
            (spent.0, grant.issued_lent().0)
        };
        assert_eq!(back(&[4, 10], 2, true), (0, 0));
        assert_eq!(back(&[4, 10], 2, false), (10, 0));
        assert_eq!(back(&[10, 4], 2, true), (6, 0));
        // The later one is returned by itself.
        assert_eq!(back(&[4, 10], 1, true), (0, 10));
        assert_eq!(back(&[10, 4], 1, true), (0, 4));
        // Another datagram with the same loan is on its way.
        assert_eq!(back(&[10, 10], 1, true), (0, 10));
    }

    #[test]
    fn a_loan_ends_with_its_lease() {
        let mut grant = lent(&[10, 10, 4]);
        assert_eq!(grant.end_loans(Nanos::from_millis(21)), Bytes(0));
        assert_eq!(grant.end_loans(Nanos::from_millis(22)), Bytes(6));
        assert_eq!(grant.end_loans(Nanos::from_millis(23)), Bytes(4));
        assert_eq!(grant.lent(), Bytes(4), "the next one would have it");
    }

    #[test]
    fn loans_that_are_counted_as_one_are_not_raised() {
        let mut loans: Vec<_> = (1..=UNCONFIRMED as u64).collect();
        loans.push(3);
        let grant = lent(&loans);
        assert_eq!(grant.lent(), Bytes(UNCONFIRMED as u64));
        assert!(grant.is_lent_less());
    }
}

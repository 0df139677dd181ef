//! A pair at its receiver's host.

use crate::ids::{PairKey, SequenceNumber};
use crate::machines::LocalIndex;
use tailbound_units::{Nanos, Rate};

/// Grants of one pair that are not confirmed; then the last two are counted as
/// one.
const UNCONFIRMED: usize = 16;

/// A rate that was granted, by one datagram or several in a row.
#[derive(Debug, Clone, Copy)]
struct Issued {
    first: SequenceNumber,
    last: SequenceNumber,
    rate: Rate,
    /// When its lease is over at the latest.
    until: Nanos,
}

/// What a machine elsewhere asks for, and what it was granted.
#[derive(Debug)]
pub(super) struct Grant {
    pub(super) key: PairKey,
    /// The receiver.
    pub(super) local: LocalIndex,
    /// What the sender asks for, when it did and in which datagram.
    pub(super) demand: Rate,
    pub(super) heard: Nanos,
    asked_in: SequenceNumber,
    /// The sender's own bandwidth.
    pub(super) limit: Rate,
    /// What was granted, the oldest first: any of it may be in force.
    issued: Vec<Issued>,
    /// What is granted next.
    next: Rate,
}

impl Grant {
    /// A pair that asks for nothing and was granted nothing.
    pub(super) const fn new(key: PairKey, local: LocalIndex, limit: Rate, now: Nanos) -> Self {
        Self {
            key,
            local,
            demand: Rate::ZERO,
            heard: now,
            asked_in: SequenceNumber(0),
            limit,
            issued: Vec::new(),
            next: Rate::ZERO,
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

    /// What is granted next.
    pub(super) const fn next(&self) -> Rate {
        self.next
    }

    /// Sets what is granted next. Returns what was issued last.
    pub(super) fn set_next(&mut self, rate: Rate) -> Rate {
        self.next = rate;
        self.issued.last().map_or(Rate::ZERO, |issued| issued.rate)
    }

    /// Notes what a request says, where it is the latest one.
    pub(super) fn handle_demand(&mut self, now: Nanos, asked_in: SequenceNumber, demand: Rate) {
        if asked_in > self.asked_in {
            self.asked_in = asked_in;
            self.demand = demand;
            self.heard = now;
        }
    }

    /// The sender keeps to the grant of datagram `sequence`: older ones are void.
    pub(super) fn confirm(&mut self, sequence: SequenceNumber) {
        let older = self
            .issued
            .partition_point(|issued| issued.first <= sequence);
        self.issued.drain(..older.saturating_sub(1));
    }

    /// The sender has given back what it was granted up to datagram `sequence`.
    /// What came later, if only the same once more, it may find a use for again.
    pub(super) fn give_back(&mut self, sequence: SequenceNumber) {
        let void = self
            .issued
            .partition_point(|issued| issued.last <= sequence);
        self.issued.drain(..void);
    }

    /// Whether nothing is granted, nor may be in force.
    pub(super) fn is_over(&self) -> bool {
        let nothing = |issued: &Issued| issued.rate == Rate::ZERO;
        self.next == Rate::ZERO && self.issued.iter().all(nothing)
    }

    /// What is granted next is in datagram `sequence`, with a lease that is over at
    /// `until`.
    pub(super) fn issue(&mut self, sequence: SequenceNumber, until: Nanos) {
        let full = self.issued.len() >= UNCONFIRMED;
        let rate = self.next;
        match self.issued.last_mut() {
            Some(last) if last.rate == rate || full => {
                debug_assert!(
                    last.last < sequence,
                    "datagrams are numbered in their order"
                );
                last.last = sequence;
                last.rate = last.rate.max(rate);
                last.until = until;
            }
            _ => self.issued.push(Issued {
                first: sequence,
                last: sequence,
                rate,
                until,
            }),
        }
        debug_assert!(self.issued.len() <= UNCONFIRMED);
    }
}

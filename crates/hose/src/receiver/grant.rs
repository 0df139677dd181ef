//! A pair at its receiver's host.

use crate::ids::{PairKey, SequenceNumber};
use crate::machines::LocalIndex;
use tailbound_units::{Nanos, Rate};

/// Largest number of unconfirmed grants of one pair; beyond it the last two are counted as one.
const UNCONFIRMED: usize = 16;

/// A rate that was granted, by one datagram or several in a row.
#[derive(Debug, Clone, Copy)]
struct Issued {
    first: SequenceNumber,
    last: SequenceNumber,
    rate: Rate,
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
    /// Issued grants, the oldest first: any of them may be in force.
    issued: Vec<Issued>,
    /// Rate of the next grant.
    next: Rate,
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

    /// Voids the grants up to datagram `sequence`, which the sender has given back. Later grants
    /// stay, even with the same rate, because the sender may use them.
    pub(super) fn give_back(&mut self, sequence: SequenceNumber) {
        let void = self
            .issued
            .partition_point(|issued| issued.last <= sequence);
        self.issued.drain(..void);
    }

    /// Returns whether no grant is left or may be in force.
    pub(super) fn is_over(&self) -> bool {
        let nothing = |issued: &Issued| issued.rate == Rate::ZERO;
        self.next == Rate::ZERO && self.issued.iter().all(nothing)
    }

    /// Records that datagram `sequence` contains the next grant, with a lease that is over at
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

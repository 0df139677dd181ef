//! The burst that a receiver's host lends a pair, at its sender's host.

use crate::config::Times;
use tailbound_units::{Bytes, Nanos};

/// Bytes that the bucket of a pair is deeper by.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Loan {
    /// The most that is of use: S without the part that the pair always has. Zero without an inward
    /// burst.
    most: Bytes,
    /// Bytes that are lent now.
    lent: Bytes,
    /// Bytes that are requested in all: what was queued beyond the bucket since the pair was opened.
    wanted: Bytes,
    /// True if a loan has ended without the knowledge of the receiver's host, which counts it still.
    /// No loan is accepted before that host has granted a rate without one.
    has_lapsed: bool,
    /// Time of the last sample in which the loan was used, or frames waited.
    used: Nanos,
}

impl Loan {
    /// Returns the bytes that are lent now.
    pub(super) const fn lent(&self) -> Bytes {
        self.lent
    }

    /// Sets the most that is of use. A larger loan ends.
    pub(super) fn set_most(&mut self, most: Bytes) {
        self.most = most;
        if self.lent > most {
            self.lapse();
        }
        self.wanted = self.wanted.min(most);
    }

    /// Ends a sample after which `queued` bytes wait. The loan was used if the pair may have sent more
    /// than without it. An unused loan is requested no longer.
    pub(super) fn end_sample(&mut self, now: Nanos, times: Times, queued: Bytes, is_used: bool) {
        if is_used || queued > Bytes::ZERO {
            self.used = now;
        } else if now.since(self.used) >= times.loan_kept() {
            self.wanted = Bytes::ZERO;
        }
        self.handle_queued(queued);
    }

    /// Wants the bytes that wait now, too.
    pub(super) fn handle_queued(&mut self, queued: Bytes) {
        if queued > Bytes::ZERO {
            let all = self.lent.saturating_add(queued).min(self.most);
            self.wanted = self.wanted.max(all);
        }
    }

    /// Returns whether an unused pair keeps it, so that a lone sender has all of S.
    pub(super) fn is_kept(&self, now: Nanos, times: Times) -> bool {
        self.lent > Bytes::ZERO && now.since(self.used) < times.loan_kept()
    }

    /// Applies a grant. Returns whether the loan has changed.
    pub(super) fn take(&mut self, lent: Bytes) -> bool {
        self.has_lapsed &= lent > Bytes::ZERO;
        let lent = if self.has_lapsed {
            Bytes::ZERO
        } else {
            lent.min(self.most)
        };
        std::mem::replace(&mut self.lent, lent) != lent
    }

    /// Ends the loan with the pair's demand: its bucket is full.
    pub(super) const fn give_back(&mut self) {
        self.lent = Bytes::ZERO;
        self.wanted = Bytes::ZERO;
    }

    /// Ends the loan although its bucket may not be full, if there is one.
    pub(super) fn lapse(&mut self) {
        self.has_lapsed |= self.lent > Bytes::ZERO;
        self.give_back();
    }

    /// Returns the number of bytes in a request.
    pub(super) const fn request(&self) -> Bytes {
        if self.has_lapsed {
            Bytes::ZERO
        } else {
            self.wanted
        }
    }

    /// Returns the number of bytes in a returned grant: not zero if the bucket was full when the
    /// loan ended.
    pub(super) const fn receipt(&self) -> Bytes {
        if self.has_lapsed {
            Bytes::ZERO
        } else {
            self.most
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lapsed_loan_is_granted_again_only_after_a_grant_of_zero() {
        let times = Times {
            interval: Nanos::from_millis(1),
            commitment: Nanos::ZERO,
        };
        let mut loan = Loan::default();
        loan.set_most(Bytes(10));
        loan.end_sample(Nanos(1), times, Bytes(7), true);
        assert_eq!(loan.request(), Bytes(7));
        assert!(loan.take(Bytes(7)));
        loan.end_sample(Nanos(2), times, Bytes(7), true);
        assert_eq!(loan.request(), Bytes(10), "no more than is of use");
        loan.lapse();
        assert_eq!((loan.lent(), loan.request()), (Bytes(0), Bytes(0)));
        assert_eq!(loan.receipt(), Bytes(0), "it may be spent");
        assert!(!loan.take(Bytes(7)), "it would have it twice");
        loan.end_sample(Nanos(3), times, Bytes(7), true);
        assert_eq!(loan.request(), Bytes(0));
        assert!(!loan.take(Bytes(0)));
        assert_eq!((loan.request(), loan.receipt()), (Bytes(7), Bytes(10)));
        assert!(loan.take(Bytes(7)));
        // Less is of use: what is beyond may be spent.
        loan.set_most(Bytes(5));
        assert_eq!((loan.lent(), loan.receipt()), (Bytes(0), Bytes(0)));
    }
}

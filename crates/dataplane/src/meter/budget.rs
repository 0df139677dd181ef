//! Joint budgets of the small flows of a guest, and of all guests.
//!
//! A guest's bucket is filled when it has too little for a packet, not at each packet: so most
//! packets cost one subtraction here. A filling adds the guest's earnings since the last one, up to
//! a bucket, and takes them out of the bucket of all guests. A bucket holds half of the burst,
//! because an idle guest has a full bucket and has earned another: in every interval t a guest's
//! small flows are at most `guest`·t + `burst`, and the small flows of all guests at most `all`·t
//! plus one burst of all and half a burst of each.

use super::{BYTE, MeterConfig};
use crate::GuestId;
use tailbound_units::{Bytes, Nanos, Rate};

/// Length of a burst at its rate: ten milliseconds.
const BURST_TIME: Nanos = Nanos::from_millis(10);

/// Limits of small flows together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// Limit of each guest; `None`: unlimited.
    pub guest: Option<Rate>,
    /// Part of the limit that other guests cannot use; `None`: all of it.
    pub own: Option<Rate>,
    /// Limit of all guests, a quarter of the link; `None` for an unknown link.
    pub all: Option<Rate>,
}

impl Share {
    /// Divisor of the part of a link that small flows of all guests may use. With every guest at
    /// its budget a neighbour's small flows take at most 1.2 times as long at the 99th percentile:
    /// `tests/first_class.rs`.
    pub const OF_LINK: u64 = 4;

    /// By default all guests have equal parts of the joint budget: with more, a guest would send
    /// longer bursts, for which neighbours' small flows wait.
    pub(super) fn new(budget: Option<Rate>, link: Option<Rate>, guests: usize) -> Self {
        let all = link.map(|link| Rate(link.0 / Self::OF_LINK));
        let even = all.map(|all| Rate(all.0 / (guests as u64).max(1)));
        let guest = budget.or(even);
        Self {
            guest,
            own: guest.zip(even).map(|(guest, even)| guest.min(even)),
            all,
        }
    }
}

/// The buckets.
#[derive(Debug)]
pub(super) struct Budgets {
    /// Tokens in the bucket of each guest: separate from the rest, because each packet reads them.
    given: Vec<i64>,
    /// Further state of each guest.
    guests: Vec<Budget>,
    /// Filling of each guest's bucket.
    each: Filling,
    /// Filling of the part that is a guest's own.
    own: Filling,
    /// Filling of the bucket of all guests, whose tokens are `tokens`.
    all: Filling,
    tokens: i64,
    filled_at: Nanos,
    /// The burst of a flow; a budget's burst is at least twice as large.
    flow: Bytes,
    /// Packets that exceeded a budget.
    pub(super) refused: u64,
}

/// Rate and depth of a bucket.
#[derive(Debug, Clone, Copy)]
struct Filling {
    /// `None`: unlimited.
    rate: Option<Rate>,
    /// A full bucket.
    full: i64,
}

impl Filling {
    /// A bucket holds at least `flow`, the longest packet.
    fn new(rate: Option<Rate>, flow: Bytes) -> Self {
        let Some(rate) = rate else {
            return Self {
                rate: None,
                full: i64::MAX / 4,
            };
        };
        let half = Bytes(rate.bytes_in(BURST_TIME).0 / 2).max(flow);
        Self {
            rate: Some(rate),
            full: half.0.min(super::MAX_BURST).cast_signed() * BYTE,
        }
    }

    /// Tokens that are added in this time, up to a full bucket.
    fn gain(&self, time: Nanos) -> i64 {
        let Some(rate) = self.rate else {
            return self.full;
        };
        let gain = u128::from(time.0) * u128::from(rate.0);
        i64::try_from(gain).unwrap_or(i64::MAX).min(self.full)
    }
}

/// Earnings of a guest.
#[derive(Debug, Clone, Copy)]
struct Budget {
    /// Tokens that the guest has earned and not received by `filled_at`.
    earned: i64,
    /// The part of the earnings that is its own.
    own: i64,
    filled_at: Nanos,
}

impl Budgets {
    pub(super) fn new(config: &MeterConfig, flow: u64) -> Self {
        let flow = Bytes(flow);
        let share = config.share(1);
        let all = Filling::new(share.all, flow);
        Self {
            given: Vec::new(),
            guests: Vec::new(),
            each: Filling::new(share.guest, flow),
            own: Filling::new(share.own.or(share.guest), flow),
            all,
            tokens: all.full,
            filled_at: Nanos::ZERO,
            flow,
            refused: 0,
        }
    }

    /// Changes the rates from now on.
    pub(super) fn set_share(&mut self, share: Share) {
        self.each = Filling::new(share.guest, self.flow);
        self.own = Filling::new(share.own.or(share.guest), self.flow);
        self.all = Filling::new(share.all, self.flow);
        self.tokens = self.tokens.min(self.all.full);
        for (tokens, guest) in self.given.iter_mut().zip(&mut self.guests) {
            *tokens = (*tokens).min(self.each.full);
            guest.earned = guest.earned.min(self.each.full);
            guest.own = guest.own.min(self.own.full);
        }
    }

    /// Charges a packet to its guest's bucket; false if the bucket has too few tokens.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "one caller, once for every packet")]
    pub(super) fn take(&mut self, now: Nanos, guest: GuestId, cost: i64) -> bool {
        if let Some(tokens) = self.given.get_mut(guest.slot())
            && *tokens >= cost
        {
            *tokens -= cost;
            return true;
        }
        self.fill_and_take(now, guest, cost)
    }

    /// Fills the bucket and charges a packet, for a flow that is rarely small or a guest with too
    /// few tokens.
    #[cold]
    #[inline(never)]
    pub(super) fn fill_and_take(&mut self, now: Nanos, guest: GuestId, cost: i64) -> bool {
        let gain = self.all.gain(now.since(self.filled_at));
        self.filled_at = self.filled_at.max(now);
        self.tokens = self.all.full.min(self.tokens.saturating_add(gain));
        let index = guest.slot();
        while self.guests.len() <= index {
            self.given.push(0);
            self.guests.push(Budget {
                earned: self.each.full,
                own: self.own.full,
                filled_at: now,
            });
        }
        let (tokens, budget) = (&mut self.given[index], &mut self.guests[index]);
        let time = now.since(budget.filled_at);
        budget.filled_at = budget.filled_at.max(now);
        budget.earned = self.each.full.min(budget.earned + self.each.gain(time));
        budget.own = self.own.full.min(budget.own + self.own.gain(time));
        let room = self.each.full - *tokens;
        // Its own part, for which the joint bucket may go into debt, or the rest of the joint
        // bucket.
        let others_leave = self.tokens - self.all.full / 2;
        let given = budget.earned.min(budget.own.max(others_leave)).min(room);
        budget.earned -= given;
        budget.own = (budget.own - given).max(0);
        *tokens += given;
        self.tokens -= given;
        let fits = *tokens >= cost;
        if fits {
            *tokens -= cost;
        } else {
            self.refused += 1;
        }
        fits
    }
}

#[cfg(test)]
mod tests;

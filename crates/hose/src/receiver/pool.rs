//! The part of a machine's inward burst `S_in` that its host lends to senders.
//!
//! Each sender may always send `part` beyond its rate; the pool is the rest of `S_in`. A sender
//! whose frames wait requests bytes of the pool, and its grant has them: the sender's bucket is
//! deeper by that, and holds as many tokens more. A loan ends in one of two ways:
//!
//! - The sender's bucket was full, so the tokens of the loan were taken out of it. The pool has
//!   them again.
//! - Otherwise (the lease ended, the sender's host restarted, or keeps to a lower grant) the tokens
//!   may have been spent. The pool *owes* them, and pays with bandwidth that no sender may use.
//!
//! Let T be the tokens of all senders' buckets, and P the bytes of the pool that are neither lent nor
//! owed. A frame lowers T by its length, and rates raise it. A loan moves bytes from P to T, the first
//! end moves at most as many back, and payments raise P. Rates and payments sum up to at most B. So
//! the senders pass at most T + P at the start, and B·t, in any time t, and T + P is at most `S_in`.

use super::{Budget, ReceivingSide, Requester};
use crate::config::Times;
use crate::context::Context;
use crate::machines::LocalIndex;
use crate::share::fill;
use std::mem;
use tailbound_units::{Bytes, Nanos, Rate};

/// Bytes that a pool owes, and their payment.
#[derive(Debug, Default)]
pub(super) struct Pool {
    owed: Bytes,
    /// Bandwidth that no sender may use since `looked`, and for a lease.
    spare: Rate,
    /// `None` before the first look: loans of the machine's former life, here or on another host, are
    /// unknown. After it, the end of their leases at first.
    looked: Option<Nanos>,
}

/// Reusable buffers of a division of a pool.
#[derive(Debug, Default)]
pub(super) struct Lending {
    order: Vec<usize>,
    missing: Vec<Bytes>,
    loans: Vec<Bytes>,
}

impl Pool {
    /// Returns whether it owes anything.
    pub(super) fn owes(&self) -> bool {
        self.owed > Bytes::ZERO
    }

    /// Adds bytes of a loan that has ended.
    pub(super) const fn owe(&mut self, bytes: Bytes) {
        self.owed = self.owed.saturating_add(bytes);
    }

    /// Pays with the spare bandwidth since the last look. `size` is the whole pool, all of which is
    /// owed at the first look: payments begin when all former leases have ended.
    pub(super) fn pay(&mut self, now: Nanos, times: Times, size: Bytes) {
        let spare = mem::replace(&mut self.spare, Rate::ZERO);
        let Some(looked) = self.looked else {
            self.owed = size;
            self.looked = Some(now + times.lease_counted());
            return;
        };
        let paid = spare.bytes_in(now.since(looked).min(times.lease()));
        self.owed = self.owed.saturating_sub(paid).min(size);
        self.looked = Some(looked.max(now));
    }
}

impl ReceivingSide {
    /// Divides the free part of a machine's pool among the senders that request it. Loans of others
    /// stay while these are in use. The rates were divided before.
    pub(super) fn lend(
        &mut self,
        cx: &mut Context<'_>,
        local: LocalIndex,
        budget: Budget,
        requesters: &[Requester],
    ) {
        let machine = &cx.view.locals[local];
        let (Some(most), true) = (machine.most_lent(), budget.is_settled) else {
            return;
        };
        let (size, share) = (machine.lendable(), machine.share());
        let held = self.held(cx.now, local, share);
        let sink = &mut self.sinks[local];
        sink.pool.spare = budget.free.saturating_sub(held);
        let lent = sink.grants.iter().map(|grant| self.grants[*grant].lent());
        let lent = lent.fold(Bytes::ZERO, Bytes::saturating_add);
        let free = size.saturating_sub(sink.pool.owed).saturating_sub(lent);
        let Lending {
            mut order,
            mut missing,
            mut loans,
        } = mem::take(&mut self.lending);
        missing.clear();
        missing.extend(requesters.iter().map(|requester| {
            let grant = &self.grants[requester.grant];
            if grant.is_lent_less() {
                return Bytes::ZERO;
            }
            grant.wanted.min(most).saturating_sub(grant.lent())
        }));
        fill(free, &missing, &mut order, &mut loans);
        for (requester, more) in requesters.iter().zip(&loans) {
            let grant = &self.grants[requester.grant];
            let next = if grant.wanted == Bytes::ZERO {
                Bytes::ZERO
            } else if grant.is_lent_less() {
                grant.last_lent()
            } else {
                grant.lent().saturating_add(*more)
            };
            self.set_lent(cx, requester.grant, next);
        }
        self.lending = Lending {
            order,
            missing,
            loans,
        };
    }
}

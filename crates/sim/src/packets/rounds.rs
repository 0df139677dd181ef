//! Traffic of tenants in rounds: all machines of a tenant send at the same instant, repeatedly.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use tailbound_units::Nanos;

/// A tenant that sends.
#[derive(Debug, Clone)]
pub(super) struct Sends {
    /// The connections, by the sending end.
    pub(super) ends: Vec<u32>,
    /// Length of a message, in bytes.
    pub(super) size: u64,
    /// Shortest interval between rounds.
    pub(super) every: Nanos,
    /// Time of the next round.
    pub(super) due: Nanos,
    /// Number of messages that were not received yet.
    pub(super) flying: usize,
}

/// All tenants' rounds.
#[derive(Debug)]
pub(super) struct Rounds {
    tenants: Vec<Sends>,
    /// End of the time in which rounds begin.
    until: Nanos,
    next: BinaryHeap<Reverse<(Nanos, u32)>>,
}

impl Rounds {
    pub(super) fn new(tenants: Vec<Sends>, until: Nanos) -> Self {
        let each = (0..).zip(&tenants);
        let next = each.map(|(number, tenant)| Reverse((tenant.due, number)));
        Self {
            next: next.collect(),
            tenants,
            until,
        }
    }

    pub(super) fn next_at(&self) -> Nanos {
        let next = self.next.peek().map_or(Nanos::MAX, |first| first.0.0);
        if next < self.until { next } else { Nanos::MAX }
    }

    /// Begins the round that is due: `begin` receives the sending end and the length of each
    /// message.
    pub(super) fn begin(&mut self, mut begin: impl FnMut(u32, u64)) {
        let Some(Reverse((_, number))) = self.next.pop() else {
            return;
        };
        let tenant = &mut self.tenants[number as usize];
        tenant.due = tenant.due.saturating_add(tenant.every);
        tenant.flying = tenant.ends.len();
        for end in &tenant.ends {
            begin(*end, tenant.size);
        }
    }

    /// Handles the completion of a message; after the last one, the next round is scheduled, or
    /// late.
    pub(super) fn end(&mut self, now: Nanos, owner: u32) {
        let tenant = &mut self.tenants[owner as usize];
        tenant.flying -= 1;
        if tenant.flying == 0 {
            tenant.due = tenant.due.max(now);
            self.next.push(Reverse((tenant.due, owner)));
        }
    }
}

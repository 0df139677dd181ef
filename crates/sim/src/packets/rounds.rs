//! What tenants send: all machines of one at a moment, again and again.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use tailbound_units::Nanos;

/// A tenant that sends.
#[derive(Debug, Clone)]
pub(super) struct Sends {
    /// The connections, by the end that sends.
    pub(super) ends: Vec<u32>,
    /// Bytes of a message.
    pub(super) size: u64,
    /// How far rounds are apart at least.
    pub(super) every: Nanos,
    /// When the next is due,
    pub(super) due: Nanos,
    /// and how many messages have not come yet.
    pub(super) flying: usize,
}

/// All tenants' rounds.
#[derive(Debug)]
pub(super) struct Rounds {
    tenants: Vec<Sends>,
    /// When no round begins any more.
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

    /// The round that is due begins: `begin` gets the end that sends, and the bytes, of each
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

    /// A message has come; when all have, the next round is due, or late.
    pub(super) fn end(&mut self, now: Nanos, owner: u32) {
        let tenant = &mut self.tenants[owner as usize];
        tenant.flying -= 1;
        if tenant.flying == 0 {
            tenant.due = tenant.due.max(now);
            self.next.push(Reverse((tenant.due, owner)));
        }
    }
}

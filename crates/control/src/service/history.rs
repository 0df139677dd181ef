//! The recent changes of tenants, hosts and their states, from which streams continue.
//!
//! Each replica notes the changes that it applies, so the history of a replica begins when it reads
//! the store. A stream reads everything after a revision, and sends the present state of what
//! changed: a reader misses intermediate states, but never the last one.

use crate::ledger::{Change, Ledger, hosts_that_differ, tenants_that_differ};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tailbound_api::Event;
use tailbound_placement::TenantId;

/// The number of changes that are kept.
const MAX_CHANGES: usize = 32_768;
/// Limit on the changes that are returned in one piece, which ends with a whole revision.
const PIECE: usize = 256;

/// A change.
#[derive(Debug, Clone)]
pub enum Item {
    /// The state of a tenant's guarantee.
    State(Arc<Event>),
    /// A tenant of this owner.
    Tenant(TenantId, String),
    /// The state or the report of a host.
    Host(String),
    /// All hosts may be others.
    Topology,
}

/// The changes after a revision.
#[derive(Debug)]
pub struct Piece {
    /// The changes in their order, with their revisions.
    pub items: Vec<(u64, Item)>,
    /// The revision up to which these are all changes.
    pub upto: u64,
    /// True if there are more.
    pub has_more: bool,
}

/// Reason why a stream cannot continue from a revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gap {
    /// The oldest revision from which a stream can continue is a later one.
    Past(u64),
    /// This is the present revision, and the other one was not issued.
    Future(u64),
}

/// The history of one replica.
#[derive(Debug)]
pub(super) struct History(Mutex<State>);

#[derive(Debug)]
struct State {
    /// All changes after this revision are kept.
    from: u64,
    last: u64,
    items: VecDeque<(u64, Item)>,
}

impl History {
    /// Makes the empty history of a ledger at a revision.
    pub(super) const fn new(revision: u64) -> Self {
        Self(Mutex::new(State {
            from: revision,
            last: revision,
            items: VecDeque::new(),
        }))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the changes of a revision.
    pub(super) fn note(&self, revision: u64, items: Vec<Item>) {
        let mut state = self.lock();
        if revision < state.last {
            // The store was replaced by an older one.
            state.items.clear();
            state.from = revision;
        }
        state.last = revision;
        state
            .items
            .extend(items.into_iter().map(|item| (revision, item)));
        while state.items.len() > MAX_CHANGES {
            if let Some((revision, _)) = state.items.pop_front() {
                state.from = revision;
            }
        }
    }

    /// Returns the changes after a revision of which a stream sends lines.
    ///
    /// # Errors
    /// The history does not have them all.
    pub(super) fn after(
        &self,
        since: u64,
        is_wanted: impl Fn(&Item) -> bool,
    ) -> Result<Piece, Gap> {
        let state = self.lock();
        if since < state.from {
            return Err(Gap::Past(state.from));
        }
        if since > state.last {
            return Err(Gap::Future(state.last));
        }
        let begin = state
            .items
            .partition_point(|(revision, _)| *revision <= since);
        let wanted = state.items.range(begin..);
        let mut items: Vec<(u64, Item)> = Vec::new();
        for (revision, item) in wanted.filter(|(_, item)| is_wanted(item)) {
            let whole = items.last().filter(|(last, _)| last != revision);
            if let Some((upto, _)) = whole
                && items.len() >= PIECE
            {
                let upto = *upto;
                return Ok(Piece {
                    items,
                    upto,
                    has_more: true,
                });
            }
            items.push((*revision, item.clone()));
        }
        Ok(Piece {
            items,
            upto: state.last,
            has_more: false,
        })
    }
}

/// Returns the tenants and hosts that changes concern, before they are applied.
pub(super) fn concerned(ledger: &Ledger, changes: &[Change]) -> Vec<Item> {
    let mut items = Vec::new();
    for change in changes {
        match change {
            Change::Tenant(tenant) => items.push(Item::Tenant(tenant.id, tenant.owner.clone())),
            Change::Gone(id) => {
                let tenant = ledger.tenant(*id);
                items.extend(tenant.map(|tenant| Item::Tenant(*id, tenant.owner.clone())));
            }
            Change::Hosts(hosts) => {
                items.extend(hosts_that_differ(ledger, hosts).map(|it| Item::Host(it.clone())));
            }
            Change::Said(host, _) | Change::SaidGone(host) => items.push(Item::Host(host.clone())),
            Change::Topology(_) => items.push(Item::Topology),
            Change::Key(..)
            | Change::KeyGone(_)
            | Change::Token(_)
            | Change::TokenGone(_)
            | Change::NextId(_)
            | Change::Audit(..)
            | Change::AuditGone(_) => {}
        }
    }
    items
}

/// Returns the tenants and hosts that may differ between two ledgers.
pub(super) fn between(old: &Ledger, new: &Ledger) -> Vec<Item> {
    let tenants = tenants_that_differ(old, new).into_iter();
    let tenants = tenants.map(|tenant| Item::Tenant(tenant.id, tenant.owner.clone()));
    tenants.chain([Item::Topology]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(number: usize) -> Item {
        Item::Host(number.to_string())
    }

    fn revisions(history: &History, since: u64) -> Result<(Vec<u64>, u64), Gap> {
        let piece = history.after(since, |_| true)?;
        Ok((piece.items.iter().map(|(it, _)| *it).collect(), piece.upto))
    }

    #[test]
    fn a_stream_continues_from_a_revision_of_the_history_and_from_no_other() {
        let history = History::new(5);
        assert_eq!(revisions(&history, 5), Ok((vec![], 5)));
        history.note(6, vec![host(1), host(2)]);
        history.note(8, vec![host(3)]);
        assert_eq!(revisions(&history, 5), Ok((vec![6, 6, 8], 8)));
        assert_eq!(revisions(&history, 6), Ok((vec![8], 8)));
        assert_eq!(revisions(&history, 4), Err(Gap::Past(5)));
        assert_eq!(revisions(&history, 9), Err(Gap::Future(8)));
        // A revision is never torn, and a piece ends with a whole one.
        for revision in 9..9 + PIECE as u64 {
            history.note(revision, vec![host(1), host(2)]);
        }
        let piece = history.after(8, |_| true).unwrap();
        assert!(piece.has_more && piece.items.len() == PIECE);
        assert_eq!(piece.upto, 8 + PIECE as u64 / 2);
        for revision in 1_000..1_000 + MAX_CHANGES as u64 {
            history.note(revision, vec![host(1)]);
        }
        assert!(matches!(revisions(&history, 8), Err(Gap::Past(_))));
        // An older store has another history.
        history.note(7, vec![]);
        assert_eq!(revisions(&history, 6), Err(Gap::Past(7)));
        assert_eq!(revisions(&history, 7), Ok((vec![], 7)));
    }
}

//! A second ledger, which answers the long queries.
//!
//! A commit waits until all readers of the ledger have ended, and a waiting commit delays each new
//! reader. So a query of milliseconds reads a copy. Commits are noted for it, and the next long
//! question applies them first. Only long questions wait for each other.

use crate::ledger::{Change, Ledger};
use std::sync::{Mutex, PoisonError, RwLock};

/// More changes than this are not noted: the next question copies the whole ledger.
const MOST_CHANGES: usize = 100_000;

/// The copy, which is made for the first long question.
#[derive(Debug, Default)]
pub(super) struct Questions {
    copy: RwLock<Option<Ledger>>,
    missing: Mutex<Missing>,
}

/// Commits that the copy lacks.
#[derive(Debug, Default)]
enum Missing {
    /// There is no copy, or it has to be made anew.
    #[default]
    All,
    Commits {
        commits: Vec<(Vec<Change>, u64)>,
        changes: usize,
    },
}

impl Missing {
    const NOTHING: Self = Self::Commits {
        commits: Vec::new(),
        changes: 0,
    };
}

impl Questions {
    /// Notes a commit. The caller has the original locked for writing.
    pub(super) fn note(&self, more: &[Change], revision: u64) {
        self.with_missing(|missing| {
            let Missing::Commits { commits, changes } = missing else {
                return;
            };
            *changes += more.len();
            if *changes <= MOST_CHANGES {
                commits.push((more.to_vec(), revision));
            } else {
                *missing = Missing::All;
            }
        });
    }

    /// Notes that the original was replaced. The caller has it locked for writing.
    pub(super) fn forget(&self) {
        self.with_missing(|missing| *missing = Missing::All);
    }

    /// Calls `ask` with a ledger that has everything that was durable before this call.
    pub(super) fn ask<T>(&self, original: &RwLock<Ledger>, ask: impl FnOnce(&Ledger) -> T) -> T {
        self.catch_up(original);
        let copy = self.copy.read().unwrap_or_else(PoisonError::into_inner);
        let copy = copy.as_ref();
        ask(copy.expect("catch_up has made it, and no code removes it"))
    }

    fn catch_up(&self, original: &RwLock<Ledger>) {
        let is_current = |missing: &mut Missing| match missing {
            Missing::All => false,
            Missing::Commits { commits, .. } => commits.is_empty(),
        };
        if self.with_missing(is_current) {
            return;
        }
        let mut copy = self.copy.write().unwrap_or_else(PoisonError::into_inner);
        let missing = self.with_missing(|missing| std::mem::replace(missing, Missing::NOTHING));
        let is_done = match (missing, copy.as_mut()) {
            (Missing::Commits { commits, .. }, Some(ledger)) => commits
                .iter()
                .all(|(changes, revision)| apply(ledger, changes, *revision)),
            _ => false,
        };
        if !is_done {
            let original = original.read().unwrap_or_else(PoisonError::into_inner);
            // No commit is noted while the original is read.
            self.with_missing(|missing| *missing = Missing::NOTHING);
            *copy = Some(original.clone());
        }
    }

    fn with_missing<T>(&self, then: impl FnOnce(&mut Missing) -> T) -> T {
        then(&mut self.missing.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Applies a commit to the copy. Returns false if it does not fit, as after a new topology.
fn apply(ledger: &mut Ledger, changes: &[Change], revision: u64) -> bool {
    if ledger.apply(changes).is_err() {
        return false;
    }
    ledger.set_revision(revision);
    // The original's were sent.
    drop(ledger.take_moves());
    true
}

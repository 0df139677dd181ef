//! A decision in the making: its changes, and how to undo them.

use super::change::Change;
use super::{Ledger, LedgerError};
use tailbound_placement::Placement;

/// The changes that undo a decision, in the order in which the decision made theirs.
#[derive(Debug, Default)]
pub struct Undo(pub(super) Vec<Change>);

/// Placement of a tenant before and after a change.
pub(super) struct Replacement {
    pub(super) old: Placement,
    pub(super) new: Placement,
}

/// A decision in the making.
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub(super) changes: Vec<Change>,
    pub(super) undo: Undo,
}

impl Draft {
    /// Undoes everything in a ledger, and forgets it.
    fn revert(&mut self, ledger: &mut Ledger) {
        let Self { undo, .. } = std::mem::take(self);
        let undone = ledger.undo(undo);
        undone.expect("the changes are the last ones of this ledger");
    }

    pub(super) fn keep(&mut self, before: Change, change: Change) {
        self.undo.0.push(before);
        self.changes.push(change);
    }
}

/// Makes several changes, or none if one of them is refused. The draft has no others.
pub(super) fn whole<T>(
    ledger: &mut Ledger,
    draft: &mut Draft,
    make: impl FnOnce(&mut Ledger, &mut Draft) -> Result<T, LedgerError>,
) -> Result<T, LedgerError> {
    let outcome = make(ledger, draft);
    if outcome.is_err() {
        draft.revert(ledger);
        ledger.forget_moves();
    }
    outcome
}

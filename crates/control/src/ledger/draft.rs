//! A decision in the making: its changes, and how to undo them.

use super::Ledger;
use super::change::Change;
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
    pub(super) fn revert(&mut self, ledger: &mut Ledger) {
        let Self { undo, .. } = std::mem::take(self);
        let undone = ledger.undo(undo);
        undone.expect("the changes are the last ones of this ledger");
    }

    pub(super) fn keep(&mut self, before: Change, change: Change) {
        self.undo.0.push(before);
        self.changes.push(change);
    }
}

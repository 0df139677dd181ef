//! Audits the chain of the entries about changes.

use super::Finding;
use crate::ledger::{Snapshot, trail};

/// Checks the chain, and returns the number of entries.
pub(super) fn look(snapshot: &Snapshot, findings: &mut Vec<Finding>) -> usize {
    if let Err((number, problem)) = trail::verify(&snapshot.audit) {
        findings.push(Finding::new(
            format!("entry {number} of the audit"),
            problem,
        ));
    }
    let blocks = snapshot.audit.values();
    blocks.map(|block| block.entries.len()).sum()
}

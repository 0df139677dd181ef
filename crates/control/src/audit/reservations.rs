//! Audits the reservations of tenants.

use super::Finding;
use crate::ledger::Snapshot;
use std::collections::HashSet;

/// Checks that each reserved machine is a machine of its tenant, and of one reservation only.
/// Returns the number of open reservations.
pub(super) fn look(snapshot: &Snapshot, findings: &mut Vec<Finding>) -> usize {
    let mut ids = HashSet::new();
    let mut open = 0;
    for tenant in snapshot.tenants.values() {
        let mut numbers = HashSet::new();
        for record in &tenant.reservations {
            open += usize::from(!record.is_confirmed);
            let mut wrong = |what: String| {
                let subject = format!("reservation {} of tenant {}", record.id, tenant.id.0);
                findings.push(Finding::new(subject, what));
            };
            if !ids.insert(record.id) {
                wrong("another reservation has the same number".to_owned());
            }
            if record.id.0 >= snapshot.next_id {
                wrong(format!("the next number is {}", snapshot.next_id));
            }
            if record.machines.is_empty() {
                wrong("it has no machine".to_owned());
            }
            for machine in &record.machines {
                let number = machine.number;
                let mut runs = tenant.runs.iter();
                if !runs.any(|run| (run.first..run.first + run.count).contains(&number)) {
                    wrong(format!("the tenant has no machine {number}"));
                }
                if !numbers.insert(number) {
                    wrong(format!("the machine {number} is reserved twice"));
                }
            }
        }
    }
    open
}

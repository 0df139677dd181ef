//! Audits the reservations of tenants.

use super::Finding;
use crate::ledger::Snapshot;
use std::collections::{BTreeMap, HashSet};

/// Checks that each reserved machine is a machine of its tenant, and of one reservation only. A
/// name of an owner has at most one confirmed machine, and one that is only reserved.
/// Returns the number of open reservations.
pub(super) fn look(snapshot: &Snapshot, findings: &mut Vec<Finding>) -> usize {
    let mut ids = HashSet::new();
    let mut open = 0;
    let mut names: BTreeMap<(&str, &str), [usize; 2]> = BTreeMap::new();
    for tenant in snapshot.tenants.values() {
        let mut numbers = HashSet::new();
        for record in &tenant.reservations {
            open += usize::from(!record.is_confirmed);
            let mut wrong = |problem: String| {
                let subject = format!("reservation {} of tenant {}", record.id, tenant.id.0);
                findings.push(Finding::new(subject, problem));
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
                if let Some(name) = &machine.name {
                    let counts = names.entry((&tenant.owner, name)).or_default();
                    counts[usize::from(record.is_confirmed)] += 1;
                }
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
    for ((owner, name), [reserved, confirmed]) in names {
        if reserved > 1 || confirmed > 1 {
            let subject = format!("machine {name:?} of {owner}");
            let problem =
                format!("it is confirmed {confirmed} times and reserved {reserved} times");
            findings.push(Finding::new(subject, problem));
        }
    }
    open
}

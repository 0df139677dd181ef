//! Comparison of the clients' answers with the content of the store.

use rand::RngExt as _;
use rand_pcg::Pcg64;
use std::collections::BTreeMap;
use std::ops::AddAssign;
use tailbound_api::{AuditOutcome, Tenant};
use tailbound_control::audit::audit;
use tailbound_control::ledger::Snapshot;

/// The answers that clients received about their tenants.
#[derive(Debug, Default)]
pub(crate) struct TenantAnswers {
    /// The last answer about each, by number.
    tenants: BTreeMap<u64, Tenant>,
    /// Answers that cannot be right.
    amiss: Vec<String>,
    /// The ids of the requests whose changes were acknowledged.
    done: Vec<String>,
}

impl TenantAnswers {
    pub(crate) fn len(&self) -> usize {
        self.tenants.len()
    }

    /// One of the tenants.
    pub(crate) fn any(&self, random: &mut Pcg64) -> Option<u64> {
        let len = self.len();
        (len > 0)
            .then(|| random.random_range(0..len))
            .and_then(|nth| self.tenants.keys().nth(nth))
            .copied()
    }

    /// A tenant is there, and so.
    pub(crate) fn has(&mut self, tenant: &Tenant) {
        self.tenants.insert(tenant.id.0, tenant.clone());
    }

    /// A tenant is gone.
    pub(crate) fn has_not(&mut self, id: u64) {
        self.tenants.remove(&id);
    }

    /// A change was acknowledged.
    pub(crate) fn done(&mut self, request: String) {
        self.done.push(request);
    }

    /// An answer cannot be right.
    pub(crate) fn amiss(&mut self, answer: String) {
        self.amiss.push(answer);
    }

    /// Adds the answers of another client about its own tenants.
    pub(crate) fn add(&mut self, other: Self) {
        self.amiss.extend(other.amiss);
        self.done.extend(other.done);
        for (id, tenant) in other.tenants {
            if let Some(one) = self.tenants.insert(id, tenant) {
                self.amiss(format!("two clients have the tenant {id}: {one:?}"));
            }
        }
    }
}

/// Differences between the answers and the store, by kind.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// Acknowledged, but not in the store, or otherwise there.
    pub(crate) lost: usize,
    /// Tenants that are twice in the store, or in an answer that contradicts an earlier one.
    pub(crate) doubled: usize,
    /// In the store, but refused, deleted or never acknowledged.
    pub(crate) unasked: usize,
    /// Ports and hosts that are promised beyond their capacity, according to the audit.
    pub(crate) overfull: usize,
    pub(crate) messages: Vec<String>,
}

impl Findings {
    pub(crate) fn are_none(&self) -> bool {
        self.lost + self.doubled + self.unasked + self.overfull == 0
    }
}

impl Findings {
    /// Checks that each acknowledged change is in the store's audit once, and that no other is.
    fn compare_entries(&mut self, snapshot: &Snapshot, told: &TenantAnswers) {
        let mut entries: BTreeMap<&str, usize> = BTreeMap::new();
        for entry in snapshot.audit.values().flat_map(|block| &block.entries) {
            if entry.outcome == AuditOutcome::Done {
                *entries.entry(&entry.caller.request).or_default() += 1;
            }
        }
        for request in &told.done {
            let count = entries.remove(request.as_str()).unwrap_or_default();
            if count != 1 {
                let (lost, more) = (usize::from(count == 0), count.saturating_sub(1));
                self.lost += lost;
                self.doubled += more;
                self.messages
                    .push(format!("{request} has {count} entries in the audit"));
            }
        }
        self.unasked += entries.len();
        let unasked = entries.into_keys().map(|it| format!("unasked entry {it}"));
        self.messages.extend(unasked);
    }
}

impl AddAssign for Findings {
    fn add_assign(&mut self, other: Self) {
        self.lost += other.lost;
        self.doubled += other.doubled;
        self.unasked += other.unasked;
        self.overfull += other.overfull;
        self.messages.extend(other.messages);
    }
}

/// Compares, and audits.
pub(crate) fn check(snapshot: &Snapshot, told: &TenantAnswers) -> Findings {
    let mut findings = Findings {
        doubled: told.amiss.len(),
        messages: told.amiss.clone(),
        ..Findings::default()
    };
    for (id, tenant) in &told.tenants {
        let kept = snapshot.tenants.values().find(|kept| kept.id.0 == *id);
        if kept.is_none_or(|kept| **kept != *tenant) {
            findings.lost += 1;
            findings
                .messages
                .push(format!("lost {tenant:?}, there is {kept:?}"));
        }
    }
    let mut names = BTreeMap::new();
    for tenant in snapshot.tenants.values() {
        if !told.tenants.contains_key(&tenant.id.0) {
            findings.unasked += 1;
            findings.messages.push(format!("unasked {tenant:?}"));
        }
        if let Some(one) = names.insert((&tenant.owner, &tenant.name), tenant.id) {
            findings.doubled += 1;
            findings
                .messages
                .push(format!("doubled {tenant:?}, {one:?}"));
        }
    }
    findings.compare_entries(snapshot, told);
    let report = audit(snapshot);
    findings.overfull = report.findings.len();
    let found = report.findings.iter().map(ToString::to_string);
    findings.messages.extend(found);
    findings
}

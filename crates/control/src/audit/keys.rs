//! Audits the replies of idempotency keys against the tenants.

use super::Finding;
use crate::ledger::{Reply, Snapshot};
use std::collections::HashMap;

/// Checks that a tenant in a reply is the one in the store, and that each tenant was created by one
/// request.
///
/// A tenant may have been changed or deleted since the reply, but its number never becomes another
/// one's.
pub(super) fn look(snapshot: &Snapshot, findings: &mut Vec<Finding>) {
    let mut named = HashMap::new();
    for (key, record) in &snapshot.keys {
        let subject = || format!("key {:?}", key.key);
        let Reply::Tenant(answered) = &record.reply else {
            continue;
        };
        let full_name = format!("{}/{}", answered.owner, answered.name);
        if answered.id.0 >= snapshot.next_id {
            let problem = format!(
                "a request was answered with tenant {}, but the next number is {}",
                answered.id.0, snapshot.next_id
            );
            findings.push(Finding::new(subject(), problem));
        }
        if let Some(owner) = &key.owner
            && *owner != answered.owner
        {
            let problem = format!("{owner} was answered {full_name}");
            findings.push(Finding::new(subject(), problem));
        }
        let is = snapshot.tenants.get(&answered.id);
        if let Some(is) = is.filter(|is| (&is.owner, &is.name) != (&answered.owner, &answered.name))
        {
            let problem = format!(
                "the tenant {} was answered as {full_name} and is {}/{}",
                answered.id.0, is.owner, is.name
            );
            findings.push(Finding::new(subject(), problem));
        }
        let first = named
            .entry(answered.id)
            .or_insert_with(|| full_name.clone());
        if *first != full_name {
            let problem = format!(
                "the tenant {} was answered as {full_name} and as {first}",
                answered.id.0
            );
            findings.push(Finding::new(subject(), problem));
        }
    }
}

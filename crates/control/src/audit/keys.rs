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
        let said = format!("{}/{}", answered.owner, answered.name);
        if answered.id.0 >= snapshot.next_id {
            let what = format!(
                "a request was answered with tenant {}, but the next number is {}",
                answered.id.0, snapshot.next_id
            );
            findings.push(Finding::new(subject(), what));
        }
        if let Some(owner) = &key.owner
            && *owner != answered.owner
        {
            let what = format!("{owner} was answered {said}");
            findings.push(Finding::new(subject(), what));
        }
        let is = snapshot.tenants.get(&answered.id);
        if let Some(is) = is.filter(|is| (&is.owner, &is.name) != (&answered.owner, &answered.name))
        {
            let what = format!(
                "the tenant {} was answered as {said} and is {}/{}",
                answered.id.0, is.owner, is.name
            );
            findings.push(Finding::new(subject(), what));
        }
        let first = named.entry(answered.id).or_insert_with(|| said.clone());
        if *first != said {
            let what = format!(
                "the tenant {} was answered as {said} and as {first}",
                answered.id.0
            );
            findings.push(Finding::new(subject(), what));
        }
    }
}

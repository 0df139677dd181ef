//! Compares the topology with a new one: the differences, and the tenants whose promises would
//! break.

use super::change::{Hosts, Snapshot};
use super::error::LoadError;
use super::trail::Trail;
use super::{CommitLog, Ledger, LedgerError};
use std::sync::Arc;
use tailbound_api::{Broken, NodeChange, TopologyDiff};
use tailbound_placement::{Datacentre, DelayClassSpec, Spec, diff};

/// Returns what a new topology would change, and whose promises it would break.
///
/// The comparison builds the new data centre and places all tenants in it, which takes a second
/// with many tenants. The function has a snapshot as its argument, so that the ledger is not
/// locked. A snapshot shares its large parts.
///
/// # Errors
/// The description is not a data centre.
pub fn compare(now: &Snapshot, spec: &Spec) -> Result<TopologyDiff, LedgerError> {
    plan(now, spec).map(|(diff, _)| diff)
}

/// Returns the same and the ledger with the new topology, which must not be used if promises
/// break.
pub(super) fn plan(now: &Snapshot, spec: &Spec) -> Result<(TopologyDiff, Ledger), LedgerError> {
    let Some(topology) = &now.topology else {
        return Err(LedgerError::NotFound("topology".to_owned()));
    };
    let datacentre = Datacentre::new(spec.build()?, topology.policy);
    let (old, new) = (topology.spec.build()?, datacentre.topology());
    let diff = diff(&old, new);
    let [classes_before, classes_after] = [&old, new].map(|tree| tree.delay_classes().to_vec());
    let mut changed: Vec<NodeChange> = Vec::new();
    changed.extend(diff.everywhere.iter().map(|difference| NodeChange {
        name: new.name(tailbound_placement::NodeId::TOP).to_owned(),
        what: difference.to_string(),
    }));
    changed.extend(diff.changed.iter().map(|node| NodeChange {
        name: node.name.clone(),
        what: node.to_string(),
    }));
    let is_host = |name: &String| new.find(name).is_some_and(|node| new.is_host(node));
    let hosts: Hosts = now
        .hosts
        .iter()
        .filter(|(name, _)| is_host(name))
        .map(|(name, state)| (name.clone(), *state))
        .collect();
    let mut ledger = Ledger::empty(Arc::clone(topology), datacentre);
    ledger.log = CommitLog {
        revision: now.revision,
        audit: Trail::of(now.audit.clone()),
    };
    ledger.next_id = now.next_id;
    for (key, record) in &now.keys {
        ledger
            .callers
            .keys
            .put(Arc::new(key.clone()), Arc::clone(record));
    }
    for token in now.tokens.values() {
        ledger.callers.tokens.put(Arc::clone(token));
    }
    let hosts = ledger.set_hosts(Arc::new(hosts));
    debug_assert_eq!(hosts, Ok(()), "only hosts of the new topology");
    for (name, last_report) in &now.said {
        ledger.put_report(name, Some(Arc::clone(last_report)));
    }
    let broken = put_tenants(&mut ledger, now, [&classes_before, &classes_after]);
    let diff = TopologyDiff {
        revision: topology.revision,
        added: diff.added,
        removed: diff.removed,
        changed,
        broken,
    };
    Ok((diff, ledger))
}

/// Puts the tenants into a ledger with a new topology, and returns those whose promises break.
/// `classes` are the delay classes before and after.
fn put_tenants(
    ledger: &mut Ledger,
    now: &Snapshot,
    classes: [&[DelayClassSpec]; 2],
) -> Vec<Broken> {
    let [was, is] = classes;
    let mut broken = Vec::new();
    for tenant in now.tenants.values() {
        let class = tenant.request.class();
        let renumbered = class.and_then(|class| other_meaning(was, is, class));
        let kept = || match ledger.put_if_kept(Arc::clone(tenant)) {
            Ok(()) => None,
            Err(LoadError::Tenant { why, .. }) => Some(why),
            Err(other) => Some(other.to_string()),
        };
        if let Some(why) = renumbered.or_else(kept) {
            broken.push(Broken {
                tenant: tenant.id,
                owner: tenant.owner.clone(),
                name: tenant.name.clone(),
                why,
            });
        }
    }
    broken
}

/// Returns why a delay class, by its number, would be another one in a new topology; `None` if it is
/// the same class, with its queue or with its mark, or there is none with its number any more.
fn other_meaning(was: &[DelayClassSpec], now: &[DelayClassSpec], class: u8) -> Option<String> {
    let place = usize::from(class).checked_sub(1)?;
    let (before, after) = (was.get(place)?, now.get(place)?);
    let is_elsewhere = now.iter().any(|other| other.mark == before.mark);
    if after.mark == before.mark || (after.queue == before.queue && !is_elsewhere) {
        return None;
    }
    Some(format!(
        "delay class {class} has a queue of {} and the mark {}, and would have {} and {}; keep the \
         numbers of classes with tenants, and insert none above them",
        before.queue, before.mark, after.queue, after.mark
    ))
}

//! Hosts' names, which tenants and stored replies share with the topology.
//!
//! Up to 100,000 replies are stored for a day, and each names all hosts of its tenant. A separate
//! string for each name would fragment the heap.

use super::change::{Change, KeyRecord};
use super::command::Reply;
use std::sync::Arc;
use tailbound_api::Tenant;
use tailbound_placement::Topology;

/// Shares the topology's host names with a tenant that was just read and has no other owner.
pub(super) fn share(topology: &Topology, tenant: &mut Arc<Tenant>) {
    let runs = Arc::get_mut(tenant).map(|tenant| &mut tenant.runs);
    for run in runs.into_iter().flatten() {
        if let Some(host) = topology.find(&run.host) {
            run.host = Arc::clone(topology.shared_name(host));
        }
    }
}

/// Shares the host names with a reply that was just read.
pub(super) fn share_in_reply(topology: &Topology, record: &mut Arc<KeyRecord>) {
    match Arc::get_mut(record).map(|record| &mut record.reply) {
        Some(Reply::Tenant(tenant)) => share(topology, tenant),
        Some(Reply::Batch(tenants)) => {
            for tenant in tenants.iter_mut().flatten() {
                share(topology, tenant);
            }
        }
        _ => {}
    }
}

/// Shares the host names with another replica's changes.
pub(super) fn share_in_changes(topology: &Topology, changes: &mut [Change]) {
    for change in changes {
        match change {
            Change::Tenant(tenant) => share(topology, tenant),
            Change::Key(_, record) => share_in_reply(topology, record),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::ledger::testing::{create, ledger};
    use crate::ledger::{Call, Change, KeyRecord, Ledger, Reply};
    use serde::Serialize;
    use serde::de::DeserializeOwned;
    use std::sync::Arc;
    use tailbound_api::Tenant;
    use tailbound_units::Nanos;

    /// Returns whether all names of a tenant's hosts are the topology's own.
    fn is_shared(ledger: &Ledger, tenant: &Tenant) -> bool {
        let topology = ledger.datacentre().topology();
        let own = |name: &Arc<str>| {
            let host = topology.find(name);
            host.is_some_and(|host| Arc::ptr_eq(topology.shared_name(host), name))
        };
        !tenant.runs.is_empty() && tenant.runs.iter().all(|run| own(&run.host))
    }

    /// Returns a copy that shares nothing, like the result of a read from a store.
    fn read<T: Serialize + DeserializeOwned>(value: &T) -> T {
        serde_json::from_str(&serde_json::to_string(value).unwrap()).unwrap()
    }

    fn reply(record: &KeyRecord) -> &Tenant {
        match &record.reply {
            Reply::Tenant(tenant) => tenant,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn tenants_and_replies_have_no_names_of_their_own() {
        let (mut ledger, _) = ledger();
        let decided = ledger.decide(
            &Call {
                key: Some("1".into()),
                ..create("acme", "web", 10)
            },
            Nanos(1),
        );
        let mut changes = decided.unwrap().changes;
        let snapshot = ledger.snapshot();
        for tenant in snapshot.tenants.values() {
            assert!(is_shared(&ledger, tenant), "as it was decided");
        }

        // As it is read when a service starts.
        let mut loaded = snapshot.clone();
        loaded
            .tenants
            .values_mut()
            .for_each(|tenant| *tenant = read(tenant));
        loaded
            .keys
            .values_mut()
            .for_each(|record| *record = read(record));
        let loaded = Ledger::load(loaded).unwrap();
        let has = loaded.snapshot();
        assert!(
            has.tenants
                .values()
                .all(|tenant| is_shared(&loaded, tenant))
        );
        assert!(
            has.keys
                .values()
                .all(|record| is_shared(&loaded, reply(record)))
        );

        // As another replica says it.
        for change in &mut changes {
            match change {
                Change::Tenant(tenant) => *tenant = read(tenant),
                Change::Key(_, record) => *record = read(record),
                _ => {}
            }
        }
        ledger.share_names(&mut changes);
        let mut seen = 0;
        for change in &changes {
            match change {
                Change::Tenant(tenant) => assert!(is_shared(&ledger, tenant)),
                Change::Key(_, record) => assert!(is_shared(&ledger, reply(record))),
                _ => continue,
            }
            seen += 1;
        }
        assert_eq!(seen, 2);
    }
}

//! Changes, some of which are long.

use crate::replicas::spec;
use std::sync::Arc;
use tailbound_api::{HostState, TopologyDiff};
use tailbound_control::ledger::{Change, Hosts, KeyId, KeyRecord, Ledger, Reply, Snapshot};
use tailbound_placement::Policy;
use tailbound_units::Nanos;

pub(crate) fn begin() -> Vec<Change> {
    Ledger::new(spec(), Policy::Silo).unwrap().1
}

/// Returns a document of about `bytes` bytes that compresses badly.
pub(crate) fn hosts(bytes: usize) -> Change {
    let mut x = 88_172_645_463_325_252_u64;
    let hosts: Hosts = (0..bytes / 30)
        .map(|_| {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            (format!("{x:016x}"), HostState::Failed)
        })
        .collect();
    Change::Hosts(Arc::new(hosts))
}

pub(crate) fn applied(changes: &[Change]) -> Snapshot {
    let mut snapshot = Snapshot::default();
    snapshot.apply(changes);
    snapshot
}

/// Returns `count` kept answers that are together too long for a transaction, and their deletions.
pub(crate) fn long_answers(count: usize) -> (Vec<Change>, Vec<Change>) {
    let key = |number: usize| KeyId {
        owner: None,
        key: number.to_string(),
    };
    let diff = TopologyDiff {
        added: vec!["x".repeat(40_000)],
        ..TopologyDiff::default()
    };
    let record = Arc::new(KeyRecord {
        fingerprint: [0; 32],
        at: Nanos(1),
        reply: Reply::Topology(Arc::new(diff)),
    });
    let keep = |number| Change::Key(Arc::new(key(number)), Arc::clone(&record));
    let forget = |number| Change::KeyGone(key(number));
    (
        (0..count).map(keep).collect(),
        (0..count).map(forget).collect(),
    )
}

//! The bytes that a change of one machine writes.

use super::*;
use crate::store::etcd;
use crate::store::testing::{large, made};

/// The bytes of each change of one machine of a tenant with this number of machines: of the documents
/// in etcd, and of the log of `SQLite`, in whole pages. Without `sections` the store does not know the
/// tenant before.
fn bytes(machines: u32, sections: bool) -> Vec<(&'static str, usize, u64)> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let (mut ledger, changes) = large(machines);
    let mut store = Sqlite::open(&path).unwrap();
    store.commit(&changes).unwrap();
    let merge = "PRAGMA wal_checkpoint(TRUNCATE)";
    let mut bytes = Vec::new();
    let mut documents = etcd::CommitSizes::new(&changes);
    for (name, changes) in made(&mut ledger, machines) {
        if !sections {
            store.stored = StoredTenants::default();
            documents.forget();
        }
        store.connection.query_row(merge, [], |_| Ok(())).unwrap();
        ledger.set_revision(store.commit(&changes).unwrap());
        let log = std::fs::metadata(path.with_file_name("store-wal")).unwrap();
        bytes.push((name, documents.commit(&changes), log.len()));
    }
    let kept = ledger.snapshot();
    drop(store);
    assert_eq!(Sqlite::open_existing(&path).unwrap().load().unwrap(), kept);
    bytes
}

#[test]
fn a_change_of_one_machine_writes_few_machines_however_many_there_are() {
    for machines in [10, 100, 1_000] {
        for (name, documents, log) in bytes(machines, false) {
            eprintln!("{machines} machines, {name}: {documents} B before, log {log} B");
        }
        for (name, documents, log) in bytes(machines, true) {
            eprintln!("{machines} machines, {name}: {documents} B of documents, log {log} B");
            assert!(documents <= 6_000, "{machines}, {name}: {documents} B");
            assert!(log <= 10 * 4120, "{machines}, {name}: {log} B");
        }
    }
}

use super::rows::checksum;
use super::*;
use crate::ledger::Call;
use crate::ledger::testing::{create, ledger};
use rusqlite::params;
use std::process::Command as Program;
use std::sync::Arc;
use tailbound_sys::probe::required::{Part, skipped};
use tailbound_units::Nanos;

mod bytes;
mod damage;

/// A file with a topology and some tenants, and what it has.
fn file(path: &Path, tenants: u32) -> Snapshot {
    let (mut ledger, mut changes) = ledger();
    let mut store = Sqlite::open(path).unwrap();
    for number in 0..tenants {
        let call = Call {
            key: Some(format!("key-{number}")),
            ..create("acme", &format!("web-{number}"), 1)
        };
        let decision = ledger.decide(&call, Nanos(1)).unwrap();
        changes.extend(decision.changes);
    }
    ledger.set_revision(store.commit(&changes).unwrap());
    ledger.snapshot()
}

fn failure(result: Result<Sqlite, StoreError>) -> String {
    result.unwrap_err().to_string()
}

#[test]
fn committed_changes_survive_reopening_the_store() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let kept = file(&path, 5);
    assert_eq!(kept.tenants.len(), 5);
    let mut store = Sqlite::open_existing(&path).unwrap();
    assert_eq!(store.load().unwrap(), kept);
    let gone = Change::Gone(*kept.tenants.keys().next().unwrap());
    let key = Change::KeyGone(kept.keys.keys().next().unwrap().clone());
    let hosts = Change::Hosts(Arc::new(
        [("host-1".to_owned(), tailbound_api::HostState::Failed)].into(),
    ));
    let changes = [gone, key, hosts, Change::NextId(99)];
    let mut expected = kept;
    expected.apply(&changes);
    expected.revision = store.commit(&changes).unwrap();
    // No changes are no commit.
    assert_eq!(store.commit(&[]).unwrap(), expected.revision);
    drop(store);
    assert_eq!(Sqlite::open(&path).unwrap().load().unwrap(), expected);
}

#[test]
fn two_services_cannot_use_one_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let first = Sqlite::open(&path).unwrap();
    assert!(failure(Sqlite::open(&path)).contains("is in use"));
    drop(first);
    Sqlite::open(&path).unwrap();
}

#[test]
fn foreign_files_are_refused_and_left_unchanged() {
    let dir = tempfile::tempdir().unwrap();
    let text = dir.path().join("text");
    std::fs::write(&text, "not a database ".repeat(200)).unwrap();
    let foreign = dir.path().join("foreign");
    let other = Connection::open(&foreign).unwrap();
    other.execute_batch("CREATE TABLE photos (name)").unwrap();
    drop(other);
    let newer = dir.path().join("newer");
    file(&newer, 1);
    let other = Connection::open(&newer).unwrap();
    other
        .pragma_update(None, "user_version", SCHEMA + 1)
        .unwrap();
    drop(other);
    for (path, why) in [
        (&text, "is not a database of SQLite"),
        (&foreign, "not one of tailbound's"),
        (&newer, "use the one that wrote it, or a newer one"),
    ] {
        let before = std::fs::read(path).unwrap();
        let said = failure(Sqlite::open(path));
        assert!(said.contains(why), "{said}");
        assert_eq!(std::fs::read(path).unwrap(), before);
    }
    let absent = failure(Sqlite::open_existing(&dir.path().join("absent")));
    assert!(absent.contains("there is no file"), "{absent}");
    assert!(failure(Sqlite::open(&dir.path().join("absent/store"))).contains("absent/store"));
}

/// Variable with the folder of the files, for a test that runs by itself in a namespace.
const INSIDE: &str = "TAILBOUND_TEST_DIR";

/// Runs one test of this file again, below `unshare` with these arguments;
/// whether that was possible.
fn again_in_a_namespace(name: &str, dir: &Path, unshare: &[&str]) -> bool {
    let run = Program::new("unshare")
        .args(unshare)
        .arg(std::env::current_exe().unwrap())
        .args([name, "--nocapture"])
        .env(INSIDE, dir)
        .output();
    // The test itself ends with 0 or 101.
    let output = match run {
        Ok(output) if matches!(output.status.code(), Some(0 | 101)) => output,
        other => {
            skipped(
                Part::UserNamespaces,
                format_args!("unshare {unshare:?}: {other:?}"),
            );
            return false;
        }
    };
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{errors}");
    assert!(said.contains("1 passed"), "{said}");
    true
}

#[test]
fn a_file_that_cannot_be_written_is_refused() {
    if let Some(dir) = std::env::var_os(INSIDE) {
        let said = failure(Sqlite::open(&Path::new(&dir).join("store")));
        assert!(said.contains("cannot be written"), "{said}");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    file(&path, 1);
    let mut permissions = std::fs::metadata(&path).unwrap().permissions();
    permissions.set_readonly(true);
    std::fs::set_permissions(&path, permissions).unwrap();
    // Without root's right to write everything.
    let name = "a_file_that_cannot_be_written_is_refused";
    again_in_a_namespace(name, dir.path(), &["--user"]);
}

#[test]
fn a_full_store_changes_nothing_and_later_commits_pass() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let kept = file(&path, 1);
    let mut store = Sqlite::open(&path).unwrap();
    let limit = |store: &Sqlite, pages: i64| {
        let name = "max_page_count";
        let set = store
            .connection
            .pragma_update_and_check(None, name, pages, |_| Ok(()));
        set.unwrap();
    };
    store.load().unwrap();
    let revision = store.counters.revision;
    limit(&store, 1);
    let large = large_change();
    assert_eq!(store.commit(&large), Err(StoreError::NoSpace));
    assert_eq!(store.load().unwrap(), kept);
    limit(&store, 1_000_000);
    assert_eq!(store.commit(&large), Ok(revision + 1));
}

/// A change of some megabytes.
fn large_change() -> Vec<Change> {
    let hosts = (0..100_000).map(|number| {
        let state = tailbound_api::HostState::Drained;
        (format!("a-host-with-a-long-name-{number}"), state)
    });
    vec![Change::Hosts(Arc::new(hosts.collect()))]
}

#[test]
fn a_full_disk_changes_nothing_and_later_commits_pass() {
    if let Some(dir) = std::env::var_os(INSIDE) {
        return on_a_small_disk(Path::new(&dir));
    }
    let dir = tempfile::tempdir().unwrap();
    let mount = "mount -t tmpfs -o size=2m none \"$TAILBOUND_TEST_DIR\" && exec \"$@\"";
    let unshare = [
        "--user",
        "--map-root-user",
        "--mount",
        "sh",
        "-c",
        mount,
        "sh",
    ];
    let name = "a_full_disk_changes_nothing_and_later_commits_pass";
    again_in_a_namespace(name, dir.path(), &unshare);
}

fn on_a_small_disk(disk: &Path) {
    let path = disk.join("store");
    let kept = file(&path, 3);
    let mut store = Sqlite::open(&path).unwrap();
    let ballast = disk.join("ballast");
    let full = std::fs::write(&ballast, vec![0; 4 << 20]);
    assert!(full.is_err(), "the disk is not small");
    for _ in 0..3 {
        assert_eq!(store.commit(&large_change()), Err(StoreError::NoSpace));
        assert_eq!(store.load().unwrap(), kept);
    }
    std::fs::remove_file(&ballast).unwrap();
    let next = store.commit(&[Change::NextId(77)]).unwrap();
    drop(store);
    let again = Sqlite::open(&path).unwrap().load().unwrap();
    assert_eq!((again.revision, again.next_id), (next, 77));
}

/// A store of each version that there was is read, its promises hold, and it is of this version
/// from then on.
#[test]
fn a_store_of_each_earlier_version_is_taken_over() {
    let schemas = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/store/sqlite/schemas");
    for version in 1..=SCHEMA {
        let sql = schemas.join(format!("{version}.sql"));
        let sql = std::fs::read_to_string(&sql).unwrap_or_else(|error| {
            panic!(
                "{}: {error}; each version needs a store of it",
                sql.display()
            )
        });
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store");
        Connection::open(&path)
            .unwrap()
            .execute_batch(&sql)
            .unwrap();
        if version >= 3 {
            let found = content::counters(&Connection::open(&path).unwrap()).unwrap();
            let digest = *found.sum.unwrap().digest();
            Head::create(&path, Some((found.revision, digest))).unwrap();
        }
        let mut store = Sqlite::open_existing(&path).unwrap();
        let snapshot = store.load().unwrap();
        let names: Vec<_> = snapshot
            .tenants
            .values()
            .map(|it| it.name.as_str())
            .collect();
        assert_eq!(names, ["web", "batch"]);
        assert_eq!((snapshot.next_id, snapshot.keys.len()), (3, 1));
        assert_eq!(snapshot.tokens.len(), usize::from(version >= 5));
        // Its last machine is in a section.
        let web = snapshot.tenants.values().next().unwrap();
        assert_eq!(web.runs.len(), if version >= 6 { 2 } else { 1 });
        assert_eq!(crate::audit::audit(&snapshot).findings, []);
        let mut ledger = crate::ledger::Ledger::load(snapshot).unwrap();
        let decision = ledger.decide(&create("acme", "more", 2), Nanos(1)).unwrap();
        store.commit(&decision.changes).unwrap();
        drop(store);
        let mut again = Sqlite::open_existing(&path).unwrap();
        assert_eq!(again.load().unwrap().tenants.len(), 3);
        let version = again
            .connection
            .pragma_query_value(None, "user_version", |row| row.get::<_, i32>(0));
        assert_eq!(version.unwrap(), SCHEMA);
    }
}

/// A store of the version without sections, whose large tenant then changes by one machine.
#[test]
fn a_large_tenant_of_an_earlier_version_is_not_written_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let (mut ledger, changes) = crate::store::testing::large(100);
    let mut store = Sqlite::open(&path).unwrap();
    store.commit(&changes).unwrap();
    drop(store);
    let earlier = Connection::open(&path).unwrap();
    earlier
        .execute_batch("DROP TABLE section; PRAGMA user_version = 5")
        .unwrap();
    drop(earlier);
    let mut store = Sqlite::open_existing(&path).unwrap();
    let kept = store.load().unwrap();
    store.begin(&kept.tenants);
    let count = |store: &Sqlite, table: &str| -> (i64, i64) {
        let query = format!("SELECT count(*), total(length(value)) FROM {table}");
        let row = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get::<_, f64>(1)? as i64));
        store.connection.query_row(&query, [], row).unwrap()
    };
    let tenants = count(&store, "tenant");
    for (name, changes) in crate::store::testing::made(&mut ledger, 100) {
        ledger.set_revision(store.commit(&changes).unwrap());
        assert_eq!(count(&store, "tenant"), tenants, "{name}");
    }
    // Its machines 100, 50, 33 and the last one, which has the number 33 again.
    assert_eq!(count(&store, "section").0, 3);
    drop(store);
    let mut store = Sqlite::open_existing(&path).unwrap();
    assert_eq!(store.load().unwrap(), ledger.snapshot());
    let id = *ledger.snapshot().tenants.keys().next().unwrap();
    store.commit(&[Change::Gone(id)]).unwrap();
    assert_eq!(count(&store, "section"), (0, 0));
    assert!(store.load().unwrap().tenants.is_empty());
}

/// A later version may have added a field without another schema: it is not lost in silence.
#[test]
fn a_field_that_a_later_version_added_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    file(&path, 3);
    let connection = Connection::open(&path).unwrap();
    let query = "SELECT value FROM document WHERE name = 'topology'";
    let value: String = connection.query_row(query, [], |row| row.get(0)).unwrap();
    let later = value.replacen('{', r#"{"colour":{"is":"blue"},"#, 1);
    let sum = checksum("", "topology", &later);
    let update = "UPDATE document SET value = ?1, checksum = ?2 WHERE name = 'topology'";
    connection.execute(update, params![later, sum]).unwrap();
    drop(connection);
    let error = Sqlite::open_existing(&path).and_then(|mut store| store.load());
    let error = error.unwrap_err().to_string();
    let expected = "\"topology\": the field colour is not known to tailbound";
    assert!(error.contains(expected), "{error}");
    assert!(!error.contains("damaged"), "{error}");
}

#[test]
fn a_backup_becomes_a_new_file_and_never_replaces_one() {
    let dir = tempfile::tempdir().unwrap();
    let kept = file(&dir.path().join("store"), 3);
    let backup = crate::backup::read(&crate::backup::write(&kept)).unwrap();
    let path = dir.path().join("restored");
    Sqlite::restore(&path, &backup).unwrap();
    let restored = Sqlite::open_existing(&path).unwrap().load().unwrap();
    assert_eq!((restored.tenants, restored.keys), (kept.tenants, kept.keys));
    assert!(restored.revision > kept.revision);
    assert_eq!(restored.next_id, kept.next_id + crate::backup::LEFT_OUT);
    let said = Sqlite::restore(&path, &backup).unwrap_err().to_string();
    assert!(
        said.contains("exists; a backup is restored into a new file"),
        "{said}"
    );
}

/// Damage to the audit does not prevent an import of the rest.
#[test]
fn a_salvage_keeps_the_entries_after_a_lost_one() {
    let schemas = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/store/sqlite/schemas");
    let sql = std::fs::read_to_string(schemas.join("4.sql")).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let connection = Connection::open(&path).unwrap();
    connection.execute_batch(&sql).unwrap();
    connection
        .execute("DELETE FROM audit WHERE id = 2", [])
        .unwrap();
    drop(connection);
    let (snapshot, lost) = Sqlite::salvage(&path).unwrap();
    let entries: Vec<_> = snapshot.audit.keys().copied().collect();
    assert_eq!((entries, snapshot.tenants.len()), (vec![3, 4], 2));
    let said = "the audit's entries up to 2: it is missing";
    assert!(lost.iter().any(|it| it.contains(said)), "{lost:?}");
    assert_eq!(crate::audit::audit(&snapshot).findings, []);
}

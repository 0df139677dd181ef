//! Damage to the files of a store: it is detected, or does not matter.

use super::*;
use crate::ledger::Command;
use crate::ledger::testing::call as call_of;
use crate::store::testing::large;
use proptest::prelude::*;
use std::collections::BTreeMap;
use tailbound_api::HostMachines;

/// The files of a store by the end of their names, as the disk has them.
type Files = BTreeMap<&'static str, Vec<u8>>;

const ENDS: [&str; 3] = ["", "-wal", "-head"];

fn read(path: &Path) -> Files {
    let content = |end| std::fs::read(format!("{}{end}", path.display())).ok();
    ENDS.into_iter()
        .filter_map(|end| Some((end, content(end)?)))
        .collect()
}

fn write(path: &Path, files: &Files) {
    for end in ENDS {
        let file = format!("{}{end}", path.display());
        match files.get(end) {
            Some(content) => std::fs::write(file, content).unwrap(),
            None => drop(std::fs::remove_file(file)),
        }
    }
}

fn load(path: &Path) -> Result<Snapshot, StoreError> {
    Sqlite::open_existing(path).and_then(|mut store| store.load())
}

/// A store with a commit for each tenant and each new machine of a large one, of which some are merged
/// from the log into the file.
struct Live {
    /// As a process leaves them that is killed after each of the last commits, the newest last.
    after: Vec<(Files, Snapshot)>,
}

impl Live {
    fn new(path: &Path) -> Self {
        let (mut ledger, changes) = large(40);
        let mut store = Sqlite::open(path).unwrap();
        ledger.set_revision(store.commit(&changes).unwrap());
        let mut after = Vec::new();
        for number in 0..40 {
            let call = Call {
                key: Some(format!("key-{number}")),
                ..create("acme", &format!("web-{number}"), 1)
            };
            let mut changes = ledger.decide(&call, Nanos(1)).unwrap().changes;
            let grow = call_of(Command::PutHost {
                id: TenantId(1),
                host: format!("host-{}", number + 1),
                machines: HostMachines {
                    vms: 2,
                    remove: Vec::new(),
                },
            });
            changes.extend(ledger.decide(&grow, Nanos(1)).unwrap().changes);
            ledger.set_revision(store.commit(&changes).unwrap());
            if number == 20 {
                let merge = "PRAGMA wal_checkpoint(TRUNCATE)";
                store.connection.query_row(merge, [], |_| Ok(())).unwrap();
            }
            if number >= 30 {
                after.push((read(path), ledger.snapshot()));
            }
        }
        Self { after }
    }

    fn last(&self) -> &(Files, Snapshot) {
        self.after.last().unwrap()
    }
}

#[derive(Debug, Clone)]
enum Damage {
    /// One bit of a file.
    Flip(f64, u8),
    /// Bytes at a place of a file.
    Overwrite(f64, Vec<u8>),
    /// A file ends there.
    Cut(f64),
    /// Two parts of a file of that size change places.
    Swap(f64, f64, usize),
    /// A part of a file is as it was some commits ago.
    Old(usize, f64, usize),
    /// A file is as it was some commits ago.
    Stale(usize),
    Delete,
}

impl Damage {
    fn strategy() -> impl Strategy<Value = Self> {
        let part = 0.0_f64..1.0;
        let bytes = prop_oneof![
            proptest::collection::vec(any::<u8>(), 1..600),
            proptest::collection::vec(b'0'..=b'9', 1..3),
        ];
        let sizes = prop_oneof![Just(24_usize), Just(512), Just(4096), Just(4096 + 24)];
        prop_oneof![
            6 => (part.clone(), 0_u8..8).prop_map(|(at, bit)| Self::Flip(at, bit)),
            3 => (part.clone(), bytes).prop_map(|(at, bytes)| Self::Overwrite(at, bytes)),
            2 => part.clone().prop_map(Self::Cut),
            2 => (part.clone(), part.clone(), sizes.clone())
                .prop_map(|(one, two, size)| Self::Swap(one, two, size)),
            2 => (0_usize..9, part, sizes).prop_map(|(ago, at, size)| Self::Old(ago, at, size)),
            1 => (0_usize..9).prop_map(Self::Stale),
            1 => Just(Self::Delete),
        ]
    }

    fn apply(&self, end: &'static str, files: &mut Files, live: &Live) {
        let Some(content) = files.get_mut(end) else {
            return;
        };
        let len = content.len();
        let place = |part: f64, size: usize| {
            let blocks = (len / size).max(1);
            ((part * blocks as f64) as usize * size).min(len.saturating_sub(1))
        };
        match self {
            Self::Flip(at, bit) => content[place(*at, 1)] ^= 1 << bit,
            Self::Overwrite(at, bytes) => {
                let at = place(*at, 1);
                for (old, new) in content[at..].iter_mut().zip(bytes) {
                    *old = *new;
                }
            }
            Self::Cut(at) => content.truncate(place(*at, 1)),
            Self::Swap(one, two, size) => {
                let (one, two) = (place(*one, *size), place(*two, *size));
                for offset in 0..*size {
                    if one.max(two) + offset < len {
                        content.swap(one + offset, two + offset);
                    }
                }
            }
            Self::Old(ago, at, size) => {
                let before = &live.after[*ago].0[end];
                let at = place(*at, *size);
                let to = (at + size).min(len).min(before.len());
                if at < to {
                    content[at..to].copy_from_slice(&before[at..to]);
                }
            }
            Self::Stale(ago) => *content = live.after[*ago].0[end].clone(),
            Self::Delete => drop(files.remove(end)),
        }
    }
}

/// Random damage to one file of a store whose process was killed. `TAILBOUND_DAMAGES` is another
/// number of cases.
#[test]
fn damage_to_a_file_of_a_live_store_is_found_or_does_not_matter() {
    let dir = tempfile::tempdir().unwrap();
    let live = Live::new(&dir.path().join("live"));
    let (files, kept) = live.last();
    let path = dir.path().join("store");
    write(&path, files);
    assert_eq!(&load(&path).unwrap(), kept, "nothing is damaged");
    let cases = std::env::var("TAILBOUND_DAMAGES");
    let cases = cases.map_or(700, |cases| cases.parse().unwrap());
    let found = std::cell::Cell::new(0);
    let damage = |(end, damage): (usize, Damage)| {
        let mut damaged = files.clone();
        damage.apply(ENDS[end], &mut damaged, &live);
        write(&path, &damaged);
        match load(&path) {
            Ok(loaded) => prop_assert_eq!(&loaded, kept),
            Err(StoreError::Corrupt(_) | StoreError::Failed(_)) => found.set(found.get() + 1),
            Err(other) => prop_assert!(false, "{}", other),
        }
        Ok(())
    };
    let config = ProptestConfig::with_cases(cases);
    let mut runner = proptest::test_runner::TestRunner::new(config);
    let strategy = (0..ENDS.len(), Damage::strategy());
    runner.run(&strategy, damage).unwrap();
    assert!(found.get() > cases / 3, "only {} were found", found.get());
}

/// The log without its last commits, as a damaged frame leaves it for `SQLite`, at any of its bytes.
#[test]
fn a_log_that_is_cut_anywhere_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let live = Live::new(&dir.path().join("live"));
    let (files, _) = live.last();
    let path = dir.path().join("store");
    let log = files["-wal"].len();
    for at in (0..log).step_by(log / 60) {
        let mut cut = files.clone();
        cut.get_mut("-wal").unwrap().truncate(at);
        write(&path, &cut);
        let why = load(&path).unwrap_err().to_string();
        assert!(
            why.contains("lost") && why.contains("store-head has commit 41"),
            "{why}"
        );
    }
}

/// The process was killed between the database's commit and the head's.
#[test]
fn a_head_that_lacks_the_last_commit_is_no_damage() {
    let dir = tempfile::tempdir().unwrap();
    let live = Live::new(&dir.path().join("live"));
    let (files, kept) = live.last();
    let path = dir.path().join("store");
    let mut files = files.clone();
    let before = &live.after[live.after.len() - 2].0;
    files.insert("-head", before["-head"].clone());
    write(&path, &files);
    let mut store = Sqlite::open_existing(&path).unwrap();
    assert_eq!(&store.load().unwrap(), kept);
    let next = store.commit(&[Change::NextId(99)]).unwrap();
    assert_eq!(next, kept.revision + 1);
    drop(store);
    assert_eq!(load(&path).unwrap().next_id, 99);
}

#[test]
fn a_store_that_was_removed_or_replaced_is_refused_in_one_sentence() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    file(&path, 3);
    let other = dir.path().join("other");
    file(&other, 2);
    // Another store of as many commits.
    std::fs::copy(&other, &path).unwrap();
    let why = load(&path).unwrap_err().to_string();
    assert!(why.contains("this is the head of another store"), "{why}");
    std::fs::remove_file(&path).unwrap();
    let why = failure(Sqlite::open(&path));
    let expected = "store-head has commit 1; to begin without its tenants, remove";
    assert!(why.contains(expected), "{why}");
    std::fs::remove_file(dir.path().join("other-head")).unwrap();
    let why = failure(Sqlite::open(&other));
    assert!(
        why.contains("its head") && why.contains("other-head"),
        "{why}"
    );
}

/// Sums find rows that are gone, although the file is right for `SQLite`.
#[test]
fn a_missing_row_is_detected() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    file(&path, 3);
    let delete = "DELETE FROM tenant WHERE id = (SELECT max(id) FROM tenant)";
    let connection = Connection::open(&path).unwrap();
    assert_eq!(connection.execute(delete, []).unwrap(), 1);
    drop(connection);
    let why = load(&path).unwrap_err().to_string();
    assert!(
        why.contains("rows of its commit 1 are missing or older"),
        "{why}"
    );
}

/// Salvage returns what is there, lists what is not, and changes no file.
#[test]
fn salvage_recovers_the_intact_part_of_a_damaged_store() {
    let dir = tempfile::tempdir().unwrap();
    let live = Live::new(&dir.path().join("live"));
    let (files, kept) = live.last();
    let path = dir.path().join("store");
    write(&path, files);
    assert_eq!(Sqlite::salvage(&path).unwrap(), (kept.clone(), Vec::new()));

    let mut damaged = files.clone();
    let log = damaged.get_mut("-wal").unwrap();
    let middle = log.len() / 2;
    log[middle] ^= 1;
    write(&path, &damaged);
    load(&path).unwrap_err();
    let (snapshot, lost) = Sqlite::salvage(&path).unwrap();
    assert_eq!(
        read(&path),
        damaged,
        "a failed start and salvage change nothing"
    );
    assert!(
        (20..40).contains(&snapshot.tenants.len()),
        "{}",
        snapshot.tenants.len()
    );
    assert_eq!(snapshot.revision, kept.revision, "no number is given twice");
    assert!(lost.len() == 1 && lost[0].contains("lost"), "{lost:?}");

    // A backup of it is a store whose promises hold.
    let text = crate::backup::write(&snapshot);
    let again = crate::backup::read(&text).unwrap();
    assert_eq!(crate::audit::audit(&again).findings, []);
    crate::ledger::Ledger::load(again).unwrap();
}

/// A tenant without one of its sections is another one, so it is not there.
#[test]
fn a_tenant_whose_section_is_damaged_is_left_out_and_named() {
    let dir = tempfile::tempdir().unwrap();
    let live = Live::new(&dir.path().join("live"));
    let (files, kept) = live.last();
    let path = dir.path().join("store");
    write(&path, files);
    let connection = Connection::open(&path).unwrap();
    let update = "UPDATE section SET value = '{}' WHERE number = 2";
    assert_eq!(connection.execute(update, []).unwrap(), 1);
    drop(connection);
    let why = load(&path).unwrap_err().to_string();
    assert!(
        why.contains("section \"1/2\": its checksum is wrong"),
        "{why}"
    );
    let (snapshot, lost) = Sqlite::salvage(&path).unwrap();
    assert_eq!(lost, ["section \"1/2\": its checksum is wrong"]);
    assert_eq!(snapshot.tenants.len(), kept.tenants.len() - 1);
    assert!(!snapshot.tenants.contains_key(&TenantId(1)));
    let delete = "DELETE FROM section WHERE number = 3";
    write(&path, files);
    let connection = Connection::open(&path).unwrap();
    assert_eq!(connection.execute(delete, []).unwrap(), 1);
    drop(connection);
    let why = load(&path).unwrap_err().to_string();
    assert!(why.contains("are missing or older"), "{why}");
}

#[test]
fn salvage_skips_and_names_damaged_values() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let kept = file(&path, 3);
    let first = kept.tenants.keys().next().unwrap().0;
    let connection = Connection::open(&path).unwrap();
    let update = "UPDATE tenant SET value = '{}' WHERE id = ?";
    connection.execute(update, [first.cast_signed()]).unwrap();
    drop(connection);
    let (snapshot, lost) = Sqlite::salvage(&path).unwrap();
    assert_eq!(snapshot.tenants.len(), 2);
    assert_eq!(lost, [format!("tenant \"{first}\": its checksum is wrong")]);
    let delete = "DELETE FROM document WHERE name = 'topology'";
    Connection::open(&path)
        .unwrap()
        .execute(delete, [])
        .unwrap();
    let why = Sqlite::salvage(&path).unwrap_err().to_string();
    assert!(why.contains("its topology cannot be read"), "{why}");
}

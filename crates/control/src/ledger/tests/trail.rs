use super::*;
use crate::audit::audit;
use crate::ledger::testing::{call, create, ledger};
use crate::ledger::{Call, Command, Description, Snapshot};
use proptest::prelude::*;
use tailbound_api::AuditOutcome;
use tailbound_placement::TenantId;
use tailbound_units::Nanos;

/// Decides calls, keeps their entries, and returns the store's content.
fn kept(calls: &[Call]) -> Snapshot {
    let (mut ledger, _) = ledger();
    for call in calls {
        let words = Description::new(&ledger, call);
        let entry = match ledger.decide(call, Nanos::from_secs(5_000)) {
            Ok(decision) => words.done(call, &decision, Nanos::from_secs(5_000)),
            Err(error) => words.refused(call, error.to_string(), Nanos::from_secs(5_000)),
        };
        let sealed = of(&ledger).seal(entry.into_iter().collect());
        add(&mut ledger, &sealed);
    }
    ledger.snapshot()
}

fn some_calls() -> Vec<Call> {
    let id = TenantId(1);
    vec![
        create("acme", "web", 2),
        create("acme", "web", 2),
        call(Command::resize(id, 3)),
        // Nothing changes.
        call(Command::resize(id, 3)),
        Call {
            owner: Some("globex".to_owned()),
            ..call(Command::Delete { id })
        },
        call(Command::Delete { id }),
    ]
}

fn entries(snapshot: &Snapshot) -> Vec<&AuditEntry> {
    let blocks = snapshot.audit.values();
    blocks.flat_map(|it| &it.entries).map(|it| &**it).collect()
}

#[test]
fn each_change_and_each_refusal_is_an_entry_with_its_owner() {
    let snapshot = kept(&some_calls());
    let found = entries(&snapshot);
    let of = |entry: &AuditEntry| (entry.what.clone(), entry.before.clone(), entry.outcome);
    let (done, refused) = (AuditOutcome::Done, AuditOutcome::Refused);
    let expected = [
        ("acme/web", "", done),
        ("acme/web", "", refused),
        (
            "acme/web (id 1) to 3 machines",
            "2 machines on host-1",
            done,
        ),
        // Another owner learns nothing of it.
        ("id 1", "there is none", refused),
        ("acme/web (id 1)", "3 machines on host-1", done),
    ];
    let expected = expected.map(|(what, before, is)| (what.to_owned(), before.to_owned(), is));
    assert_eq!(found.iter().map(|it| of(it)).collect::<Vec<_>>(), expected);
    let owners: Vec<_> = found.iter().map(|it| it.owners.concat()).collect();
    assert_eq!(owners, ["acme", "acme", "acme", "globex", "acme"]);
    assert!(found.iter().all(|it| it.at_ms == 5_000_000));
    assert_eq!(audit(&snapshot).findings, []);
    // A backup keeps the chain, and the next entry continues it.
    let text = crate::backup::write(&snapshot);
    let again = crate::backup::read(&text).unwrap();
    assert_eq!(again.audit, snapshot.audit);
    let ledger = Ledger::load(again).unwrap();
    assert_eq!((of_ledger(&ledger), super::of(&ledger).oldest()), (5, 1));
    let after: Vec<_> = super::of(&ledger).after(3).map(|it| it.number).collect();
    assert_eq!(after, [4, 5]);
}

#[test]
fn a_long_reason_is_cut_between_characters() {
    let (ledger, _) = ledger();
    let call = create("acme", "web", 2);
    let refused = |why: String| {
        let words = Description::new(&ledger, &call);
        let entry = words.refused(&call, why, Nanos(1));
        entry.expect("a refusal has an entry").after
    };
    assert_eq!(refused("x".repeat(500)), "x".repeat(500));
    assert_eq!(refused("x".repeat(501)), format!("{}...", "x".repeat(500)));
    assert_eq!(
        refused("\u{e9}".repeat(251) + "x"),
        format!("{}...", "\u{e9}".repeat(250))
    );
    assert_eq!(
        refused("x".to_owned() + &"\u{e9}".repeat(250)),
        format!("x{}...", "\u{e9}".repeat(249))
    );
}

fn of_ledger(ledger: &Ledger) -> u64 {
    of(ledger).last()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Any other byte of any entry, and any missing, doubled or exchanged block, is found.
    #[test]
    fn a_changed_entry_is_found(block in 0_usize..5, at in any::<prop::sample::Index>(), bit in 0_u8..7) {
        let snapshot = kept(&some_calls());
        let first = *snapshot.audit.keys().nth(block).unwrap();
        let mut text = serde_json::to_vec(&snapshot.audit[&first]).unwrap();
        let at = at.index(text.len());
        text[at] ^= 1 << bit;
        let mut changed = snapshot.clone();
        if let Ok(block) = crate::kept::read::<AuditBlock>(&text)
            && block != *snapshot.audit[&first]
        {
            changed.audit.insert(first, Arc::new(block));
            let finding = audit(&changed).findings.remove(0);
            prop_assert!(finding.subject.ends_with("of the audit"), "{}", finding);
        }
        let mut missing = snapshot.clone();
        missing.audit.remove(&first);
        // The oldest may have been forgotten. The head of the store detects that the newest is missing.
        prop_assert_eq!(verify(&missing.audit).is_err(), (1..4).contains(&block));
        let other = *snapshot.audit.keys().nth((block + 1) % 5).unwrap();
        let (one, two) = (snapshot.audit[&first].clone(), snapshot.audit[&other].clone());
        let exchanged = [(first, two), (other, one)];
        missing.audit.extend(exchanged);
        prop_assert!(verify(&missing.audit).is_err());
    }
}

/// A writer of the store that changes an entry has to change all later ones, too.
#[test]
fn a_digest_covers_all_entries_before() {
    let mut blocks = kept(&some_calls()).audit;
    let second = AuditBlock::clone(&blocks[&2]);
    let mut forged = AuditEntry {
        what: "nothing".to_owned(),
        digest: String::new(),
        ..AuditEntry::clone(&second.entries[0])
    };
    forged.digest = Link::of(&second.previous, &forged).digest;
    let third = AuditBlock {
        previous: forged.digest.clone(),
        ..AuditBlock::clone(&blocks[&3])
    };
    let entries = vec![Arc::new(forged)];
    blocks.insert(2, Arc::new(AuditBlock { entries, ..second }));
    blocks.insert(3, Arc::new(third));
    let expected = (3, "it is not the entry that was written");
    assert_eq!(verify(&blocks), Err(expected));
}

#[test]
fn the_newest_entries_are_kept_and_their_chain_holds() {
    let entry = AuditEntry {
        digest: String::new(),
        ..entries(&kept(&some_calls()))[0].clone()
    };
    let mut trail = Trail::default();
    let mut lens = Vec::new();
    for number in [300, 1, 1, 40, 40, 40, 40, 40, 40] {
        for change in trail.seal_within(vec![entry.clone(); number], 100) {
            match change {
                Change::Audit(first, block) => trail.put(first, block),
                Change::AuditGone(first) => trail.remove(first),
                other => panic!("{other:?}"),
            }
        }
        lens.push(trail.len);
        assert_eq!(verify(&trail.blocks), Ok(()));
        assert_eq!(trail.last() + 1 - trail.oldest(), trail.len as u64);
    }
    let blocks = trail.blocks.values();
    assert!(
        blocks.map(|it| it.entries.len()).max() < Some(100),
        "a block is cut"
    );
    assert!(lens[0] == 300 && lens.last() < Some(&180), "{lens:?}");
}

use super::*;
use tailbound_api::{Code, NewTenant};
use tailbound_placement::{Guarantee, Request, Spec};
use tailbound_units::Rate;

fn decide(ledger: &mut Ledger, call: &Call) -> Result<Reply, LedgerError> {
    ledger.decide(call, Nanos(1)).map(|decision| decision.reply)
}

fn made(ledger: &mut Ledger, owner: &str, name: &str, vms: u32) -> Arc<Tenant> {
    tenant(&decide(ledger, &create(owner, name, vms)).unwrap())
}

fn code(ledger: &mut Ledger, call: &Call) -> Code {
    let before = observe(ledger);
    let code = decide(ledger, call).unwrap_err().code();
    assert_eq!(observe(ledger), before);
    code
}

#[test]
fn each_mistake_has_its_own_code_and_changes_nothing() {
    let (mut ledger, _) = ledger();
    let web = made(&mut ledger, "acme", "web", 2);
    let id = web.id;
    for name in ["", "Web", "a_b", "-a", "a-", &"a".repeat(64)] {
        assert_eq!(code(&mut ledger, &create("acme", name, 1)), Code::Absurd);
        assert_eq!(code(&mut ledger, &create(name, "a", 1)), Code::Absurd);
    }
    assert_eq!(code(&mut ledger, &create("acme", "web", 1)), Code::Exists);
    assert_eq!(code(&mut ledger, &create("acme", "none", 0)), Code::Absurd);
    assert_eq!(
        code(&mut ledger, &create("acme", "many", 43)),
        Code::Refused
    );
    let unknown = TenantId(99);
    for command in [
        Command::resize(unknown, 1),
        Command::Delete { id: unknown },
        Command::Relocate { id: unknown },
        Command::SetHosts {
            node: "nowhere".to_owned(),
            state: HostState::Failed,
        },
    ] {
        assert_eq!(code(&mut ledger, &call(command)), Code::NotFound);
    }
    for (vms, expected) in [
        (0, Code::Absurd),
        (43, Code::Refused),
        (u32::MAX, Code::Refused),
    ] {
        let resize = call(Command::resize(id, vms));
        assert_eq!(code(&mut ledger, &resize), expected);
    }
    decide(&mut ledger, &call(Command::Delete { id })).unwrap();
    assert_eq!(
        code(&mut ledger, &call(Command::Delete { id })),
        Code::NotFound
    );
    // Its number is never used again.
    assert_eq!(made(&mut ledger, "acme", "web", 2).id, TenantId(2));
}

#[test]
fn another_owners_tenant_is_not_there_and_may_have_the_same_name() {
    let (mut ledger, _) = ledger();
    let id = made(&mut ledger, "acme", "web", 2).id;
    let theirs = made(&mut ledger, "globex", "web", 2).id;
    for command in [
        Command::resize(id, 1),
        Command::Delete { id },
        Command::Relocate { id },
    ] {
        let call = Call {
            owner: Some("globex".to_owned()),
            ..call(command)
        };
        assert_eq!(code(&mut ledger, &call), Code::NotFound);
    }
    assert_eq!(ledger.tenant_named("globex", "web").unwrap().id, theirs);
}

#[test]
fn a_key_is_answered_again_for_a_day_and_only_to_its_owner() {
    let (mut ledger, _) = ledger();
    let with_key = |name: &str, fingerprint: u8| Call {
        key: Some("key".to_owned()),
        fingerprint: [fingerprint; 32],
        expected: None,
        ..create("acme", name, 1)
    };
    let first = ledger.decide(&with_key("one", 1), Nanos(5)).unwrap();
    let last = Nanos(5 + KEY_LIFE.0 - 1);
    let again = ledger.decide(&with_key("one", 1), last).unwrap();
    assert_eq!((&again.reply, again.changes.len()), (&first.reply, 0));
    let other = ledger.decide(&with_key("two", 2), last).unwrap_err();
    assert_eq!(other.code(), Code::KeyReused);
    let theirs = Call {
        owner: Some("acme".to_owned()),
        ..with_key("two", 2)
    };
    assert_eq!(
        tenant(&ledger.decide(&theirs, last).unwrap().reply).name,
        "two"
    );
    // A refusal is not kept.
    let refused = Call {
        key: Some("other".to_owned()),
        ..create("acme", "one", 1)
    };
    assert_eq!(
        ledger.decide(&refused, last).unwrap_err().code(),
        Code::Exists
    );
    let passes = Call {
        key: Some("other".to_owned()),
        fingerprint: [9; 32],
        expected: None,
        ..create("acme", "three", 1)
    };
    let late = Nanos(last.0 + 1);
    let decision = ledger.decide(&passes, late).unwrap();
    let gone = |change: &Change| matches!(change, Change::KeyGone(_));
    assert_eq!(
        decision
            .changes
            .iter()
            .filter(|change| gone(change))
            .count(),
        1
    );
    assert_eq!(
        ledger.decide(&with_key("one", 1), late).unwrap_err().code(),
        Code::Exists
    );
}

#[test]
fn no_more_keys_are_kept_than_there_is_room_for() {
    let (mut ledger, _) = ledger();
    for number in 0..MAX_KEYS {
        let id = KeyId {
            owner: None,
            key: number.to_string(),
        };
        let record = KeyRecord {
            fingerprint: [0; 32],
            at: Nanos(number as u64),
            reply: Reply::Deleted,
        };
        ledger.callers.keys.put(Arc::new(id), Arc::new(record));
    }
    let call = Call {
        key: Some("new".to_owned()),
        ..create("acme", "web", 1)
    };
    let decision = ledger.decide(&call, Nanos(MAX_KEYS as u64)).unwrap();
    let oldest = KeyId {
        owner: None,
        key: "0".to_owned(),
    };
    assert!(decision.changes.contains(&Change::KeyGone(oldest)));
    assert_eq!(ledger.callers.keys.iter().count(), MAX_KEYS);
}

/// A call of an owner's own token, with a key.
fn keyed(owner: &str, key: &str, command: Command) -> Call {
    Call {
        owner: Some(owner.to_owned()),
        key: Some(key.to_owned()),
        fingerprint: [7; 32],
        ..call(command)
    }
}

#[test]
fn an_owner_with_too_many_keys_evicts_only_its_own() {
    let (mut ledger, _) = ledger();
    let theirs = keyed("acme", "mine", create("acme", "web", 1).command);
    let answered = decide(&mut ledger, &theirs).unwrap();
    let id = made(&mut ledger, "globex", "web", 1).id;
    let resize = |number: usize| {
        let command = Command::resize(id, 1);
        keyed("globex", &number.to_string(), command)
    };
    for number in 0..MAX_KEYS {
        let id = KeyId {
            owner: Some("globex".to_owned()),
            key: number.to_string(),
        };
        let record = KeyRecord {
            fingerprint: [0; 32],
            at: Nanos(2 + number as u64),
            reply: Reply::Deleted,
        };
        ledger.callers.keys.put(Arc::new(id), Arc::new(record));
    }
    decide(&mut ledger, &resize(MAX_KEYS)).unwrap();
    decide(&mut ledger, &resize(MAX_KEYS + 1)).unwrap();
    assert_eq!(ledger.callers.keys.iter().count(), MAX_KEYS);
    let first = |change: &Change| matches!(change, Change::Key(key, _) if key.key == "0");
    let again = ledger.decide(&resize(0), Nanos(1)).unwrap();
    assert!(
        again.changes.iter().any(first),
        "the oldest one of globex's"
    );
    assert_eq!(decide(&mut ledger, &theirs), Ok(answered));
}

#[test]
fn long_answers_are_forgotten_before_they_fill_the_memory() {
    let (mut ledger, _) = ledger();
    let web = made(&mut ledger, "acme", "web", 1);
    let runs = vec![web.runs[0].clone(); 100_000];
    let large = Arc::new(Tenant {
        runs,
        ..Tenant::clone(&web)
    });
    for number in 0..1_000 {
        let id = KeyId {
            owner: Some("acme".to_owned()),
            key: number.to_string(),
        };
        let record = KeyRecord {
            fingerprint: [0; 32],
            at: Nanos(number),
            reply: Reply::Tenant(Arc::clone(&large)),
        };
        ledger.callers.keys.put(Arc::new(id), Arc::new(record));
    }
    for number in 0..200 {
        let command = Command::resize(web.id, 1);
        let call = keyed("acme", &format!("new-{number}"), command);
        decide(&mut ledger, &call).unwrap();
    }
    let long = |(_, record): &(KeyId, Arc<KeyRecord>)| matches!(&record.reply, Reply::Tenant(tenant) if tenant.runs.len() > 1);
    let left = ledger.callers.keys.iter().filter(long).count();
    assert!((10..100).contains(&left), "{left}");
}

#[test]
fn a_clock_that_goes_back_forgets_no_new_key() {
    let (mut ledger, _) = ledger();
    let ahead = Nanos(KEY_LIFE.0 / 2);
    for number in 0..MAX_KEYS as u64 {
        let id = KeyId {
            owner: None,
            key: format!("z{number}"),
        };
        let record = KeyRecord {
            fingerprint: [0; 32],
            at: Nanos(ahead.0 + number),
            reply: Reply::Deleted,
        };
        ledger.callers.keys.put(Arc::new(id), Arc::new(record));
    }
    let calls = ["one", "two", "three"].map(|name| Call {
        key: Some(name.to_owned()),
        ..create("acme", name, 1)
    });
    let answers = calls.each_ref().map(|call| {
        let decision = ledger.decide(call, Nanos(1)).unwrap();
        decision.reply
    });
    let again = calls.each_ref().map(|call| {
        let decision = ledger.decide(call, Nanos(1)).unwrap();
        decision.reply
    });
    assert_eq!(again, answers);
}

#[test]
fn machines_keep_their_numbers_when_others_come_and_go() {
    let (mut ledger, _) = ledger();
    let id = made(&mut ledger, "acme", "web", 20).id;
    let runs = |ledger: &Ledger| -> Vec<(u32, u32, String)> {
        let tenant = ledger.tenant(id).unwrap();
        let runs = tenant.runs.iter();
        runs.map(|run| (run.first, run.count, run.host.to_string()))
            .collect()
    };
    let first = runs(&ledger);
    assert_eq!(first.iter().map(|run| run.1).sum::<u32>(), 20);
    let drain = Command::SetHosts {
        node: "host-1".to_owned(),
        state: HostState::Drained,
    };
    let Reply::Hosts(change) = decide(&mut ledger, &call(drain)).unwrap() else {
        panic!()
    };
    assert_eq!((change.hosts, change.affected.len()), (1, 1));
    let affected = &change.affected[0];
    let lost: u32 = first
        .iter()
        .filter(|run| run.2 == "host-1")
        .map(|run| run.1)
        .sum();
    assert!(lost > 0 && affected.lost == lost, "{affected:?}");
    assert_eq!(
        affected.refit.iter().map(|placed| placed.vms).sum::<u32>(),
        20
    );
    decide(&mut ledger, &call(Command::Relocate { id })).unwrap();
    let moved = runs(&ledger);
    assert!(moved.iter().all(|run| run.2 != "host-1"));
    assert_eq!(moved.iter().map(|run| run.1).sum::<u32>(), 20);
    assert_eq!(moved.last().map(|run| run.0 + run.1), Some(20));
    // Twice is once.
    let again = ledger
        .decide(&call(Command::Relocate { id }), Nanos(1))
        .unwrap();
    assert!(again.changes.is_empty());
    assert_eq!(
        ledger.status(tailbound_api::Role::Leader, None).open_hosts,
        5
    );
}

#[test]
fn a_topology_that_breaks_promises_names_all_of_them_and_is_not_applied() {
    let (mut ledger, _) = ledger();
    for number in 0..7 {
        made(&mut ledger, "acme", &format!("web-{number}"), 5);
    }
    let mut spec = Spec::from_toml(TREE).unwrap();
    spec.hosts[0].count = 1;
    let diff = compare(&ledger.snapshot(), &spec).unwrap();
    assert_eq!((diff.removed.len(), diff.added.len()), (3, 1));
    assert!(diff.broken.len() > 1, "{diff:?}");
    let before = observe(&ledger);
    let set = |spec: &Spec, expected| {
        call(Command::SetTopology {
            spec: Box::new(spec.clone()),
            expected,
        })
    };
    let denied = decide(&mut ledger, &set(&spec, None)).unwrap_err();
    assert_eq!(denied, LedgerError::Breaks(diff.broken));
    assert_eq!(observe(&ledger), before);
    spec.hosts[0].count = 4;
    let denied = decide(&mut ledger, &set(&spec, Some(7))).unwrap_err();
    assert_eq!(denied, LedgerError::Changed { expected: 7, is: 1 });
    let Reply::Topology(diff) = decide(&mut ledger, &set(&spec, Some(1))).unwrap() else {
        panic!()
    };
    assert_eq!(
        (diff.revision, diff.added.as_slice()),
        (2, &["host-4".to_owned()][..])
    );
    assert_eq!(ledger.topology().revision, 2);
    // The same again is no change.
    assert!(
        ledger
            .decide(&set(&spec, Some(2)), Nanos(1))
            .unwrap()
            .changes
            .is_empty()
    );
}

#[test]
fn a_pairs_bound_is_that_of_the_queues_between_them() {
    let (mut ledger, _) = ledger();
    let id = made(&mut ledger, "acme", "web", 30).id;
    let tenant = Arc::clone(ledger.tenant(id).unwrap());
    let (first, last) = (tenant.runs.first().unwrap(), tenant.runs.last().unwrap());
    let bound = ledger.bound(id, 0, last.first).unwrap();
    let names: Vec<&str> = bound.ports.iter().map(|port| port.name.as_str()).collect();
    let (up, down) = (format!("{} up", first.host), format!("{} down", last.host));
    assert_eq!(names, [up.as_str(), "left up", "right down", down.as_str()]);
    assert!(bound.now.0 > 0 && bound.now <= bound.capacity, "{bound:?}");
    assert_eq!(bound.promised, Some(Nanos::from_millis(2)));
    assert!(ledger.bound(id, 0, 0).unwrap().ports.is_empty());
    assert_eq!(ledger.bound(id, 0, 30).unwrap_err().code(), Code::NotFound);
}

#[test]
fn pages_have_all_once_and_in_order() {
    let (mut ledger, _) = ledger();
    for number in 0..25 {
        let owner = if number % 3 == 0 { "globex" } else { "acme" };
        made(&mut ledger, owner, &format!("web-{number}"), 1);
    }
    for owner in [None, Some("acme".to_owned()), Some("globex".to_owned())] {
        let filter = TenantFilter {
            owner,
            ..TenantFilter::default()
        };
        let all = ledger.tenants(&filter, None, 100);
        assert_eq!(all.next, None);
        let (mut paged, mut after) = (Vec::new(), None);
        loop {
            let page = ledger.tenants(&filter, after, 4);
            paged.extend(page.items);
            let Some(next) = page.next else { break };
            after = Some(TenantId(next.parse().unwrap()));
        }
        assert_eq!(paged, all.items);
    }
    let filter = TenantFilter {
        name: Some("web-3".to_owned()),
        ..TenantFilter::default()
    };
    assert_eq!(ledger.tenants(&filter, None, 10).items.len(), 1);
    let first = ledger.hosts(None, None, 4).unwrap();
    let second = ledger.hosts(None, first.next.as_deref(), 4).unwrap();
    let names: Vec<&str> = [&first.items, &second.items]
        .into_iter()
        .flatten()
        .map(|host| host.name.as_str())
        .collect();
    assert_eq!(
        names,
        [
            "host-1", "host-2", "host-3", "other-1", "other-2", "other-3"
        ]
    );
    assert_eq!(second.next, None);
    assert_eq!(
        ledger.hosts(None, Some("nowhere"), 4).unwrap_err().code(),
        Code::NotFound
    );
}

#[test]
fn fit_and_explain_queries_reserve_no_capacity() {
    let (mut ledger, _) = ledger();
    made(&mut ledger, "acme", "web", 5);
    let before = observe(&ledger);
    let Command::Create(new) = create("acme", "more", 60).command else {
        unreachable!()
    };
    let why = ledger.explain(&new.request()).unwrap();
    assert!(!why.fits && why.refusal.is_some() && !why.nearest.is_empty());
    let passes: Request = why.nearest[0].request;
    let fit = ledger.fit(&passes).unwrap();
    assert!(fit.fits);
    assert_eq!(
        fit.hosts.iter().map(|placed| placed.vms).sum::<u32>(),
        passes.vms
    );
    let absurd = NewTenant { vms: 0, ..new }.request();
    assert_eq!(ledger.fit(&absurd).unwrap_err().code(), Code::Absurd);
    assert_eq!(observe(&ledger), before);
}

#[test]
fn inconsistent_snapshots_and_changes_are_refused() {
    let (mut ledger, _) = ledger();
    let web = made(&mut ledger, "acme", "web", 5);
    assert_eq!(
        Ledger::load(Snapshot::default()).unwrap_err(),
        LoadError::NoTopology
    );
    let with = |change: &dyn Fn(&mut Tenant)| {
        let mut tenant = Tenant::clone(&web);
        tenant.id = TenantId(2);
        tenant.name = "other".to_owned();
        change(&mut tenant);
        Change::Tenant(Arc::new(tenant))
    };
    let before = observe(&ledger);
    for change in [
        with(&|tenant| tenant.runs[0].host = "nowhere".into()),
        with(&|tenant| tenant.runs[0].host = "left".into()),
        with(&|tenant| tenant.runs[0].count += 1),
        with(&|tenant| tenant.request.vms = 0),
        with(&|tenant| tenant.name = "web".to_owned()),
        with(&|tenant| {
            tenant.request.vms = 9;
            tenant.runs.truncate(1);
            tenant.runs[0].count = 9;
        }),
    ] {
        let mut snapshot = ledger.snapshot();
        snapshot.next_id = 9;
        snapshot.apply(std::slice::from_ref(&change));
        assert!(Ledger::load(snapshot).is_err(), "{change:?}");
        let gone = Change::Gone(web.id);
        let free = matches!(&change, Change::Tenant(tenant) if tenant.name == "web");
        if !free {
            assert!(ledger.apply(&[gone, change]).is_err());
            assert_eq!(observe(&ledger), before);
        }
    }
}

/// A guarantee is changed where the machines are, or nothing is.
#[test]
fn a_guarantee_changes_in_place_or_not_at_all() {
    let (mut ledger, _) = ledger();
    let web = made(&mut ledger, "acme", "web", 10);
    let with = |mbit: u64| {
        let guarantee = web.request.guarantee.map(|guarantee| Guarantee {
            bandwidth: Rate::from_mbit(mbit),
            burst_rate: None,
            ..guarantee
        });
        call(Command::Change {
            id: web.id,
            vms: None,
            guarantee,
        })
    };
    let more = tenant(&decide(&mut ledger, &with(400)).unwrap());
    assert_eq!((&more.runs, more.change), (&web.runs, web.change + 1));
    let bandwidth = more.request.guarantee.unwrap().bandwidth;
    assert_eq!(bandwidth, Rate::from_mbit(400));
    // As if it had been admitted with that.
    let again = Ledger::load(ledger.snapshot()).unwrap();
    assert_eq!(observe(&ledger).loads, observe(&again).loads);
    // 8 slots of a host behind 10 Gbit/s.
    assert_eq!(code(&mut ledger, &with(9_000)), Code::Refused);
    assert_eq!(code(&mut ledger, &with(0)), Code::Absurd);
    // It is no change.
    let same = tenant(&decide(&mut ledger, &with(400)).unwrap());
    assert_eq!(same.change, more.change);
}

#[test]
fn a_change_of_a_tenant_that_was_changed_meanwhile_is_refused() {
    let (mut ledger, _) = ledger();
    let web = made(&mut ledger, "acme", "web", 2);
    let expecting = |expected, command| Call {
        expected: Some(expected),
        ..call(command)
    };
    let grow = |vms| Command::resize(web.id, vms);
    let grown = tenant(&decide(&mut ledger, &expecting(web.change, grow(3))).unwrap());
    for command in [grow(4), Command::Delete { id: web.id }] {
        let late = expecting(web.change, command);
        assert_eq!(code(&mut ledger, &late), Code::Changed);
    }
    let delete = Command::Delete { id: web.id };
    decide(&mut ledger, &expecting(grown.change, delete.clone())).unwrap();
    let gone = expecting(grown.change, delete);
    assert_eq!(code(&mut ledger, &gone), Code::NotFound);
}

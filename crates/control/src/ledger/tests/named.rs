//! Machines by their names: places, moves between hosts and tenants, and releases.

use super::scheduling::{decide, new, request, reservation, reserve, used};
use super::*;
use tailbound_api::{
    Candidate, CandidateQuestion, CandidateQuestions, Code, HostMachines, Machine, MachinePut,
    MachineRef, MachineRequest, MachineState, Reservation, ReservationState, Rule, TenantRef,
};

fn named(name: &str) -> NamedMachine {
    NamedMachine {
        owner: "acme".to_owned(),
        name: name.to_owned(),
    }
}

fn put_by(caller: Caller, name: &str, tenant: &str, host: &str) -> Call {
    call(Command::PutMachine(Box::new(PutMachine {
        machine: named(name),
        put: MachinePut {
            tenant: Some(tenant.to_owned()),
            owner: Some("acme".to_owned()),
            host: host.to_owned(),
            request: Some(request()),
        },
        caller,
    })))
}

fn put(name: &str, tenant: &str, host: &str) -> Call {
    put_by(Caller::Owner, name, tenant, host)
}

/// The same without a request.
fn bare(mut call: Call) -> Call {
    if let Command::PutMachine(put) = &mut call.command {
        put.put.request = None;
    }
    call
}

fn delete(name: &str, host: &str) -> Call {
    call(Command::DeleteMachine {
        machine: named(name),
        host: host.to_owned(),
        caller: Caller::Owner,
    })
}

fn placed(ledger: &mut Ledger, call: &Call) -> Machine {
    match decide(ledger, call).unwrap() {
        Reply::Machine(machine) => Arc::unwrap_or_clone(machine),
        other => panic!("{other:?}"),
    }
}

/// A reservation that replaces the machine's others.
fn replacing(tenant: &str, host: &str, name: &str) -> Call {
    let mut call = reservation(tenant, &[(host, 1)], &[name]);
    if let Command::Reserve(new) = &mut call.command {
        new.replace = true;
    }
    call
}

/// A machine's tenant, host and state.
fn place(ledger: &Ledger, name: &str) -> Option<(String, String, MachineState)> {
    let machine = machines::get(ledger, "acme", name)?;
    Some((machine.tenant_name, machine.host, machine.state))
}

fn is_at(tenant: &str, host: &str, state: MachineState) -> (String, String, MachineState) {
    (tenant.to_owned(), host.to_owned(), state)
}

fn open(ledger: &Ledger) -> Vec<ReservationId> {
    let open = reservations::open_after(ledger, ReservationId(0));
    open.into_iter().map(|it| it.id).collect()
}

/// The index is that of a ledger that reads the same store, and the audit finds nothing.
fn check(ledger: &Ledger) {
    let read = Ledger::load(ledger.snapshot()).unwrap();
    assert_eq!(read.owners, ledger.owners);
    assert_eq!(observe(&read), observe(ledger));
    let report = crate::audit::audit(&ledger.snapshot());
    assert_eq!(report.findings, []);
}

#[test]
fn all_machines_are_listed_in_pages_of_any_size() {
    let (mut ledger, _) = ledger();
    for (name, tenant, host) in [
        ("a", "web", "host-1"),
        ("b", "db", "host-1"),
        ("c", "web", "host-2"),
    ] {
        placed(&mut ledger, &put(name, tenant, host));
    }
    reserve(&mut ledger, &replacing("web", "host-3", "b"));
    let all = machines::list(&ledger, None, machines::Position::default(), 9);
    let names = all.items.iter().map(|it| (&*it.name, &*it.tenant_name));
    let expected = [("a", "web"), ("c", "web"), ("b", "web"), ("b", "db")];
    assert_eq!(names.collect::<Vec<_>>(), expected);
    assert_eq!(all.next, None);
    let none = machines::list(&ledger, Some("globex"), machines::Position::default(), 9);
    assert_eq!(none.items, []);
    for limit in 1..5 {
        let (mut items, mut from) = (Vec::new(), machines::Position::default());
        loop {
            let page = machines::list(&ledger, Some("acme"), from, limit);
            assert!(page.items.len() <= limit);
            items.extend(page.items);
            match page.next {
                Some(next) => from = next.parse().unwrap(),
                None => break,
            }
        }
        assert_eq!(items, all.items, "{limit}");
    }
    for wrong in ["", "1", "1-", "-1", "a-1"] {
        assert!(wrong.parse::<machines::Position>().is_err(), "{wrong}");
    }
}

#[test]
fn a_host_need_not_know_the_tenant_of_a_machine() {
    let (mut ledger, _) = ledger();
    let untold = |caller, name: &str, host: &str| {
        let mut call = bare(put_by(caller, name, "", host));
        if let Command::PutMachine(put) = &mut call.command {
            put.put.tenant = None;
        }
        call
    };
    // Nobody reserved it.
    for caller in [Caller::Host, Caller::Owner] {
        let refused = decide(&mut ledger, &untold(caller, "a", "host-1")).unwrap_err();
        assert!(matches!(refused, LedgerError::NotFound(_)), "{refused}");
    }
    reserve(&mut ledger, &replacing("web", "host-1", "a"));
    placed(&mut ledger, &untold(Caller::Host, "a", "host-1"));
    assert_eq!(
        place(&ledger, "a"),
        Some(is_at("web", "host-1", MachineState::Confirmed))
    );
    // A resize into another tenant, on another host and on its own.
    for (tenant, host) in [("db", "host-2"), ("web", "host-2")] {
        reserve(&mut ledger, &replacing(tenant, host, "a"));
        placed(&mut ledger, &untold(Caller::Host, "a", host));
        assert_eq!(
            place(&ledger, "a"),
            Some(is_at(tenant, host, MachineState::Confirmed))
        );
        assert_eq!(open(&ledger), []);
        check(&ledger);
    }
}

#[test]
fn a_reserved_machine_that_starts_is_confirmed_without_its_number() {
    let (mut ledger, _) = ledger();
    let both = reservation("web", &[("host-1", 1), ("host-2", 1)], &["a", "b"]);
    let both = reserve(&mut ledger, &both);
    assert_eq!(
        place(&ledger, "a"),
        Some(is_at("web", "host-1", MachineState::Reserved))
    );
    let started = placed(
        &mut ledger,
        &bare(put_by(Caller::Host, "a", "web", "host-1")),
    );
    let expected = Machine {
        name: "a".to_owned(),
        owner: "acme".to_owned(),
        tenant: both.tenant,
        tenant_name: "web".to_owned(),
        vm: "acme/web/0".to_owned(),
        host: "host-1".to_owned(),
        state: MachineState::Confirmed,
    };
    assert_eq!(started, expected);
    check(&ledger);
    // A repetition changes nothing, and the other machine is still only reserved.
    let decision = ledger.decide(&put("a", "web", "host-1"), Nanos(1)).unwrap();
    assert_eq!(decision.changes, []);
    assert_eq!(open(&ledger), [both.id]);
    decide(&mut ledger, &call(Command::Cancel(both.id))).unwrap();
    assert_eq!(place(&ledger, "b"), None);
    assert_eq!(machines::get(&ledger, "acme", "a"), Some(expected));
    assert_eq!((used(&ledger, "host-1"), used(&ledger, "host-2")), (1, 0));
    assert_eq!(machines::get(&ledger, "globex", "a"), None);
    check(&ledger);
}

#[test]
fn a_reservation_moves_with_each_attempt_of_its_scheduler() {
    let (mut ledger, _) = ledger();
    let first = reserve(&mut ledger, &replacing("web", "host-1", "a"));
    let error = decide(&mut ledger, &reservation("db", &[("host-2", 1)], &["a"])).unwrap_err();
    assert_eq!(error.code(), Code::Exists);
    assert_eq!(
        error.to_string(),
        "acme/web has a machine \"a\" already: its number is 0"
    );
    // In the same tenant, of which it is the only machine, and in another one.
    let second = reserve(&mut ledger, &replacing("web", "host-2", "a"));
    assert_eq!(
        (second.tenant, open(&ledger)),
        (first.tenant, vec![second.id])
    );
    assert_eq!((used(&ledger, "host-1"), used(&ledger, "host-2")), (0, 1));
    let third = reserve(&mut ledger, &replacing("db", "host-3", "a"));
    assert!(
        ledger.tenant(first.tenant).is_none(),
        "it had no other machine"
    );
    assert_eq!(
        (used(&ledger, "host-2"), open(&ledger)),
        (0, vec![third.id])
    );
    check(&ledger);
    // One that does not fit changes nothing.
    let before = observe(&ledger);
    decide(
        &mut ledger,
        &call(Command::Create(new("full", &[("host-1", 8)]))),
    )
    .unwrap();
    let full = observe(&ledger);
    for tenant in ["db", "web"] {
        let error = decide(&mut ledger, &replacing(tenant, "host-1", "a")).unwrap_err();
        assert_eq!(error.code(), Code::Refused, "{error}");
        assert_eq!(observe(&ledger), full);
    }
    decide(
        &mut ledger,
        &call(Command::Delete {
            id: TenantId(before.snapshot.next_id),
        }),
    )
    .unwrap();
    // Its quota of one open reservation is not exceeded by that.
    let own = Call {
        owner: Some("acme".to_owned()),
        quota: Quota {
            reservations: Some(1),
            vms: Some(1),
            tenants: Some(1),
            ..Quota::default()
        },
        ..replacing("web", "host-1", "a")
    };
    reserve(&mut ledger, &own);
    check(&ledger);
    let many: Vec<String> = (0..17).map(|number| format!("m-{number}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let mut many = reservation("web", &[("host-1", 4), ("host-2", 8), ("host-3", 5)], &many);
    if let Command::Reserve(new) = &mut many.command {
        new.replace = true;
    }
    assert_eq!(decide(&mut ledger, &many).unwrap_err().code(), Code::Absurd);
}

#[test]
fn a_reserved_move_holds_slots_on_both_hosts_until_it_ends() {
    for tenant in ["web", "db"] {
        let (mut ledger, _) = ledger();
        let vm = placed(&mut ledger, &put("a", "web", "host-1"));
        assert_eq!(vm.state, MachineState::Confirmed);
        let second = reserve(&mut ledger, &replacing(tenant, "host-2", "a"));
        let both = (used(&ledger, "host-1"), used(&ledger, "host-2"));
        assert_eq!(both, (1, 1), "{tenant}");
        assert_eq!(
            place(&ledger, "a"),
            Some(is_at("web", "host-1", MachineState::Confirmed))
        );
        check(&ledger);
        // Its host says again that it runs there: the place on the other host is kept for it.
        placed(&mut ledger, &put("a", "web", "host-1"));
        assert_eq!(open(&ledger), [second.id]);
        // Each end of the move: arrived, given up, and past its time.
        for end in [
            put_by(Caller::Host, "a", tenant, "host-2"),
            call(Command::Confirm(second.id)),
        ] {
            let mut ledger = ledger.clone();
            decide(&mut ledger, &end).unwrap();
            assert_eq!(
                place(&ledger, "a"),
                Some(is_at(tenant, "host-2", MachineState::Confirmed))
            );
            assert_eq!((used(&ledger, "host-1"), used(&ledger, "host-2")), (0, 1));
            // The old host ends its part later.
            decide(&mut ledger, &delete("a", "host-1")).unwrap();
            assert_eq!(used(&ledger, "host-2"), 1);
            check(&ledger);
        }
        for end in [
            delete("a", "host-2"),
            call(Command::Cancel(second.id)),
            call(Command::Expire(vec![second.id])),
        ] {
            let mut ledger = ledger.clone();
            decide(&mut ledger, &end).unwrap();
            assert_eq!(
                place(&ledger, "a"),
                Some(is_at("web", "host-1", MachineState::Confirmed))
            );
            assert_eq!((used(&ledger, "host-1"), used(&ledger, "host-2")), (1, 0));
            check(&ledger);
        }
    }
}

#[test]
fn a_host_removes_a_vm_by_name_despite_its_open_reservation() {
    let (mut ledger, _) = ledger();
    let vm = placed(&mut ledger, &put("a", "web", "host-1"));
    reserve(&mut ledger, &replacing("web", "host-1", "a"));
    let name = vec![MachineRef::Name("a".to_owned())];
    let fewer = call(Command::PutHost {
        id: vm.tenant,
        host: "host-1".to_owned(),
        machines: HostMachines {
            vms: 0,
            remove: name,
        },
    });
    let left = tenant(&decide(&mut ledger, &fewer).unwrap());
    assert_eq!((left.request.vms, left.runs[0].first), (1, 1));
    assert_eq!(
        place(&ledger, "a"),
        Some(is_at("web", "host-1", MachineState::Reserved))
    );
    decide(&mut ledger, &delete("a", "host-1")).unwrap();
    assert_eq!(ledger.used, 0);
}

#[test]
fn a_vm_starts_on_its_host_from_any_earlier_place() {
    let (mut ledger, _) = ledger();
    let first = placed(&mut ledger, &put("a", "web", "host-1"));
    // The only machine of its tenant moves to another host, without a request, and stays its tenant.
    let moved = placed(&mut ledger, &bare(put("a", "web", "host-2")));
    assert_eq!((moved.tenant, &*moved.vm), (first.tenant, "acme/web/0"));
    assert_eq!((used(&ledger, "host-1"), used(&ledger, "host-2")), (0, 1));
    placed(&mut ledger, &put("b", "web", "host-2"));
    let other = placed(&mut ledger, &put("a", "db", "host-2"));
    assert_eq!(other.vm, "acme/db/0");
    assert_eq!(used(&ledger, "host-2"), 2);
    check(&ledger);
    // A host that is full refuses, and nothing changes.
    decide(
        &mut ledger,
        &call(Command::Create(new("full", &[("host-1", 8)]))),
    )
    .unwrap();
    let before = observe(&ledger);
    for tenant in ["db", "web", "fresh"] {
        let error = decide(&mut ledger, &put("a", tenant, "host-1")).unwrap_err();
        assert!(
            matches!(&error, LedgerError::Pinned(it) if it.rule == Rule::Slots),
            "{error}"
        );
        assert_eq!(observe(&ledger), before);
    }
    for (wrong, code) in [
        (bare(put("a", "fresh", "host-3")), Code::NotFound),
        (put("a", "web", "nowhere"), Code::Refused),
        (put("", "web", "host-3"), Code::Absurd),
        (put("\n", "web", "host-3"), Code::Absurd),
        (put("a", "7", "host-3"), Code::Absurd),
        (
            put_by(Caller::Host, "new", "web", "host-3"),
            Code::Forbidden,
        ),
        (
            put_by(Caller::Host, "a", "fresh", "host-3"),
            Code::Forbidden,
        ),
        (delete("", "host-3"), Code::Absurd),
    ] {
        let error = decide(&mut ledger, &wrong).unwrap_err();
        assert_eq!(error.code(), code, "{wrong:?}: {error}");
        assert_eq!(observe(&ledger), before);
    }
    let mut other = put("a", "web", "host-3");
    if let Command::PutMachine(put) = &mut other.command {
        put.put.request = Some(MachineRequest::default());
    }
    assert_eq!(
        decide(&mut ledger, &other).unwrap_err().code(),
        Code::Absurd
    );
    // Its own quota is not exceeded by a move.
    let own = Call {
        owner: Some("acme".to_owned()),
        quota: Quota {
            vms: Some(1),
            ..Quota::default()
        },
        ..put("a", "web", "host-3")
    };
    placed(&mut ledger, &own);
    let more = Call {
        command: put("new", "web", "host-3").command,
        ..own
    };
    assert_eq!(decide(&mut ledger, &more).unwrap_err().code(), Code::Quota);
}

#[test]
fn a_machine_that_has_left_is_released_once_and_its_tenant_with_the_last() {
    let (mut ledger, _) = ledger();
    placed(&mut ledger, &put("a", "web", "host-1"));
    placed(&mut ledger, &put("b", "web", "host-2"));
    for absent in [
        delete("a", "host-2"),
        delete("a", "nowhere"),
        delete("c", "host-1"),
    ] {
        let decision = ledger.decide(&absent, Nanos(1)).unwrap();
        assert_eq!(
            (decision.reply, decision.changes),
            (Reply::Deleted, Vec::new())
        );
    }
    for _ in 0..2 {
        decide(&mut ledger, &delete("a", "host-1")).unwrap();
        assert_eq!((ledger.used, place(&ledger, "a")), (1, None));
    }
    decide(&mut ledger, &delete("b", "host-2")).unwrap();
    assert_eq!((ledger.used, ledger.tenants.len()), (0, 0));
    check(&ledger);
}

#[test]
fn a_move_ends_when_the_host_starts_the_vm_or_it_is_deleted() {
    let (mut ledger, _) = ledger();
    let vm = placed(&mut ledger, &put("a", "web", "host-1"));
    placed(&mut ledger, &put("b", "web", "host-1"));
    let begin = call(Command::Move {
        id: vm.tenant,
        step: tailbound_api::MoveVm {
            vm: 0,
            step: tailbound_api::MoveStep::Begin {
                to: "host-2".to_owned(),
            },
        },
    });
    decide(&mut ledger, &begin).unwrap();
    assert_eq!((used(&ledger, "host-1"), used(&ledger, "host-2")), (2, 1));
    // Others of its tenant leave meanwhile.
    decide(&mut ledger, &delete("b", "host-1")).unwrap();
    assert_eq!((used(&ledger, "host-1"), used(&ledger, "host-2")), (1, 1));
    let mut ended = ledger.clone();
    decide(&mut ended, &delete("a", "host-1")).unwrap();
    assert_eq!((ended.used, ended.tenants.len()), (0, 0));
    let arrived = placed(&mut ledger, &put("a", "web", "host-2"));
    assert_eq!(arrived.vm, vm.vm);
    assert_eq!((used(&ledger, "host-1"), used(&ledger, "host-2")), (0, 1));
    assert!(ledger.tenant(vm.tenant).unwrap().moving.is_none());
    check(&ledger);
}

#[test]
fn a_host_is_under_the_keys_of_the_owner() {
    let (mut ledger, _) = ledger();
    reserve(&mut ledger, &replacing("web", "host-1", "a"));
    let started = Call {
        key: Some("1".to_owned()),
        ..put_by(Caller::Host, "a", "web", "host-1")
    };
    decide(&mut ledger, &started).unwrap();
    let keys = ledger.snapshot().keys;
    let owners: Vec<_> = keys.keys().map(|key| key.owner.as_deref()).collect();
    assert_eq!(owners, [Some("acme")]);
}

#[test]
fn a_candidate_query_may_name_a_tenant_and_its_request() {
    let (mut ledger, _) = ledger();
    let ask = |ledger: &Ledger, owner: Option<&str>, tenant: &str, request: MachineRequest| {
        let questions = CandidateQuestions {
            requests: vec![CandidateQuestion {
                tenant: Some(TenantRef::Name(tenant.to_owned())),
                request: Some(request.of(1)),
                vms: 1,
                hosts: Some(vec!["host-1".to_owned()]),
            }],
        };
        let answers = candidates(ledger, owner, &questions)?.answers;
        let candidates: Vec<Candidate> = answers.into_iter().flat_map(|it| it.candidates).collect();
        Ok::<_, LedgerError>(candidates[0].headroom.vms)
    };
    let fresh = ask(&ledger, Some("acme"), "web", request()).unwrap();
    assert_eq!(fresh, 1, "it would have one machine");
    let Reservation { state, .. } =
        reserve(&mut ledger, &reservation("web", &[("host-1", 1)], &[]));
    assert_eq!(state, ReservationState::Open);
    for (owner, name) in [
        (Some("acme"), "web"),
        (Some("acme"), "acme/web"),
        (None, "acme/web"),
    ] {
        assert_eq!(
            ask(&ledger, owner, name, request()).unwrap(),
            7,
            "as that tenant"
        );
    }
    for (owner, name, request, code) in [
        (None, "web", request(), Code::Absurd),
        (Some("globex"), "acme/web", request(), Code::NotFound),
        (Some("acme"), "17", request(), Code::NotFound),
        (Some("acme"), "web", MachineRequest::default(), Code::Absurd),
    ] {
        let error = ask(&ledger, owner, name, request).unwrap_err();
        assert_eq!(error.code(), code, "{owner:?} {name}: {error}");
    }
}

#[test]
fn the_audit_finds_a_machine_that_is_confirmed_in_two_tenants() {
    let (mut ledger, _) = ledger();
    placed(&mut ledger, &put("a", "web", "host-1"));
    let other = placed(&mut ledger, &put("b", "db", "host-2"));
    let mut damaged = ledger.snapshot();
    let mut tenant = Tenant::clone(&damaged.tenants[&other.tenant]);
    tenant.reservations[0].machines[0].name = Some("a".to_owned());
    damaged.tenants.insert(other.tenant, Arc::new(tenant));
    let findings = crate::audit::audit(&damaged).findings;
    let said: Vec<String> = findings.iter().map(ToString::to_string).collect();
    let expected = "machine \"a\" of acme: it is confirmed 2 times and reserved 0 times";
    assert_eq!(said, [expected]);
}

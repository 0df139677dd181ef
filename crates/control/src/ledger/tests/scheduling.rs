//! Placements that the caller chooses, reservations, batches and adoption.

use super::*;
use tailbound_api::{
    AdoptionReport, CandidateQuestion, CandidateQuestions, Code, HostMachines, HostPut, MachineRef,
    MachineRequest, NewReservation, NewTenant, Operation, PinnedHost, Reservation,
    ReservationState, Rule, TenantRef,
};

pub(super) fn on(hosts: &[(&str, u32)]) -> Vec<PinnedHost> {
    let hosts = hosts.iter();
    hosts
        .map(|(host, vms)| PinnedHost {
            host: (*host).to_owned(),
            vms: *vms,
        })
        .collect()
}

pub(super) fn new(name: &str, hosts: &[(&str, u32)]) -> NewTenant {
    let vms = hosts.iter().map(|(_, vms)| vms).sum();
    let Command::Create(new) = create("acme", name, vms).command else {
        panic!("it is a new tenant");
    };
    NewTenant {
        placement: on(hosts),
        ..new
    }
}

pub(super) fn request() -> MachineRequest {
    MachineRequest {
        guarantee: new("any", &[("host-1", 1)]).guarantee,
        ..MachineRequest::default()
    }
}

pub(super) fn reservation(name: &str, hosts: &[(&str, u32)], machines: &[&str]) -> Call {
    call(Command::Reserve(Box::new(NewReservation {
        tenant: name.to_owned(),
        owner: Some("acme".to_owned()),
        request: Some(request()),
        placement: on(hosts),
        ttl: Nanos::from_secs(30),
        machines: machines.iter().map(|name| (*name).to_owned()).collect(),
        replace: false,
    })))
}

pub(super) fn decide(ledger: &mut Ledger, call: &Call) -> Result<Reply, LedgerError> {
    ledger.decide(call, Nanos(1)).map(|decision| decision.reply)
}

pub(super) fn reserve(ledger: &mut Ledger, call: &Call) -> Reservation {
    match decide(ledger, call).unwrap() {
        Reply::Reservation(reservation) => Arc::unwrap_or_clone(reservation),
        other => panic!("{other:?}"),
    }
}

fn put(id: u64, host: &str, vms: u32, remove: Vec<MachineRef>) -> Call {
    call(Command::PutHost {
        id: TenantId(id),
        host: host.to_owned(),
        machines: HostMachines { vms, remove },
    })
}

pub(super) fn used(ledger: &Ledger, host: &str) -> u32 {
    ledger.host(host).unwrap().used
}

fn adopt(ledger: &mut Ledger, tenants: &[NewTenant]) -> AdoptionReport {
    match decide(ledger, &call(Command::Adopt(tenants.to_vec()))).unwrap() {
        Reply::Adopted(report) => Arc::unwrap_or_clone(report),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_tenant_is_exactly_where_the_caller_puts_it_or_refused_with_the_rule() {
    let (mut ledger, _) = ledger();
    let hosts = [("other-2", 2), ("host-1", 3)];
    let placed = decide(&mut ledger, &call(Command::Create(new("web", &hosts)))).unwrap();
    let placed = tenant(&placed);
    let runs: Vec<_> = placed
        .runs
        .iter()
        .map(|run| (&*run.host, run.count))
        .collect();
    assert_eq!(runs, [("host-1", 3), ("other-2", 2)]);
    let _ = decide(
        &mut ledger,
        &call(Command::SetHosts {
            node: "other-3".to_owned(),
            state: HostState::Drained,
        }),
    );
    for (hosts, rule, sentence) in [
        (
            &[("nowhere", 2)],
            Rule::UnknownHost,
            "there is no host \"nowhere\"",
        ),
        (
            &[("other-3", 2)],
            Rule::State,
            "host \"other-3\": it is drained",
        ),
        (
            &[("other-1", 7)],
            Rule::Slots,
            "6 of its slots are free, not 7",
        ),
    ] {
        let error = decide(&mut ledger, &call(Command::Create(new("db", hosts)))).unwrap_err();
        let LedgerError::Pinned(refusal) = &error else {
            panic!("{error}");
        };
        assert_eq!(refusal.rule, rule);
        assert!(error.to_string().contains(sentence), "{error}");
        assert_eq!(error.code(), Code::Refused);
    }
    // The port of the hosts refuses more than the link.
    let mut much = new("db", &[("host-2", 4), ("host-3", 4)]);
    let guarantee = much.guarantee.as_mut().unwrap();
    guarantee.bandwidth = tailbound_units::Rate::from_mbit(3_000);
    guarantee.burst_rate = Some(tailbound_units::Rate::from_mbit(9_000));
    let error = decide(&mut ledger, &call(Command::Create(much))).unwrap_err();
    assert!(
        matches!(&error, LedgerError::Pinned(it) if it.rule == Rule::Capacity),
        "{error}"
    );
    let mut fewer = new("db", &[("host-2", 4)]);
    fewer.vms = 5;
    let error = decide(&mut ledger, &call(Command::Create(fewer))).unwrap_err();
    assert_eq!(error.code(), Code::Absurd);
}

#[test]
fn machines_come_to_a_host_and_chosen_ones_go() {
    let (mut ledger, _) = ledger();
    let first = [("host-1", 3), ("host-2", 1)];
    decide(&mut ledger, &call(Command::Create(new("web", &first)))).unwrap();
    let more = tenant(&decide(&mut ledger, &put(1, "host-2", 3, Vec::new())).unwrap());
    assert_eq!((more.request.vms, used(&ledger, "host-2")), (6, 3));
    // The number 1 goes, and all others keep theirs.
    let one = vec![MachineRef::Number(1)];
    let fewer = tenant(&decide(&mut ledger, &put(1, "host-1", 2, one.clone())).unwrap());
    let numbers: Vec<u32> = fewer
        .runs
        .iter()
        .flat_map(|it| it.first..it.first + it.count)
        .collect();
    assert_eq!(numbers, [0, 2, 3, 4, 5]);
    for (wrong, code) in [
        (put(1, "host-1", 1, one.clone()), Code::Absurd),
        (put(1, "host-1", 3, one.clone()), Code::Absurd),
        (
            put(1, "host-1", 0, vec![MachineRef::Number(0)]),
            Code::Absurd,
        ),
        (
            put(1, "host-1", 1, vec![MachineRef::Number(3)]),
            Code::Absurd,
        ),
        (put(1, "nowhere", 1, Vec::new()), Code::NotFound),
        (put(7, "host-1", 1, Vec::new()), Code::NotFound),
        (put(1, "host-1", 9, Vec::new()), Code::Refused),
    ] {
        assert_eq!(
            decide(&mut ledger, &wrong).unwrap_err().code(),
            code,
            "{wrong:?}"
        );
    }
    let outdated = Call {
        expected: Some(fewer.change - 1),
        ..put(1, "host-1", 1, Vec::new())
    };
    assert_eq!(
        decide(&mut ledger, &outdated).unwrap_err().code(),
        Code::Changed
    );
    decide(&mut ledger, &put(1, "host-1", 0, Vec::new())).unwrap();
    let gone = decide(&mut ledger, &put(1, "host-2", 0, Vec::new())).unwrap();
    assert_eq!(gone, Reply::Deleted, "it had no other machine");
    assert_eq!(ledger.used, 0);
}

#[test]
fn a_cancelled_reservation_returns_everything_that_it_took() {
    let (mut ledger, _) = ledger();
    let empty = observe(&ledger);
    let web = reservation("web", &[("host-1", 2), ("other-1", 1)], &["a", "b", "c"]);
    let first = reserve(&mut ledger, &web);
    assert_eq!((used(&ledger, "host-1"), used(&ledger, "other-1")), (2, 1));
    let names: Vec<_> = first
        .machines
        .iter()
        .map(|it| (&*it.host, it.name.as_deref()))
        .collect();
    let expected = [
        ("host-1", Some("a")),
        ("host-1", Some("b")),
        ("other-1", Some("c")),
    ];
    assert_eq!(names, expected);
    assert_eq!(
        ledger.guarantees("host-1").unwrap().vms.len(),
        2,
        "its host knows it"
    );
    // No second caller gets the same machine.
    let twice = decide(&mut ledger, &reservation("web", &[("host-3", 1)], &["b"])).unwrap_err();
    assert_eq!(twice.code(), Code::Exists);
    let more = reserve(&mut ledger, &reservation("web", &[("host-1", 1)], &["d"]));
    decide(&mut ledger, &call(Command::Cancel(first.id))).unwrap();
    assert_eq!((used(&ledger, "host-1"), used(&ledger, "other-1")), (1, 0));
    decide(&mut ledger, &call(Command::Cancel(first.id))).unwrap();
    let error = decide(&mut ledger, &call(Command::Confirm(first.id))).unwrap_err();
    assert_eq!(error.code(), Code::NotFound);
    decide(&mut ledger, &call(Command::Expire(vec![more.id]))).unwrap();
    let mut after = observe(&ledger);
    assert!(after.snapshot.next_id > empty.snapshot.next_id);
    after.snapshot.next_id = empty.snapshot.next_id;
    for guarantees in after.guarantees.iter_mut().flatten() {
        guarantees.change = 0;
    }
    assert_eq!(after, empty, "the tenant is gone with its last reservation");
}

#[test]
fn a_confirmed_machine_stays_and_its_reservation_cannot_be_cancelled() {
    let (mut ledger, _) = ledger();
    let first = reserve(
        &mut ledger,
        &reservation("web", &[("host-1", 1)], &["pod-1"]),
    );
    let confirm = call(Command::Confirm(first.id));
    let change = ledger.tenant(first.tenant).unwrap().change;
    let confirmed = reserve(&mut ledger, &confirm);
    assert_eq!(confirmed.state, ReservationState::Confirmed);
    assert_eq!(reserve(&mut ledger, &confirm), confirmed, "again");
    assert_eq!(ledger.tenant(first.tenant).unwrap().change, change);
    let error = decide(&mut ledger, &call(Command::Cancel(first.id))).unwrap_err();
    assert_eq!(error, LedgerError::Confirmed(first.id));
    decide(&mut ledger, &call(Command::Expire(vec![first.id]))).unwrap();
    assert_eq!(used(&ledger, "host-1"), 1);
    // Its name is known until the machine goes.
    let second = reservation("web", &[("host-1", 1)], &["pod-1"]);
    assert_eq!(
        decide(&mut ledger, &second).unwrap_err().code(),
        Code::Exists
    );
    reserve(
        &mut ledger,
        &reservation("web", &[("host-2", 1)], &["pod-2"]),
    );
    let name = vec![MachineRef::Name("pod-1".to_owned())];
    decide(&mut ledger, &put(first.tenant.0, "host-1", 0, name)).unwrap();
    assert!(reservations::get(&ledger, None, first.id).is_none());
    let again = reserve(&mut ledger, &second);
    assert_ne!(again.id, first.id);
}

#[test]
fn open_reservations_block_changes_to_their_vms() {
    let (mut ledger, _) = ledger();
    decide(
        &mut ledger,
        &call(Command::Create(new("web", &[("host-1", 2)]))),
    )
    .unwrap();
    let open = reserve(&mut ledger, &reservation("web", &[("host-1", 1)], &[]));
    let number = open.machines[0].number;
    let moved = call(Command::Move {
        id: TenantId(1),
        step: tailbound_api::MoveVm {
            vm: number,
            step: tailbound_api::MoveStep::Begin {
                to: "host-2".to_owned(),
            },
        },
    });
    let id = TenantId(1);
    for refused in [
        moved,
        call(Command::resize(id, 1)),
        call(Command::Relocate { id }),
    ] {
        let error = decide(&mut ledger, &refused).unwrap_err();
        assert!(matches!(error, LedgerError::Reserved { .. }), "{error}");
    }
    // The reserved machine is not one of those that go.
    let error = decide(
        &mut ledger,
        &put(1, "host-1", 1, vec![MachineRef::Number(number)]),
    );
    assert_eq!(error.unwrap_err().code(), Code::Absurd);
    decide(&mut ledger, &put(1, "host-1", 0, Vec::new())).unwrap();
    let left = ledger.tenant(id).unwrap();
    assert_eq!((left.request.vms, left.runs[0].first), (1, number));
}

#[test]
fn reservations_are_under_the_quota_and_make_sense() {
    let (mut ledger, _) = ledger();
    let quota = Quota {
        vms: Some(3),
        reservations: Some(1),
        ..Quota::default()
    };
    let own = |call: Call| Call {
        owner: Some("acme".to_owned()),
        quota,
        ..call
    };
    let error = decide(&mut ledger, &own(reservation("web", &[("host-1", 4)], &[])));
    assert_eq!(error.unwrap_err().code(), Code::Quota);
    reserve(&mut ledger, &own(reservation("web", &[("host-1", 1)], &[])));
    let error = decide(&mut ledger, &own(reservation("web", &[("host-1", 1)], &[])));
    let error = error.unwrap_err().to_string();
    assert!(
        error.contains("would have 2 open reservations, and its quota is 1"),
        "{error}"
    );
    let odd = |edit: fn(&mut NewReservation)| {
        let mut call = reservation("db", &[("host-1", 2)], &["a", "b"]);
        if let Command::Reserve(new) = &mut call.command {
            edit(new);
        }
        call
    };
    for (wrong, code) in [
        (odd(|new| new.ttl = Nanos(1)), Code::Absurd),
        (odd(|new| new.ttl = Nanos::from_secs(3_601)), Code::Absurd),
        (odd(|new| new.placement.clear()), Code::Absurd),
        (odd(|new| new.machines[1] = "a".into()), Code::Absurd),
        (odd(|new| new.machines[1] = "\n".into()), Code::Absurd),
        (odd(|new| new.machines.truncate(1)), Code::Absurd),
        (odd(|new| new.request = None), Code::NotFound),
        (odd(|new| new.tenant = "7".into()), Code::Absurd),
        (
            odd(|new| new.placement[0].host = "left".into()),
            Code::Refused,
        ),
        (odd(|new| new.placement[0].vms = 0), Code::Absurd),
        (
            odd(|new| {
                new.tenant = "web".into();
                new.request = Some(MachineRequest::default());
            }),
            Code::Absurd,
        ),
    ] {
        assert_eq!(
            decide(&mut ledger, &wrong).unwrap_err().code(),
            code,
            "{wrong:?}"
        );
    }
}

#[test]
fn a_batch_is_made_whole_or_not_at_all() {
    let (mut ledger, _) = ledger();
    decide(
        &mut ledger,
        &call(Command::Create(new("web", &[("host-1", 2)]))),
    )
    .unwrap();
    let batch = |vms| {
        call(Command::Batch(vec![
            Operation::Delete(TenantRef::Name("acme/web".to_owned())),
            Operation::Create(Box::new(new("web", &[("host-2", 2)]))),
            Operation::Put(HostPut {
                tenant: TenantRef::Name("acme/web".to_owned()),
                host: "host-3".to_owned(),
                vms,
                remove: Vec::new(),
            }),
        ]))
    };
    let before = observe(&ledger);
    let error = decide(&mut ledger, &batch(9)).unwrap_err();
    assert_eq!(observe(&ledger), before);
    let error = error.to_string();
    let says = "operation 2 of the batch: host \"host-3\": 8 of its slots are free, not 9; no \
        operation was made";
    assert_eq!(error, says);
    let Reply::Batch(tenants) = decide(&mut ledger, &batch(3)).unwrap() else {
        panic!("no batch");
    };
    let vms = tenants
        .iter()
        .map(|it| it.as_ref().map(|it| it.request.vms));
    assert_eq!(vms.collect::<Vec<_>>(), [None, Some(2), Some(5)]);
}

#[test]
fn running_tenants_are_adopted_and_misfits_are_reported() {
    let (mut ledger, _) = ledger();
    let fits = new("web", &[("host-1", 4), ("host-2", 2)]);
    let full = new("db", &[("host-1", 6)]);
    let lost = new("lost", &[("nowhere", 1)]);
    let mut late = new("late", &[("host-3", 1), ("other-3", 1)]);
    late.guarantee.as_mut().unwrap().delay = Some(Nanos(1_000));
    let all = [fits.clone(), full, lost, late];
    let report = adopt(&mut ledger, &all);
    assert_eq!((report.adopted, report.present), (3, 0));
    let misfits: Vec<_> = report
        .misfits
        .iter()
        .map(|it| (&*it.tenant, it.rule, it.adopted))
        .collect();
    let expected = [
        ("acme/db", Rule::Slots, true),
        ("acme/lost", Rule::UnknownHost, false),
        ("acme/late", Rule::Delay, true),
    ];
    assert_eq!(misfits, expected);
    assert_eq!(report.misfits[0].excess.as_deref(), Some("2"));
    assert_eq!(used(&ledger, "host-1"), 10, "it runs there");
    let again = adopt(&mut ledger, &all[..1]);
    assert_eq!((again.adopted, again.present), (0, 1));
    let other = adopt(&mut ledger, &[new("web", &[("host-1", 1)])]);
    assert_eq!(other.misfits[0].rule, Rule::Exists);
    // It is loaded again, and nothing more comes to the host.
    let mut again = Ledger::load(ledger.snapshot()).unwrap();
    assert_eq!(observe(&again), observe(&ledger));
    let more = call(Command::Create(new("more", &[("host-1", 1)])));
    assert_eq!(decide(&mut again, &more).unwrap_err().code(), Code::Refused);
    decide(&mut again, &call(Command::Delete { id: TenantId(1) })).unwrap();
    assert_eq!(used(&again, "host-1"), 6);
    decide(&mut again, &more).unwrap();
    // Without a misfit, a host with too many machines is a damaged store.
    let mut damaged = ledger.snapshot();
    let mut plain = Tenant::clone(&damaged.tenants[&TenantId(2)]);
    plain.misfit = false;
    damaged.tenants.insert(TenantId(2), Arc::new(plain));
    let error = Ledger::load(damaged).unwrap_err().to_string();
    assert!(
        error.contains("host \"host-1\" has too few slots"),
        "{error}"
    );
}

#[test]
fn a_verdict_on_a_host_is_that_of_a_reservation() {
    let (mut ledger, _) = ledger();
    decide(
        &mut ledger,
        &call(Command::Create(new("web", &[("host-1", 6)]))),
    )
    .unwrap();
    let ask = |ledger: &Ledger, question: CandidateQuestion| {
        let questions = CandidateQuestions {
            requests: vec![question],
        };
        let mut answers = candidates(ledger, None, &questions).unwrap().answers;
        answers.remove(0).candidates
    };
    let web = |vms| CandidateQuestion {
        tenant: Some(TenantRef::Id(TenantId(1))),
        request: None,
        vms,
        hosts: None,
    };
    for vms in [1, 3, 7] {
        let found = ask(&ledger, web(vms));
        assert_eq!(found.len(), 6);
        for candidate in found {
            let mut copy = ledger.clone();
            let wanted = reservation("web", &[(&candidate.host, vms)], &[]);
            let fits = decide(&mut copy, &wanted).is_ok();
            assert_eq!(candidate.fits, fits, "{candidate:?}");
            assert_eq!(candidate.refusal.is_none(), fits);
            let most = candidate.headroom.vms;
            let mut copy = ledger.clone();
            if most > 0 {
                decide(
                    &mut copy,
                    &reservation("web", &[(&candidate.host, most)], &[]),
                )
                .unwrap();
            }
            let one_more = reservation("web", &[(&candidate.host, most + 1)], &[]);
            assert!(decide(&mut ledger.clone(), &one_more).is_err());
        }
    }
    let unknown = CandidateQuestion {
        hosts: Some(vec!["nowhere".to_owned(), "host-1".to_owned()]),
        ..web(2)
    };
    let found = ask(&ledger, unknown);
    assert_eq!(found[0].refusal.as_ref().unwrap().rule, Rule::UnknownHost);
    assert!(found[1].fits && found[1].headroom.vms == 2);
    let fresh = CandidateQuestion {
        tenant: None,
        request: Some(request().of(4)),
        vms: 1,
        hosts: None,
    };
    assert!(ask(&ledger, fresh).iter().all(|candidate| candidate.fits));
}

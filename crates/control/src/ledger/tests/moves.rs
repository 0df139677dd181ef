//! Machines that move.

use super::*;
use tailbound_api::{Code, MoveStep, MoveVm};

/// Returns a report of a host that keeps all guarantees and at which these machines have arrived.
fn said(ledger: &Ledger, mbit: u64, arrived: &[&str]) -> HostReport {
    HostReport {
        arrived: arrived.iter().map(|vm| (*vm).to_owned()).collect(),
        ..report_of(ledger, limits_of_link(mbit))
    }
}

/// A tenant of three machines on one host.
fn web(ledger: &mut Ledger) -> Arc<Tenant> {
    tenant(&decided(ledger, &create("acme", "web", 3)))
}

fn decided(ledger: &mut Ledger, call: &Call) -> Reply {
    ledger.decide(call, Nanos(1)).unwrap().reply
}

fn step(vm: u32, step: MoveStep) -> Call {
    let id = TenantId(1);
    let step = MoveVm { vm, step };
    call(Command::Move { id, step })
}

fn begin(to: &str) -> Call {
    step(1, MoveStep::Begin { to: to.to_owned() })
}

fn report(ledger: &mut Ledger, host: &str, mbit: u64, arrived: &[&str]) {
    let report = said(ledger, mbit, arrived);
    send_report(ledger, host, report);
}

#[test]
fn a_move_that_cannot_be_is_refused_with_the_reason() {
    let (mut ledger, _) = ledger();
    let from = web(&mut ledger).runs[0].host.to_string();
    // What cannot be, and why.
    report(&mut ledger, "other-1", 100, &[]);
    let refused = ledger.decide(&begin("other-1"), Nanos(1)).unwrap_err();
    assert_eq!(refused.code(), Code::Refused);
    assert_eq!(
        refused.to_string(),
        "acme/web/1 cannot move to other-1: a bandwidth of 200Mbit/s is above its link's 100Mbit/s"
    );
    for (wrong, expected) in [
        (begin("nowhere"), Code::NotFound),
        (begin("left"), Code::NotFound),
        (begin(&from), Code::Absurd),
        (
            step(
                7,
                MoveStep::Begin {
                    to: "other-2".into(),
                },
            ),
            Code::NotFound,
        ),
        (step(1, MoveStep::Done), Code::NotFound),
        (step(1, MoveStep::Cancel), Code::NotFound),
    ] {
        assert_eq!(
            ledger.decide(&wrong, Nanos(1)).unwrap_err().code(),
            expected
        );
    }
}

#[test]
fn a_moving_vm_holds_slots_on_both_hosts_until_it_arrives() {
    let (mut ledger, _) = ledger();
    let before = web(&mut ledger);
    let (id, from) = (before.id, before.runs[0].host.to_string());
    let used = |ledger: &Ledger, host: &str| ledger.host(host).unwrap().used;
    let first = decided(&mut ledger, &begin("other-2"));
    assert_eq!(tenant(&first).runs, before.runs, "it is where it was");
    assert_eq!((used(&ledger, &from), used(&ledger, "other-2")), (3, 1));
    let again = ledger.decide(&begin("other-2"), Nanos(1)).unwrap();
    assert!(again.changes.is_empty(), "the same again changes nothing");
    for meanwhile in [
        begin("other-3"),
        call(Command::resize(id, 4)),
        call(Command::Relocate { id }),
    ] {
        let refused = ledger.decide(&meanwhile, Nanos(1)).unwrap_err().to_string();
        assert!(
            refused.contains("acme/web/1 is on its way to other-2"),
            "{refused}"
        );
    }
    // Another host's word, and one of another machine, end nothing.
    report(&mut ledger, "other-3", 10_000, &["acme/web/1"]);
    report(&mut ledger, "other-2", 10_000, &["acme/web/0"]);
    assert_eq!((used(&ledger, &from), used(&ledger, "other-2")), (3, 1));
    let news = said(&ledger, 10_000, &["acme/web/1"]);
    assert!(ledger.is_news("other-2", &news));
    report(&mut ledger, "other-2", 10_000, &["acme/web/1"]);
    assert_eq!((used(&ledger, &from), used(&ledger, "other-2")), (2, 1));
    let after = ledger.tenant(id).unwrap();
    assert_eq!((&after.moving, after.runs.len()), (&None, 3));
    report(&mut ledger, "other-2", 10_000, &["acme/web/1"]);
    assert!(!ledger.is_news("other-2", &said(&ledger, 10_000, &["acme/web/1"])));

    // Back again, and not, by command.
    decided(&mut ledger, &begin(&from));
    decided(&mut ledger, &step(1, MoveStep::Cancel));
    assert_eq!((used(&ledger, &from), used(&ledger, "other-2")), (2, 1));
    decided(&mut ledger, &begin(&from));
    decided(&mut ledger, &step(1, MoveStep::Done));
    assert_eq!((used(&ledger, &from), used(&ledger, "other-2")), (3, 0));
    assert_eq!(ledger.tenant(id).unwrap().runs, before.runs);
    let audited = crate::audit::audit(&ledger.snapshot());
    assert!(audited.findings.is_empty(), "{:?}", audited.findings);
}

//! Rate limits of machines.

use super::*;
use tailbound_api::{Code, InLimit, LimitKind, NewTenant, OutLimit, VmLimit};
use tailbound_units::Rate;

fn limit(kind: LimitKind, mbit: u64) -> VmLimit {
    let rate = Rate::from_mbit(mbit);
    VmLimit {
        out: Some(OutLimit { kind, rate }),
        inward: Some(InLimit { rate }),
    }
}

fn set(id: TenantId, limit: VmLimit) -> Call {
    call(Command::Limit { id, limit })
}

/// As [`create`], without a guarantee and with this limit.
fn best_effort(name: &str, limit: VmLimit) -> Call {
    let Command::Create(new) = create("acme", name, 3).command else {
        unreachable!("it creates");
    };
    call(Command::Create(NewTenant {
        guarantee: None,
        limit,
        placement: Vec::new(),
        ..new
    }))
}

fn decided(ledger: &mut Ledger, call: &Call) -> Arc<Tenant> {
    tenant(&ledger.decide(call, Nanos(1)).unwrap().reply)
}

fn told(ledger: &Ledger, host: &str) -> Vec<VmLimit> {
    let all = ledger.guarantees(host).unwrap();
    all.vms.iter().map(|vm| vm.limit).collect()
}

#[test]
fn hosts_receive_changed_limits_without_any_new_placement() {
    let (mut ledger, _) = ledger();
    let first = limit(LimitKind::SmoothWindow, 4);
    let made = decided(&mut ledger, &best_effort("web", first));
    let host = made.runs[0].host.to_string();
    let count = made.runs[0].count as usize;
    assert_eq!(told(&ledger, &host), vec![first; count]);
    let second = limit(LimitKind::Bucket, 20);
    let before = ledger.guarantees(&host).unwrap();
    let limited = decided(&mut ledger, &set(made.id, second));
    assert_eq!((&limited.runs, limited.limit), (&made.runs, second));
    assert!(limited.change > made.change, "its hosts are to follow");
    assert!(ledger.guarantees(&host).unwrap().change > before.change);
    assert_eq!(told(&ledger, &host), vec![second; count]);
    let again = ledger.decide(&set(made.id, second), Nanos(1)).unwrap();
    assert!(again.changes.is_empty(), "the same again changes nothing");
    decided(&mut ledger, &set(made.id, VmLimit::default()));
    assert_eq!(told(&ledger, &host), vec![VmLimit::default(); count]);
    let audited = crate::audit::audit(&ledger.snapshot());
    assert!(audited.findings.is_empty(), "{:?}", audited.findings);
}

#[test]
fn a_limit_that_contradicts_the_guarantee_is_refused() {
    let (mut ledger, _) = ledger();
    let web = decided(&mut ledger, &create("acme", "web", 2));
    let enough = limit(LimitKind::Bucket, 200);
    decided(&mut ledger, &set(web.id, enough));
    for (wrong, expected) in [
        (
            limit(LimitKind::Bucket, 199),
            "the limit out of 199Mbit/s is below the guaranteed 200Mbit/s",
        ),
        (
            limit(LimitKind::SmoothWindow, 400),
            "a smooth window delays guaranteed bursts",
        ),
        (limit(LimitKind::Bucket, 0), "below one full frame a second"),
    ] {
        let refused = ledger.decide(&set(web.id, wrong), Nanos(1)).unwrap_err();
        assert_eq!(refused.code(), Code::Absurd);
        assert!(refused.to_string().contains(expected), "{refused}");
        assert_eq!(ledger.tenant(web.id).unwrap().limit, enough);
    }
    let nothing = best_effort("none", limit(LimitKind::SmoothWindow, 0));
    let refused = ledger.decide(&nothing, Nanos(1)).unwrap_err();
    assert_eq!(refused.code(), Code::Absurd);
    let unknown = set(TenantId(99), enough);
    let refused = ledger.decide(&unknown, Nanos(1)).unwrap_err();
    assert_eq!(refused.code(), Code::NotFound);
}

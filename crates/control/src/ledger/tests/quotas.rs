//! Quotas of owners.

use super::*;
use tailbound_api::Code;
use tailbound_units::Rate;

/// A call by the owner's own token, under a quota.
fn own(quota: Quota, call: Call) -> Call {
    Call {
        owner: Some("acme".to_owned()),
        quota,
        ..call
    }
}

fn decided(ledger: &mut Ledger, call: &Call) -> Result<(), LedgerError> {
    ledger.decide(call, Nanos(1)).map(|_| ())
}

#[test]
fn an_owner_has_at_most_its_quota_and_may_always_give_back() {
    let (mut ledger, _) = ledger();
    let most = |tenants, vms, mbit| Quota {
        tenants,
        vms,
        bandwidth: mbit,
        reservations: None,
    };
    let open = Quota::default();
    // An operator is not held to it, and others' tenants do not count.
    decided(&mut ledger, &create("globex", "web", 6)).unwrap();
    decided(&mut ledger, &create("acme", "web", 4)).unwrap();
    let create = |quota, vms| own(quota, create("acme", "db", vms));
    for (call, why) in [
        (
            create(most(Some(1), None, None), 1),
            "acme would have 2 tenants, and its quota is 1 (it has 1): ",
        ),
        (
            create(most(None, Some(5), None), 2),
            "acme would have 6 machines, and its quota is 5 (it has 4): ",
        ),
        (
            create(most(None, None, Some(Rate::from_mbit(1_100))), 2),
            "acme would have a bandwidth of 1.2Gbit/s in all, and its quota is 1.1Gbit/s (it has \
             800Mbit/s): ",
        ),
    ] {
        let before = observe(&ledger);
        let error = decided(&mut ledger, &call).unwrap_err();
        assert_eq!(error.code(), Code::Quota);
        assert!(error.to_string().starts_with(why), "{error}");
        assert_eq!(observe(&ledger), before);
    }
    decided(
        &mut ledger,
        &create(most(Some(2), Some(5), Some(Rate::from_mbit(1_000))), 1),
    )
    .unwrap();
    let id = ledger.tenant_named("acme", "web").unwrap().id;
    let resize = |quota, vms| own(quota, call(Command::resize(id, vms)));
    let five = most(None, Some(5), None);
    assert_eq!(
        decided(&mut ledger, &resize(five, 5)).unwrap_err().code(),
        Code::Quota
    );
    // A quota that was lowered below what is there takes nothing away and lets it shrink.
    decided(&mut ledger, &resize(most(None, Some(1), None), 3)).unwrap();
    decided(&mut ledger, &resize(open, 6)).unwrap();
    decided(&mut ledger, &own(five, call(Command::Delete { id }))).unwrap();
    decided(&mut ledger, &own(five, super::create("acme", "new", 4))).unwrap();
}

/// The counted usage of owners equals the sum of their tenants.
#[test]
fn an_owners_usage_is_its_tenants_sum_even_after_a_restart() {
    let (mut ledger, _) = ledger();
    decided(&mut ledger, &create("acme", "web", 4)).unwrap();
    decided(&mut ledger, &create("acme", "db", 2)).unwrap();
    let id = ledger.tenant_named("acme", "web").unwrap().id;
    decided(&mut ledger, &call(Command::resize(id, 3))).unwrap();
    let mut again = Ledger::load(ledger.snapshot()).unwrap();
    let quota = Quota {
        vms: Some(5),
        ..Quota::default()
    };
    for ledger in [&mut ledger, &mut again] {
        let more = own(quota, create("acme", "more", 1));
        let error = decided(ledger, &more).unwrap_err();
        assert!(error.to_string().contains("(it has 5)"), "{error}");
    }
}

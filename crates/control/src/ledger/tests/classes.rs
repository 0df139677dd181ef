//! Delay classes: the class of a request, its bound, and hosts that keep it.

use super::*;
use tailbound_api::TenantState;
use tailbound_placement::{FaultDomains, HostLimits, Policy, Spec};
use tailbound_units::{Bytes, Rate};

const HOSTS: [&str; 6] = [
    "host-1", "host-2", "host-3", "other-1", "other-2", "other-3",
];

/// The tree with delay classes of these queues in microseconds and PCPs.
fn tree(classes: &[(u64, u8)]) -> Spec {
    let classes = classes.iter().map(|(queue, pcp)| {
        let dscp = 8 * pcp;
        format!("[[delay_class]]\nqueue = \"{queue}us\"\nmark = {{ dscp = {dscp}, pcp = {pcp} }}\n")
    });
    Spec::from_toml(&format!("{TREE}\n{}", classes.collect::<String>())).unwrap()
}

/// A ledger with a delay class of 40 us at each port.
fn classed() -> Ledger {
    let (ledger, _) = Ledger::new(tree(&[(40, 6)]), Policy::Silo).unwrap();
    ledger
}

fn tenant(name: &str, delay: Nanos) -> Call {
    let mut call = create("acme", name, 10);
    if let Command::Create(new) = &mut call.command {
        new.guarantee.as_mut().unwrap().delay = Some(delay);
    }
    call
}

fn admitted(ledger: &mut Ledger, call: &Call) -> Arc<Tenant> {
    match ledger.decide(call, Nanos(1)).unwrap().reply {
        Reply::Tenant(tenant) => tenant,
        other => unreachable!("{other:?}"),
    }
}

fn report(ledger: &mut Ledger, host: &str, delay_classes: bool) {
    let limits = HostLimits {
        inward_bursts: true,
        delay_classes,
        ..limits_of_link(10_000)
    };
    let report = report_of(ledger, limits);
    send_report(ledger, host, report);
}

#[test]
fn a_short_delays_class_appears_in_bounds_and_guarantees() {
    let mut ledger = classed();
    let fast = admitted(&mut ledger, &tenant("fast", Nanos::from_micros(80)));
    let usual = admitted(&mut ledger, &tenant("usual", Nanos::from_millis(2)));
    assert_eq!(
        (fast.request.class(), usual.request.class()),
        (Some(1), None)
    );
    let host = fast.runs[0].host.to_string();
    let to = fast.runs.last().expect("on several hosts").first;
    let bound = ledger.bound(fast.id, 0, to).unwrap();
    assert_eq!(
        (bound.class, bound.capacity),
        (Some(1), Nanos::from_micros(80))
    );
    assert!(bound.now <= bound.capacity);
    let guarantees = ledger.guarantees(&host).unwrap();
    assert_eq!(guarantees.delay_classes.len(), 1);
    let of_fast = guarantees.vms.iter().find(|vm| vm.tenant == fast.id);
    let class = of_fast.and_then(|vm| vm.guarantee?.class);
    assert_eq!(class, Some(1));
    // Another delay is another class, and a class by name stays.
    let mut wider = fast.request.guarantee.unwrap();
    (wider.delay, wider.class) = (Some(Nanos::from_millis(1)), None);
    let change = |guarantee| {
        call(Command::Change {
            id: fast.id,
            vms: None,
            guarantee: Some(guarantee),
        })
    };
    assert_eq!(admitted(&mut ledger, &change(wider)).request.class(), None);
    wider.class = Some(1);
    assert_eq!(
        admitted(&mut ledger, &change(wider)).request.class(),
        Some(1)
    );
    wider.class = Some(2);
    let refused = ledger
        .decide(&change(wider), Nanos(1))
        .expect_err("one class");
    assert!(
        refused.to_string().contains("no delay class 2"),
        "{refused}"
    );
}

#[test]
fn a_topology_that_renumbers_a_delay_class_with_tenants_is_refused() {
    let mut ledger = classed();
    let fast = admitted(&mut ledger, &tenant("fast", Nanos::from_micros(80)));
    admitted(&mut ledger, &tenant("usual", Nanos::from_millis(2)));
    let broken = |ledger: &Ledger, classes: &[(u64, u8)]| {
        let diff = compare(&ledger.snapshot(), &tree(classes)).unwrap();
        let broken = diff.broken.into_iter();
        broken.map(|it| (it.tenant, it.why)).collect::<Vec<_>>()
    };
    // Below it, another mark, and another queue.
    for same in [&[(40, 6), (45, 7)][..], &[(40, 7)], &[(39, 6)]] {
        assert!(broken(&ledger, same).is_empty(), "{same:?}");
    }
    // Above it, also with its queue.
    for other in [[(35, 7), (40, 6)], [(40, 7), (45, 6)]] {
        let broken = broken(&ledger, &other);
        let [(id, why)] = broken.as_slice() else {
            panic!("{broken:?}");
        };
        assert_eq!(*id, fast.id);
        assert!(why.contains("insert none above"), "{why}");
    }
    let spec = Box::new(tree(&[(35, 7), (40, 6)]));
    let set = call(Command::SetTopology {
        spec,
        expected: None,
    });
    let refused = ledger.decide(&set, Nanos(1)).expect_err("it is renumbered");
    assert!(matches!(refused, LedgerError::Breaks(_)), "{refused}");
    // Without its tenant there is nothing to renumber.
    let delete = call(Command::Delete { id: fast.id });
    let _ = ledger.decide(&delete, Nanos(1)).unwrap();
    assert!(broken(&ledger, &[(35, 7), (40, 6)]).is_empty());
}

#[test]
fn a_host_without_classes_gets_no_guarantee_of_one_and_is_named() {
    let mut ledger = classed();
    let fast = admitted(&mut ledger, &tenant("fast", Nanos::from_micros(80)));
    for host in HOSTS {
        report(&mut ledger, host, true);
    }
    let host = fast.runs[0].host.to_string();
    report(&mut ledger, &host, false);
    let guarantees = ledger.guarantees(&host).unwrap();
    assert!(guarantees.vms.iter().all(|vm| vm.guarantee.is_none()));
    let standing = ledger.standing(fast.id, true).unwrap();
    assert_eq!(standing.state, TenantState::Degraded);
    for host in HOSTS {
        report(&mut ledger, host, false);
    }
    let refused = ledger
        .decide(&tenant("other", Nanos::from_micros(80)), Nanos(1))
        .expect_err("no host has classes");
    assert!(
        refused.to_string().contains("no delay classes"),
        "{refused}"
    );
}

#[test]
fn a_refusal_names_the_full_delay_class_and_fitting_requests() {
    let ledger = classed();
    let call = tenant("wide", Nanos::from_micros(190));
    let Command::Create(new) = &call.command else {
        unreachable!("it creates");
    };
    let mut request = new.request();
    request.vms = 6;
    // One machine on each host.
    let (height, count) = (0, 6);
    request.domains = Some(FaultDomains { height, count });
    let guarantee = request.guarantee.as_mut().unwrap();
    guarantee.burst = Bytes(20_000);
    guarantee.burst_rate = Some(Rate::from_mbit(10_000));
    let refused = ledger.explain(&request).unwrap();
    assert!(!refused.fits);
    let overload = refused.overload.expect("a port refuses");
    assert!(
        overload.message.starts_with("delay class 1 of port"),
        "{overload:?}"
    );
    let longer = refused
        .nearest
        .iter()
        .find(|it| it.change.contains("delay"));
    let longer = longer.expect("the ordinary class has room").request;
    assert_eq!(longer.class(), None);
    for near in &refused.nearest {
        assert!(ledger.fit(&near.request).unwrap().fits, "{near:?}");
    }
}

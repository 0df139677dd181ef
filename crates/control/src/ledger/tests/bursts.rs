//! The number of bursts into each subtree: hosts that keep it, and tenants without it.

use super::*;
use tailbound_api::{NewTenant, TenantState};
use tailbound_placement::{DEFAULT_BURSTS, HostLimits, Message};
use tailbound_units::{Bursts, Bytes};

const HOSTS: [&str; 6] = [
    "host-1", "host-2", "host-3", "other-1", "other-2", "other-3",
];

fn report(ledger: &mut Ledger, host: &str, subtree_bursts: bool) {
    report_both(ledger, host, subtree_bursts, false);
}

fn report_both(ledger: &mut Ledger, host: &str, subtree_bursts: bool, inward_bursts: bool) {
    let limits = HostLimits {
        subtree_bursts,
        inward_bursts,
        ..limits_of_link(10_000)
    };
    let report = report_of(ledger, limits);
    send_report(ledger, host, report);
}

/// A ledger of which all hosts limit bursts by subtree, or none.
fn reported(subtree_bursts: bool) -> Ledger {
    let (mut ledger, _) = ledger();
    for host in HOSTS {
        report(&mut ledger, host, subtree_bursts);
    }
    ledger
}

/// A tenant of ten machines with messages of 15 KB.
fn new(name: &str, bursts: Bursts) -> NewTenant {
    let Command::Create(mut new) = create("acme", name, 10).command else {
        unreachable!("it creates");
    };
    new.guarantee.as_mut().unwrap().bursts = Some(bursts);
    new.message = Some(Message {
        size: Bytes(15_000),
        send: Nanos::ZERO,
        receive: Nanos::ZERO,
    });
    new
}

fn decide(ledger: &mut Ledger, new: NewTenant) -> Result<Arc<Tenant>, LedgerError> {
    let decision = ledger.decide(&call(Command::Create(new)), Nanos(1))?;
    Ok(tenant(&decision.reply))
}

#[test]
fn subtree_hosts_receive_the_burst_number_and_all_host_paths() {
    let mut ledger = reported(true);
    let web = decide(&mut ledger, new("web", Bursts::ONE)).unwrap();
    decide(&mut ledger, new("all", Bursts::PerReceiver)).unwrap();
    let used: Vec<&str> = web.hosts().collect();
    assert!(used.len() > 1, "{used:?}");
    let guarantees = ledger.guarantees(used[0]).unwrap();
    let bursts = |vm: &str| {
        let vm = guarantees.vms.iter().find(|it| it.vm.starts_with(vm));
        vm.map(|vm| vm.guarantee.unwrap().bursts)
    };
    assert_eq!(bursts("acme/web/"), Some(Some(Bursts::ONE)));
    assert_ne!(bursts("acme/all/"), Some(Some(Bursts::PerReceiver)));
    let places = guarantees.places.iter();
    let places: Vec<_> = places
        .map(|place| (place.host.as_str(), place.path.join(" ")))
        .collect();
    let expected = used.iter().map(|host| {
        let rack = if host.starts_with("host") {
            "left"
        } else {
            "right"
        };
        (*host, rack.to_owned())
    });
    assert_eq!(places, expected.collect::<Vec<_>>());
    // A host with an earlier daemon would send more than admission counts.
    report(&mut ledger, used[0], false);
    let guarantees = ledger.guarantees(used[0]).unwrap();
    let of_web = guarantees.vms.iter().filter(|it| it.tenant == web.id);
    assert!(of_web.clone().count() > 0);
    assert!(of_web.into_iter().all(|vm| vm.guarantee.is_none()));
    let standing = ledger.standing(web.id, true).unwrap();
    assert_eq!(standing.state, TenantState::Degraded);
    let why = standing.hosts.iter().find_map(|host| host.why.as_deref());
    assert!(
        why.unwrap().contains("limits bursts for each receiver"),
        "{why:?}"
    );
}

#[test]
fn a_number_of_bursts_is_refused_where_no_host_keeps_it() {
    let mut ledger = reported(false);
    let error = decide(&mut ledger, new("web", Bursts::ONE)).unwrap_err();
    let said = error.to_string();
    assert!(said.contains("request bursts = \"per-receiver\""), "{said}");
    decide(&mut ledger, new("all", Bursts::PerReceiver)).unwrap();
    let guarantees = ledger.guarantees("host-1").unwrap();
    assert!(guarantees.places.is_empty());
    let text = serde_json::to_string(&guarantees).unwrap();
    assert!(
        !text.contains("bursts"),
        "an earlier daemon reads it: {text}"
    );
}

#[test]
fn hosts_without_a_report_count_as_the_current_version() {
    let (mut ledger, _) = ledger();
    let admitted = decide(&mut ledger, new("web", Bursts::ONE));
    assert_eq!(admitted.is_ok(), DEFAULT_BURSTS.is_per_subtree());
}

#[test]
fn a_tenant_of_an_earlier_version_keeps_a_burst_for_each_receiver() {
    let mut ledger = reported(true);
    let loads = |ledger: &Ledger| observe(ledger).loads;
    let web = decide(&mut ledger, new("web", Bursts::PerReceiver)).unwrap();
    let counted = loads(&ledger);
    let mut earlier = (*web).clone();
    let text = serde_json::to_string(&earlier).unwrap();
    let text = text.replace(",\"bursts\":\"per-receiver\"", "");
    earlier = serde_json::from_str(&text).unwrap();
    assert_eq!(earlier.request.guarantee.unwrap().bursts, None);
    ledger.apply(&[Change::Tenant(Arc::new(earlier))]).unwrap();
    assert_eq!(loads(&ledger), counted);
    let grown = Command::resize(web.id, 11);
    let grown = ledger.decide(&call(grown), Nanos(1)).unwrap();
    let grown = tenant(&grown.reply).request.guarantee.unwrap();
    assert_eq!(grown.bursts, None, "it stays as it is");
    let delete = call(Command::Delete { id: web.id });
    let _ = ledger.decide(&delete, Nanos(1)).unwrap();
    decide(&mut ledger, new("web", Bursts::ONE)).unwrap();
    let pairs = counted.iter().flatten().map(|load| load.curves()[5].burst);
    let fewer = loads(&ledger);
    let subtrees = fewer.iter().flatten().map(|load| load.curves()[5].burst);
    assert!(subtrees.sum::<u64>() < pairs.sum(), "it gains");
}

#[test]
fn a_bound_includes_the_wait_for_bursts_to_neighbours() {
    let mut ledger = reported(true);
    let after = |ledger: &mut Ledger, name, bursts| {
        let tenant = decide(ledger, new(name, bursts)).unwrap();
        let message = ledger.bound(tenant.id, 0, 9).unwrap().message.unwrap();
        message.after_bursts
    };
    // 15 KB at 200 Mbit/s take 600 us, and nine machines share a receiver.
    let shared = Some(Nanos::from_micros(9 * 600));
    assert_eq!(after(&mut ledger, "one", Bursts::ONE), shared);
    assert_eq!(after(&mut ledger, "all", Bursts::PerReceiver), None);
    assert_eq!(after(&mut ledger, "nine", Bursts::PerSubtree(9)), None);
}

/// A tenant of ten machines, of which each gets 45 KB beyond its bandwidth at most: always
/// 2.5 KB of each other.
fn with_inward_burst(name: &str, message: u64) -> NewTenant {
    let mut new = new(name, Bursts::ONE);
    let guarantee = new.guarantee.as_mut().unwrap();
    (guarantee.burst, guarantee.burst_in) = (Bytes(15_000), Some(Bytes(45_000)));
    new.message.as_mut().unwrap().size = Bytes(message);
    new
}

#[test]
fn an_inward_burst_needs_hosts_that_keep_it() {
    let mut ledger = reported(true);
    let error = decide(&mut ledger, with_inward_burst("web", 5_000)).unwrap_err();
    let said = error.to_string();
    assert!(said.contains("does not limit inward bursts"), "{said}");
    for host in HOSTS {
        report_both(&mut ledger, host, true, true);
    }
    let web = decide(&mut ledger, with_inward_burst("web", 5_000)).unwrap();
    let host = web.hosts().next().unwrap().to_owned();
    let told = |ledger: &Ledger| {
        let guarantees = ledger.guarantees(&host).unwrap();
        let vm = guarantees.vms.iter().find(|vm| vm.tenant == web.id);
        vm.unwrap().guarantee.map(|guarantee| guarantee.burst_in)
    };
    assert_eq!(told(&ledger), Some(Some(Bytes(45_000))));
    // A host with an earlier daemon would send more than admission counts.
    report(&mut ledger, &host, true);
    assert_eq!(told(&ledger), None);
    let standing = ledger.standing(web.id, true).unwrap();
    assert_eq!(standing.state, TenantState::Degraded);
}

#[test]
fn a_bound_counts_the_part_of_an_inward_burst() {
    let (mut ledger, _) = ledger();
    for host in HOSTS {
        report_both(&mut ledger, host, true, true);
    }
    let mut bound = |name, message| {
        let tenant = decide(&mut ledger, with_inward_burst(name, message)).unwrap();
        ledger.bound(tenant.id, 0, 9).unwrap().message.unwrap()
    };
    let whole = bound("whole", 2_500);
    assert_eq!(
        (whole.burst, whole.at_bandwidth),
        (Bytes(2_500), Nanos::ZERO)
    );
    let more = bound("more", 12_500);
    assert_eq!(more.burst, Bytes(2_500));
    // 10 KB at a ninth of 200 Mbit/s.
    assert_eq!(more.at_bandwidth, Nanos::from_micros(9 * 400));
}

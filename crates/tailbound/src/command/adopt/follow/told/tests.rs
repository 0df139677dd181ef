use super::*;
use tailbound_adopt::{LONGEST_PACKET, Origin, Port, Rules, Step};

/// The service's word: the guarantees of VMs of `acme/web`, by number, in Mbit/s.
fn said(vms: &[(u32, Option<u64>)]) -> HostGuarantees {
    let vms = vms.iter().map(|(number, mbit)| {
        let guarantee = mbit.map(|mbit| {
            serde_json::json!({
                "bandwidth": format!("{mbit}Mbit/s"), "burst": "15KB", "burst_rate": "1Gbit/s",
            })
        });
        let vm = format!("acme/web/{number}");
        serde_json::json!({"vm": vm, "tenant": 1, "tenant_vms": 2, "guarantee": guarantee})
    });
    let vms: Vec<_> = vms.collect();
    let all =
        serde_json::json!({"host": "h", "state": "open", "revision": 7, "change": 5, "vms": vms});
    serde_json::from_value(all).expect("the service's own form")
}

/// An adopted guest that requests what its programs have.
fn entry(vm: Option<&str>, guarantee: Option<u64>) -> Entry {
    let guarantee = guarantee.map(|mbit| Bucket {
        rate: Rate::from_mbit(mbit),
        burst: Bytes(15_000),
    });
    let peak = guarantee.map(|_| Rate::from_mbit(1_000));
    let packet = guarantee.map(|_| LONGEST_PACKET);
    let request = Request {
        guarantee,
        peak,
        allowance: Allowance {
            packet,
            lateness: None,
        },
        dscp: guarantee.map(|_| 46),
        vm: vm.map(str::to_owned),
        ..Request::default()
    };
    let rules = Rules {
        guarantee,
        peak,
        packet,
        ..Rules::default()
    };
    let step = serde_json::json!({
        "port": Port { index: 3, name: "vnet3".to_owned(), mac: "02:00:00:00:00:01".parse().unwrap() },
        "before": {"qdisc": "fq_codel", "clsact": false},
        "action": "guest", "rules": rules,
    });
    Entry {
        key: "pod:1".to_owned(),
        name: "web".to_owned(),
        boot: "b".to_owned(),
        namespace: 1,
        origin: Origin::Command,
        request,
        uplink: None,
        steps: vec![serde_json::from_value::<Step>(step).unwrap()],
    }
}

fn lateness(frames: u64, max: u64) -> edge::Lateness {
    let mut buckets = [0; edge::Lateness::BUCKETS];
    buckets[4] = frames;
    let max = Nanos(max);
    edge::Lateness { buckets, max }
}

fn report(said: &HostGuarantees, adopted: Vec<AdoptedVm>) -> HostReport {
    Situation {
        said,
        adopted,
        failures: &BTreeMap::new(),
        lateness: Some(lateness(20_000, 12_600)),
        link: Rate::from_mbit(10_000),
        packet: LONGEST_PACKET,
        exchanges: false,
    }
    .report()
}

#[test]
fn a_guarantee_that_is_in_force_is_confirmed_and_others_are_refused() {
    let said = said(&[(0, Some(100)), (1, Some(200)), (2, None)]);
    let own = entry(Some("acme/web/0"), Some(100));
    let all = report(&said, vec![AdoptedVm::of(&own, true)]);
    assert_eq!((all.revision, all.change), (7, 5));
    let refused: Vec<_> = all.refused.iter().map(|it| it.vm.as_str()).collect();
    assert_eq!(refused, ["acme/web/1"], "the last one has no guarantee");
    // Programs that are gone, and another rate in the kernel.
    for (other, is_in_force) in [(100, false), (101, true)] {
        let own = entry(Some("acme/web/0"), Some(other));
        let all = report(&said, vec![AdoptedVm::of(&own, is_in_force)]);
        assert_eq!(all.refused.len(), 2, "{other}");
    }
}

#[test]
fn a_host_report_has_the_lateness_with_margin_or_warming_up() {
    let said = said(&[]);
    let all = report(&said, Vec::new()).limits.unwrap();
    assert_eq!(all.lateness, Lateness::Within(Nanos::from_micros(40)));
    let mut situation = Situation {
        said: &said,
        adopted: Vec::new(),
        failures: &BTreeMap::new(),
        lateness: Some(lateness(9_999, 12_600)),
        link: Rate::from_mbit(10_000),
        packet: LONGEST_PACKET,
        exchanges: false,
    };
    let bound = |situation: &Situation<'_>| situation.report().limits.unwrap().lateness;
    assert_eq!(bound(&situation), Lateness::WarmingUp);
    situation.lateness = None;
    assert_eq!(bound(&situation), Lateness::WarmingUp);
    // Frames of guests count beside those of the warm-up.
    situation.lateness = both(Some(lateness(10_000, 9_000)), Some(lateness(3, 2_000_000)));
    assert_eq!(bound(&situation), Lateness::Within(Nanos::from_millis(3)));
}

#[test]
fn the_reserved_rate_counts_guests_outside_the_service() {
    let said = said(&[(0, Some(100))]);
    let guests = [
        entry(None, Some(300)),
        entry(Some("acme/web/0"), Some(100)),
        entry(Some("acme/old/0"), Some(50)),
    ];
    let guests = guests.iter().map(|entry| AdoptedVm::of(entry, true));
    let all = report(&said, guests.collect());
    assert_eq!(all.limits.unwrap().reserved, Rate::from_mbit(350));
}

#[test]
fn a_guest_gets_the_services_guarantee_in_the_class_of_its_bounds() {
    let said = said(&[(0, Some(100)), (1, None)]);
    let entries = [
        entry(Some("acme/web/0"), None),
        entry(Some("acme/web/1"), Some(7)),
        entry(Some("acme/old/0"), Some(50)),
        entry(None, Some(50)),
    ];
    let orders = orders(&said, &entries, LONGEST_PACKET);
    let wanted: Vec<_> = orders
        .iter()
        .map(|(_, it)| (it.vm.as_deref().unwrap(), it.guarantee, it.peak, it.dscp))
        .collect();
    let bucket = Bucket {
        rate: Rate::from_mbit(100),
        burst: Bytes(15_000),
    };
    let peak = Some(Rate::from_mbit(1_000));
    assert_eq!(
        wanted,
        [
            ("acme/web/0", Some(bucket), peak, Some(46)),
            ("acme/web/1", None, None, None)
        ]
    );
    // A request that is in force already is no order.
    let request = orders[0].1.clone();
    let done = Entry {
        request,
        ..entry(Some("acme/web/0"), Some(100))
    };
    assert!(super::orders(&said, &[done], LONGEST_PACKET).is_empty());
}

#[test]
fn guarantees_are_refused_until_the_packet_limit_is_in_force() {
    const FRAME: Bytes = Bytes(1_538);
    let said = said(&[(0, Some(100))]);
    let own = entry(Some("acme/web/0"), Some(100));
    assert_eq!(
        report(&said, Vec::new()).limits.unwrap().packet,
        Some(LONGEST_PACKET)
    );
    // Another limit on packets is no guarantee of this host until it is in force.
    let situation = Situation {
        said: &said,
        adopted: vec![AdoptedVm::of(&own, true)],
        failures: &BTreeMap::new(),
        lateness: None,
        link: Rate::from_mbit(10_000),
        packet: FRAME,
        exchanges: true,
    };
    let report = situation.report();
    assert_eq!(report.limits.unwrap().packet, Some(FRAME));
    assert_eq!(report.refused.len(), 1);
    let entries = [own];
    let orders = super::orders(&said, &entries, FRAME);
    assert_eq!(orders[0].1.allowance.packet, Some(FRAME));
}

/// Guests with a guarantee in force whose MAC address the guard knows exchange rates, with B, S and N of the
/// service.
#[test]
fn guests_whose_address_the_guard_knows_exchange_rates() {
    let said = said(&[(0, Some(100)), (1, Some(100)), (2, None), (3, Some(100))]);
    let guarded = |number: u32, guarantee| {
        let mut entry = entry(Some(&format!("acme/web/{number}")), guarantee);
        let Action::Guest { rules } = &mut entry.steps[0].action else {
            panic!("a guest");
        };
        rules.guard = Some(Station {
            mac: "02:00:00:00:00:07".parse().expect("an address"),
            ips: vec!["10.0.0.7".parse().expect("an address")],
        });
        entry
    };
    let adopted = vec![
        AdoptedVm::of(&guarded(0, Some(100)), true),
        AdoptedVm::of(&entry(Some("acme/web/1"), Some(100)), true),
        AdoptedVm::of(&guarded(2, None), true),
        AdoptedVm::of(&guarded(3, Some(100)), false),
    ];
    let situation = Situation {
        said: &said,
        adopted,
        failures: &BTreeMap::new(),
        lateness: None,
        link: Rate::from_mbit(10_000),
        packet: LONGEST_PACKET,
        exchanges: false,
    };
    let guests = situation.exchanging();
    let [guest] = guests.as_slice() else {
        panic!("{guests:?}");
    };
    assert_eq!((guest.vm.as_str(), guest.ifindex), ("acme/web/0", 3));
    assert_eq!(guest.mac, [2, 0, 0, 0, 0, 7]);
    assert_eq!(guest.bandwidth, Rate::from_mbit(100));
    assert_eq!((guest.burst, guest.tenant_vms), (Bytes(15_000), 2));
    assert_eq!((guest.ips.len(), guest.inward), (1, None));
}

#[test]
fn an_inward_burst_needs_the_exchange_and_the_address_of_its_guest() {
    let mut said = said(&[(0, Some(100))]);
    let guarantee = said.vms[0].guarantee.as_mut().expect("one");
    guarantee.burst_in = Some(Bytes(15_000));
    let mut own = entry(Some("acme/web/0"), Some(100));
    let why = |own: &Entry, exchanges| {
        let situation = Situation {
            said: &said,
            adopted: vec![AdoptedVm::of(own, true)],
            failures: &BTreeMap::new(),
            lateness: None,
            link: Rate::from_mbit(10_000),
            packet: LONGEST_PACKET,
            exchanges,
        };
        let report = situation.report();
        let limits = report.limits.expect("limits");
        assert_eq!(limits.inward_bursts, exchanges);
        let inward = situation.exchanging().first().map(|guest| guest.inward);
        let why = report.refused.first().map(|refused| refused.why.clone());
        (why.unwrap_or_default(), inward)
    };
    assert!(why(&own, false).0.contains("--hose"));
    assert!(why(&own, true).0.contains("without --no-guard"));
    let Action::Guest { rules } = &mut own.steps[0].action else {
        panic!("a guest");
    };
    rules.guard = Some(Station {
        mac: "02:00:00:00:00:07".parse().expect("an address"),
        ips: Vec::new(),
    });
    // One other machine always has all of it.
    let inward = KernelInward {
        most: Bytes(15_000),
        part: Bytes(15_000),
    };
    assert_eq!(why(&own, true), (String::new(), Some(Some(inward))));
}

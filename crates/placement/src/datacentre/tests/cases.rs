//! Cases worth a name.

use super::*;

/// Silo's figure 5: three hosts at a switch of 10 Gbit/s. The hosts' own queues
/// of 200 us are what the bursts of three machines need.
fn figure_5(buffer: u64) -> Datacentre {
    let uplink = UplinkSpec {
        up_buffer: Some(Bytes(250_000)),
        ..link(10_000, buffer)
    };
    let spec = Spec {
        frame: Bytes(1_500),
        packet: None,
        classes: Classes::default().into(),
        delay_classes: Vec::new(),
        groups: vec![group("rack", None, link(1_000, 1_000_000))],
        hosts: vec![host("host", "rack", 3, 8, uplink)],
    };
    Datacentre::new(spec.build().unwrap(), Policy::Silo)
}

fn nine() -> Request {
    let mut nine = request(9, 1_000, 100_000);
    nine.guarantee.as_mut().unwrap().burst_rate = Some(Rate(10_000_000_000));
    nine
}

#[test]
fn figure_5_takes_more_buffer_than_the_paper_counts() {
    // 300 KB are too small when machines go on at their average during a burst, six
    // of them as each pair has a burst, and the host's own queue makes bursts larger by
    // 200 us · 6 Gbit/s.
    let refused = figure_5(300_000);
    assert_eq!(
        refused.fit(&nine()),
        Err(AdmitError::NoPlacement(PlacementError::Ports))
    );
    let why = refused.explain(&nine()).unwrap().unwrap();
    let overload = why.overload.unwrap();
    assert_eq!(
        overload.to_string(),
        "port \"host-1 down\" of 10Gbit/s would hold 551.2KB at worst, and may hold 298.5KB: \
         252.7KB too many, 202.16us more than its 240us; it carries 0B + 0bit/s, \
         the request adds 750KB + 6Gbit/s, then 1.875MB + 3Gbit/s"
    );
    let nearest: Vec<String> = why.nearest.iter().map(Adjustment::to_string).collect();
    assert_eq!(
        nearest,
        [
            "8 machines",
            "a burst of 61.42KB",
            "a burst rate of 2.089Gbit/s",
            "an inward burst of 278.4KB"
        ]
    );
    // Twice as much is enough, and for machines in equal parts only.
    let dc = figure_5(600_000);
    let found = dc.fit(&nine()).unwrap();
    assert_eq!(
        found
            .hosts()
            .iter()
            .map(|(_, count)| *count)
            .collect::<Vec<_>>(),
        [3, 3, 3]
    );
    let lopsided = Placement::new(dc.topology.hosts().iter().copied().zip([4, 4, 1]));
    assert_eq!(dc.verify(&nine(), &lopsided), Err(PlacementError::Overload));
}

#[test]
fn each_policy_checks_different_constraints() {
    let fits = |policy, request: &Request| {
        let dc = Datacentre::new(figure_5(300_000).topology.clone(), policy);
        dc.fit(request).is_ok()
    };
    let fast = request(16, 3_000, 1_500);
    for (policy, bursts, rates) in [
        (Policy::Silo, false, false),
        (Policy::Oktopus, true, false),
        (Policy::OktopusBursts, true, false),
        (Policy::Locality, true, true),
    ] {
        assert_eq!(
            (fits(policy, &nine()), fits(policy, &fast)),
            (bursts, rates),
            "{policy:?}"
        );
    }
}

/// Two racks of two hosts, and a pod of one rack of one host.
fn small() -> Datacentre {
    let spec = Spec {
        frame: Bytes(1_538),
        packet: None,
        classes: Classes::default().into(),
        delay_classes: Vec::new(),
        groups: vec![
            group("pod1", None, link(10_000, 300_000)),
            group("pod2", None, link(10_000, 300_000)),
            group("rack1", Some("pod1"), link(10_000, 300_000)),
            group("rack2", Some("pod1"), link(10_000, 300_000)),
            group("rack3", Some("pod2"), link(10_000, 300_000)),
        ],
        hosts: vec![
            host("a", "rack1", 2, 4, link(10_000, 300_000)),
            host("b", "rack2", 2, 4, link(10_000, 300_000)),
            host("c", "rack3", 1, 4, link(10_000, 300_000)),
        ],
    };
    Datacentre::new(spec.build().unwrap(), Policy::Silo)
}

fn names(dc: &Datacentre, placement: &Placement) -> Vec<(String, u32)> {
    let hosts = placement.hosts().iter();
    hosts
        .map(|(host, count)| (dc.topology.name(*host).to_owned(), *count))
        .collect()
}

#[test]
fn the_lowest_place_is_taken() {
    let mut dc = small();
    let one = dc
        .admit(TenantId(1), &request(3, 100, 1_500))
        .unwrap()
        .clone();
    assert_eq!(names(&dc, &one), [("a-1".to_owned(), 3)]);
    // Five do not fit rack 1 with three taken... but they do: 1 + 4.
    let two = dc
        .admit(TenantId(2), &request(5, 100, 1_500))
        .unwrap()
        .clone();
    assert_eq!(
        names(&dc, &two),
        [("a-1".to_owned(), 1), ("a-2".to_owned(), 4)]
    );
    let three = dc
        .admit(TenantId(3), &request(4, 100, 1_500))
        .unwrap()
        .clone();
    assert_eq!(names(&dc, &three), [("b-1".to_owned(), 4)]);
    let four = dc
        .admit(TenantId(4), &request(6, 100, 1_500))
        .unwrap()
        .clone();
    assert_eq!(
        names(&dc, &four),
        [("b-2".to_owned(), 4), ("c".to_owned(), 2)]
    );
}

#[test]
fn a_delay_keeps_machines_near() {
    // 240 us a queue: two in a rack, four in a pod, six over the core.
    let mut dc = small();
    let within = |micros: u64, vms: u32| {
        let mut request = request(vms, 100, 1_500);
        request.guarantee.as_mut().unwrap().delay = Some(Nanos::from_micros(micros));
        request
    };
    assert_eq!(
        dc.fit(&within(479, 5)),
        Err(AdmitError::NoPlacement(PlacementError::Delay {
            least: Nanos::from_micros(480),
            limit: Nanos::from_micros(479),
        }))
    );
    assert!(dc.fit(&within(479, 4)).is_ok(), "one host has no queues");
    assert!(dc.fit(&within(480, 5)).is_ok());
    assert!(dc.fit(&within(960, 9)).is_ok());
    assert!(dc.fit(&within(1_439, 17)).is_err());
    let why = dc.explain(&within(1_439, 17)).unwrap().unwrap();
    assert!(
        why.nearest.contains(&Adjustment::Vms(16)),
        "{:?}",
        why.nearest
    );
    assert!(dc.admit(TenantId(1), &within(1_440, 17)).is_ok());
}

#[test]
fn fault_domains_keep_machines_apart() {
    let mut apart = request(4, 100, 1_500);
    for (height, count, expected) in [
        (0, 2, vec![("a-1", 2), ("a-2", 2)]),
        (1, 2, vec![("a-1", 2), ("b-1", 2)]),
        (2, 2, vec![("a-1", 2), ("c", 2)]),
        (1, 3, vec![("a-1", 2), ("b-1", 2)]),
        (1, 4, vec![("a-1", 1), ("b-1", 1), ("c", 1)]),
    ] {
        apart.domains = Some(FaultDomains { height, count });
        let dc = small();
        let found = dc.fit(&apart).map(|placement| names(&dc, &placement));
        if (height, count) == (1, 4) {
            assert!(found.is_err(), "there are three racks");
            continue;
        }
        let expected: Vec<_> = expected
            .into_iter()
            .map(|(host, count)| (host.to_owned(), count))
            .collect();
        assert_eq!(found.unwrap(), expected);
    }
}

#[test]
fn no_fault_domain_has_more_than_its_part_rounded_up() {
    let dc = small();
    for vms in 1..=8_u32 {
        for count in 1..=vms.min(3) {
            let domains = FaultDomains { height: 1, count };
            let mut apart = request(vms, 10, 1_500);
            apart.domains = Some(domains);
            let placement = dc.fit(&apart).unwrap();
            let mut racks: BTreeMap<NodeId, u32> = BTreeMap::new();
            for &(host, machines) in placement.hosts() {
                let rack = dc.topology.parent(host).unwrap();
                *racks.entry(rack).or_default() += machines;
            }
            let part = f64::from(vms) / f64::from(count);
            let largest = racks.into_values().max().unwrap();
            assert!(f64::from(largest) < part + 1.0, "{largest} for {apart:?}");
            assert!(largest <= domains.most(vms));
        }
    }
    // The documented case: two racks are enough.
    let three = FaultDomains {
        height: 1,
        count: 3,
    };
    assert_eq!([3, 4, 6].map(|vms| three.most(vms)), [1, 2, 2]);
}

#[test]
fn a_closed_host_lists_affected_tenants_and_their_new_places() {
    let mut dc = small();
    dc.admit(TenantId(1), &request(6, 100, 1_500)).unwrap();
    dc.admit(TenantId(2), &request(2, 100, 1_500)).unwrap();
    let a2 = dc.topology.find("a-2").unwrap();
    let affected = dc.close(a2);
    let lost: Vec<_> = affected
        .iter()
        .map(|affected| (affected.tenant.0, affected.lost))
        .collect();
    assert_eq!(lost, [(1, 2), (2, 2)]);
    assert_eq!(dc.free(a2).slots, 0);
    let refit = affected[0].refit.clone().unwrap();
    assert_eq!(
        names(&dc, &refit),
        [("a-1".to_owned(), 4), ("b-1".to_owned(), 2)]
    );
    assert_eq!(*dc.relocate(TenantId(1)).unwrap(), refit);
    dc.relocate(TenantId(2)).unwrap();
    assert!(dc.close(a2).is_empty());
    dc.open(a2);
    assert_eq!(dc.free(a2).slots, 4);
}

#[test]
fn a_request_without_a_guarantee_needs_slots_only() {
    let mut dc = small();
    let mut rest = request(18, 1, 0);
    rest.guarantee = None;
    dc.admit(TenantId(1), &rest).unwrap();
    assert!(
        dc.loads
            .ordinary
            .iter()
            .flatten()
            .all(|load| *load == Load::NONE)
    );
    let full = dc.fit(&Request { vms: 3, ..rest });
    assert_eq!(
        full,
        Err(AdmitError::NoPlacement(PlacementError::Slots {
            wanted: 3,
            free: 2
        }))
    );
}

#[test]
fn nonsense_is_refused_by_name() {
    let mut dc = small();
    let good = request(2, 100, 1_500);
    dc.admit(TenantId(1), &good).unwrap();
    assert_eq!(
        dc.admit(TenantId(1), &good),
        Err(AdmitError::Exists(TenantId(1)))
    );
    assert_eq!(
        dc.release(TenantId(2)),
        Err(AdmitError::Unknown(TenantId(2)))
    );
    assert_eq!(
        dc.resize(TenantId(1), 0),
        Err(AdmitError::Request(RequestError::NoVms))
    );
    let absurd = request(2, 2_000_000, 1_500);
    assert!(matches!(
        dc.fit(&absurd),
        Err(AdmitError::Request(RequestError::Range { .. }))
    ));
    assert!(
        dc.fit(&request(u32::MAX, 1_000_000, 1_000_000_000))
            .is_err()
    );
    let top = Placement::new([(NodeId::TOP, 2)]);
    assert_eq!(
        dc.restore(TenantId(3), &good, top),
        Err(AdmitError::NotAHost(0))
    );
    let a1 = dc.topology.find("a-1").unwrap();
    let three = Placement::new([(a1, 3)]);
    assert_eq!(
        dc.restore(TenantId(3), &good, three),
        Err(AdmitError::Count { placed: 3, vms: 2 })
    );
}

#[test]
fn bursts_of_many_pairs_are_bounded() {
    let of = |vms, burst| {
        let mut request = request(vms, 100, 0);
        request.guarantee.as_mut().unwrap().burst = Bytes(burst);
        request.check().is_ok()
    };
    // A million pairs of 2,000 machines have 2^48 B at most, and any pair may have 100 KB.
    assert!(of(1_000, 1_000_000_000));
    assert!(of(2_000, 281_474_976) && !of(2_000, 281_474_977));
    assert!(of(4_000_000, 100_000) && !of(4_000_000, 100_001));
}

/// Returns the text of `explain`, one line for the rule and one for each nearest request.
fn told(dc: &Datacentre, request: &Request) -> String {
    let why = dc.explain(request).unwrap().unwrap();
    let port = why.overload.iter().map(|overload| overload.name.clone());
    let nearest = why.nearest.iter().map(|near| {
        assert!(dc.fit(&near.apply(request)).is_ok(), "{near:?}");
        near.to_string()
    });
    let rule = std::iter::once(why.error.to_string());
    rule.chain(port)
        .chain(nearest)
        .collect::<Vec<_>>()
        .join("; ")
}

#[test]
fn each_kind_of_refusal_suggests_requests_that_pass() {
    let without = |vms| Request {
        guarantee: None,
        ..request(vms, 1, 0)
    };
    assert_eq!(
        told(&small(), &without(21)),
        "21 machines do not fit: 20 slots are free, if CPUs, memory and the hosts' links allow; 20 \
         machines"
    );
    let spec = Spec {
        frame: Bytes(1_538),
        packet: None,
        classes: Classes::default().into(),
        delay_classes: Vec::new(),
        groups: vec![group("rack", None, link(1_000, 1_000_000))],
        hosts: vec![HostSpec {
            cpu: Some(8_000),
            memory: Some(Bytes(64_000)),
            ..host("a", "rack", 2, 4, link(10_000, 300_000))
        }],
    };
    let counted = Datacentre::new(spec.build().unwrap(), Policy::Silo);
    let large = Request {
        cpu: 4_000,
        ..without(5)
    };
    assert_eq!(
        told(&counted, &large),
        "5 machines do not fit: 8 slots are free, if CPUs, memory and the hosts' links allow; 4 \
         machines; 2663 thousandths of a CPU"
    );
    let large = Request {
        memory: Bytes(64_001),
        ..request(1, 100, 1_500)
    };
    assert_eq!(
        told(&counted, &large),
        "1 machine does not fit: 8 slots are free, if CPUs, memory and the hosts' links allow; memory \
         of 63.93KB"
    );
    let apart = Request {
        domains: Some(FaultDomains {
            height: 1,
            count: 4,
        }),
        ..request(4, 100, 1_500)
    };
    assert_eq!(
        told(&small(), &apart),
        "the machines cannot be kept apart as asked for; 3 machines; 3 fault domains"
    );
    let mut lazy = small();
    lazy.set_effort(10);
    let large = request(20, 10, 1_500);
    assert!(small().fit(&large).is_ok());
    assert_eq!(
        told(&lazy, &large),
        "no place was found before the search gave up, after 134 looks at ports; not every place was \
         tried; 10 machines"
    );
}

#[test]
fn a_decision_looks_at_no_more_ports_than_it_may() {
    let mut dc = small();
    // A greater default takes longer than a millisecond, a smaller one refuses more.
    assert_eq!(dc.effort, 20_000);
    let large = request(20, 10, 1_500);
    dc.admit(TenantId(1), &large).unwrap();
    let enough = dc.last_effort();
    dc.release(TenantId(1)).unwrap();
    let before = dc.clone();
    for effort in 0..enough {
        dc.set_effort(effort);
        match dc.admit(TenantId(1), &large) {
            Err(AdmitError::NoPlacement(PlacementError::Effort { looks })) => {
                assert_eq!(looks, dc.last_effort());
                // Either search stops at the next node, with its two ports.
                assert!(
                    (effort..11 * effort + 80).contains(&looks),
                    "{looks} of {effort}"
                );
                assert_eq!(
                    check::DatacentreState::of(&before),
                    check::DatacentreState::of(&dc)
                );
            }
            other => {
                other.unwrap();
                dc.release(TenantId(1)).unwrap();
            }
        }
    }
    dc.set_effort(enough);
    dc.admit(TenantId(1), &large).unwrap();
}

#[test]
fn a_port_reports_its_backlog_delay_and_headroom() {
    let mut dc = small();
    let a1 = dc.topology.find("a-1").unwrap();
    let down = PortId {
        node: a1,
        direction: Direction::Down,
    };
    assert_eq!(dc.bound(down), Some(Bound::default()));
    assert_eq!(dc.headroom(down), 1_000);
    let mut apart = request(2, 1_000, 30_000);
    apart.domains = Some(FaultDomains {
        height: 0,
        count: 2,
    });
    dc.admit(TenantId(1), &apart).unwrap();
    // 30 KB, and what 1 Gbit/s is in the 240 us of the sender's queue: another
    // 30 KB. By two links of 10 Gbit/s they come in 24 us, in which one of
    // 10 Gbit/s takes 215,712 bits of them away.
    let bound = dc.bound(down).unwrap();
    assert_eq!(bound.backlog, 480_000 - 215_712);
    assert_eq!(bound.delay, Nanos((264_288 + 12_304) / 10 + 1));
    assert_eq!(dc.headroom(down), 889, "the queue is scarcer than the rate");
    let up = PortId {
        direction: Direction::Up,
        ..down
    };
    assert_eq!(dc.bound(up).unwrap().backlog, 240_000);
    let mut blind = Datacentre::new(dc.topology.clone(), Policy::Locality);
    blind.admit(TenantId(1), &request(8, 9_000, 1_500)).unwrap();
    assert_eq!(blind.bound(down), None);
    assert_eq!(blind.headroom(down), 0);
    let top = PortId {
        node: NodeId::TOP,
        ..down
    };
    assert_eq!(
        (dc.bound(top), dc.headroom(top)),
        (Some(Bound::default()), 1_000)
    );
}

#[test]
fn a_tenant_may_grow_beside_machines_on_a_closed_host() {
    let mut dc = small();
    dc.admit(TenantId(1), &request(2, 100, 1_500)).unwrap();
    let a1 = dc.topology.find("a-1").unwrap();
    dc.close(a1);
    let grown = dc.resize(TenantId(1), 3).unwrap().clone();
    assert_eq!(
        names(&dc, &grown),
        [("a-1".to_owned(), 2), ("a-2".to_owned(), 1)]
    );
}

/// A request for a delay, and the same without it.
fn with_and_without_delay() -> [Request; 2] {
    let mut with = request(4, 100, 3_000);
    with.guarantee.as_mut().unwrap().delay = Some(Nanos::from_millis(100));
    let mut without = with;
    without.guarantee.as_mut().unwrap().delay = None;
    [with, without]
}

fn with_classes(fabric: Fabric) -> Datacentre {
    let spec = Spec {
        frame: Bytes(1_500),
        packet: None,
        classes: Classes::of(fabric).into(),
        delay_classes: Vec::new(),
        groups: vec![group("rack", None, link(10_000, 500_000))],
        hosts: vec![host("host", "rack", 3, 8, link(10_000, 500_000))],
    };
    Datacentre::new(spec.build().unwrap(), Policy::Silo)
}

/// Nothing bounds the small flows of many hosts at one port, so a delay would be promised
/// that nothing keeps.
#[test]
fn a_small_flows_first_fabric_promises_no_delay() {
    let [with, without] = with_and_without_delay();
    for fabric in Fabric::ALL {
        let mut dc = with_classes(fabric);
        let refused = AdmitError::NoPlacement(PlacementError::Fabric { fabric });
        assert!(dc.admit(TenantId(1), &without).is_ok());
        if fabric.promises_delays() {
            assert!(dc.admit(TenantId(2), &with).is_ok());
            continue;
        }
        assert_eq!(dc.fit(&with), Err(refused.clone()));
        assert_eq!(dc.admit(TenantId(2), &with), Err(refused.clone()));
        let placed = with_classes(Fabric::ThreeClasses).fit(&with).unwrap();
        assert_eq!(dc.restore(TenantId(2), &with, placed), Err(refused));
        let why = dc.explain(&with).unwrap().unwrap();
        assert_eq!((why.overload, why.nearest), (None, Vec::new()));
        let said = why.error.to_string();
        assert!(said.contains("a fabric of small-flows-first"), "{said}");
    }
}

/// The part of a switch's buffer that lower classes can take is not available for guarantees; a
/// host's own queue shares nothing.
#[test]
fn only_the_unshared_part_of_a_buffer_counts_for_guarantees() {
    let with = |buffer, shared| {
        let link = UplinkSpec {
            shared_buffer: Bytes(shared),
            ..link(10_000, buffer)
        };
        let spec = Spec {
            frame: Bytes(1_500),
            packet: None,
            classes: Classes::default().into(),
            delay_classes: Vec::new(),
            groups: vec![group("rack", None, link.clone())],
            hosts: vec![host("host", "rack", 2, 8, link)],
        };
        let topology = spec.build().unwrap();
        let capacity = |name: &str, direction| {
            let node = topology.find(name).unwrap();
            topology.port(PortId { node, direction }).capacity
        };
        [
            capacity("host-1", Direction::Up),
            capacity("host-1", Direction::Down),
            capacity("rack", Direction::Up),
            capacity("rack", Direction::Down),
        ]
    };
    let of = |bytes: u64| Nanos(bytes * 8 / 10);
    assert_eq!(with(500_000, 0), [of(500_000); 4]);
    let shared = with(500_000, 300_000);
    assert_eq!(shared, [of(500_000), of(200_000), of(200_000), of(200_000)]);
}

/// Two racks of a host each, all of 10 Gbit/s, and how much the second one's queue upwards holds.
fn two_racks(up_buffer: u64) -> Datacentre {
    let second = UplinkSpec {
        up_buffer: Some(Bytes(up_buffer)),
        ..link(10_000, 300_000)
    };
    let spec = Spec {
        frame: Bytes(1_538),
        packet: None,
        classes: Classes::default().into(),
        delay_classes: Vec::new(),
        groups: vec![
            group("r0", None, link(10_000, 250_000)),
            group("r1", None, second),
        ],
        hosts: vec![
            host("a", "r0", 1, 4, link(10_000, 300_000)),
            host("c", "r1", 1, 4, link(10_000, 300_000)),
        ],
    };
    Datacentre::new(spec.build().unwrap(), Policy::Silo)
}

#[test]
fn ports_off_the_path_of_a_frame_do_not_count() {
    let bounds = [30_000, 500_000].map(|up_buffer| {
        let mut dc = two_racks(up_buffer);
        dc.admit(TenantId(1), &request(8, 250, 15_000)).unwrap();
        let node = dc.topology.find("c").unwrap();
        let direction = Direction::Down;
        dc.bound(PortId { node, direction }).unwrap()
    });
    assert_eq!(bounds[0], bounds[1], "c gets nothing by the way up from c");
}

#[test]
fn hosts_with_a_long_way_in_one_direction_are_near_enough() {
    // 400 us up and 50 us down: every path takes 450 us.
    let uplink = UplinkSpec {
        up_buffer: Some(Bytes(500_000)),
        ..link(10_000, 62_500)
    };
    let spec = Spec {
        frame: Bytes(1_538),
        packet: None,
        classes: Classes::default().into(),
        delay_classes: Vec::new(),
        groups: vec![group("rack", None, link(10_000, 300_000))],
        hosts: vec![host("host", "rack", 3, 4, uplink)],
    };
    let dc = Datacentre::new(spec.build().unwrap(), Policy::Silo);
    let within = |micros| {
        let mut request = request(9, 100, 1_500);
        request.guarantee.as_mut().unwrap().delay = Some(Nanos::from_micros(micros));
        dc.fit(&request).err().map(|error| error.to_string())
    };
    assert_eq!(
        within(449).unwrap(),
        "a delay of 449us cannot be promised: where there are enough slots, it takes at least 450us"
    );
    for micros in [450, 460, 490, 500] {
        assert_eq!(within(micros), None);
    }
}

#[test]
fn a_refusal_among_many_hosts_may_be_unfound_instead_of_proved() {
    // The hosts' switch has too little for a burst of all to one of them; more than 64 have room.
    let spec = |hosts: u32| Spec {
        frame: Bytes(1_538),
        packet: None,
        classes: Classes::default().into(),
        delay_classes: Vec::new(),
        groups: Vec::new(),
        hosts: vec![HostSpec {
            group: None,
            ..host("host", "", hosts, 1, link(10_000, 50_000))
        }],
    };
    let refused = |hosts, request| {
        let dc = Datacentre::new(spec(hosts).build().unwrap(), Policy::Silo);
        let AdmitError::NoPlacement(error) = dc.fit(&request).unwrap_err() else {
            panic!("it makes sense");
        };
        error
    };
    assert_eq!(refused(64, request(20, 10, 15_000)), PlacementError::Ports);
    assert_eq!(
        refused(65, request(20, 10, 15_000)),
        PlacementError::Ports,
        "no host could take any number, which is a proof"
    );
    // Three bursts fit at once, and what had waited before makes them too large.
    assert_eq!(
        refused(64, request(4, 2_000, 13_000)),
        PlacementError::Ports
    );
    assert_eq!(
        refused(65, request(4, 2_000, 13_000)),
        PlacementError::Unfound
    );
}

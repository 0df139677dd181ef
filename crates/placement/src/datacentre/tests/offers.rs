//! Admission under the limits that hosts report.

use super::check::{DatacentreState, all_promises_hold, state_is_as_recomputed};
use super::random::{apply, changes, requests, trees};
use super::*;
use crate::host::Lateness;
use crate::host::{HostLimits, HostOffer, HostRule};
use proptest::prelude::*;

/// Four hosts of four slots at 10 Gbit/s, taken for paced ones.
fn four() -> Datacentre {
    let spec = Spec {
        frame: Bytes(1_538),
        packet: None,
        classes: Classes::default().into(),
        delay_classes: Vec::new(),
        groups: vec![group("rack", None, link(40_000, 500_000))],
        hosts: vec![host("a", "rack", 4, 4, link(10_000, 300_000))],
    };
    let mut dc = Datacentre::new(spec.build().unwrap(), Policy::Silo);
    dc.assume_paced();
    dc
}

fn limits(link: u64, frame: u64) -> HostLimits {
    HostLimits {
        link: Rate::from_mbit(link),
        reserved: Rate(0),
        frame: Bytes(frame),
        slowest: Rate(10_000),
        subtree_bursts: true,
        inward_bursts: true,
        delay_classes: true,
        lateness: Lateness::Exact,
        packet: None,
    }
}

fn a(dc: &Datacentre, number: usize) -> NodeId {
    dc.topology().hosts()[number]
}

fn refused(dc: &Datacentre, request: &Request) -> HostRule {
    match dc.fit(request) {
        Err(AdmitError::NoPlacement(PlacementError::Hosts { rule, .. })) => rule,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_request_beyond_every_host_is_refused_by_a_host_rule() {
    let dc = four();
    // Machines on one host use no port, and its pacer counts them all the same.
    let fast = request(3, 100_000, 15_000);
    assert!(matches!(refused(&dc, &fast), HostRule::Bandwidth { .. }));
    let short = request(20, 10, 100);
    let rule = refused(&dc, &short);
    assert!(matches!(rule, HostRule::Burst { .. }));
    assert!(
        rule.to_string()
            .starts_with("a burst of 100B is below one frame"),
        "{rule}"
    );
    let mut sudden = request(2, 10, 15_000);
    sudden.guarantee.as_mut().unwrap().burst_rate = Some(Rate::from_mbit(11_000));
    assert!(matches!(refused(&dc, &sudden), HostRule::BurstRate { .. }));
    let report = dc.explain(&fast).unwrap().unwrap();
    assert_eq!(report.overload, None);
    assert!(!report.nearest.is_empty());
}

#[test]
fn machines_on_one_host_are_promised_no_more_than_its_link_in_all() {
    let mut dc = four();
    let placement = dc
        .admit(TenantId(1), &request(4, 4_000, 15_000))
        .unwrap()
        .clone();
    assert!(
        placement.hosts().iter().all(|(_, count)| *count <= 2),
        "{placement:?}"
    );
    // The second host of the two that are left says that its file promises half of its link.
    let reserved = HostLimits {
        reserved: Rate::from_mbit(5_000),
        ..limits(10_000, 1_538)
    };
    for number in 0..4 {
        dc.set_offer(a(&dc, number), HostOffer::Within(reserved));
    }
    let free: Vec<_> = dc
        .topology()
        .hosts()
        .iter()
        .filter(|host| dc.promised(**host).0 == 0)
        .copied()
        .collect();
    let placement = dc
        .admit(TenantId(2), &request(2, 3_000, 15_000))
        .unwrap()
        .clone();
    assert_eq!(
        placement,
        Placement::new(free.into_iter().map(|host| (host, 1)))
    );
}

#[test]
fn a_host_offer_narrows_the_topology_and_never_widens_it() {
    let mut dc = four();
    let (one, frames) = (request(1, 2_000, 15_000), request(1, 10, 0));
    for number in 1..4 {
        dc.set_offer(a(&dc, number), HostOffer::BestEffort);
    }
    for (offer, keeps_one, keeps_frames) in [
        (HostOffer::Within(limits(100_000, 1_538)), true, true),
        (HostOffer::Within(limits(1_000, 1_538)), false, true),
        // One frame of the topology is less than one of the host.
        (HostOffer::Within(limits(10_000, 9_038)), true, false),
        (HostOffer::BestEffort, false, false),
        (HostOffer::Nothing, false, false),
        (HostOffer::Unknown, true, true),
    ] {
        dc.set_offer(a(&dc, 0), offer);
        assert_eq!(dc.fit(&one).is_ok(), keeps_one, "{offer:?}");
        assert_eq!(dc.fit(&frames).is_ok(), keeps_frames, "{offer:?}");
    }
    dc.set_offer(a(&dc, 0), HostOffer::Within(limits(100_000, 1_538)));
    assert!(dc.fit(&request(1, 11_000, 15_000)).is_err());
    // Best effort goes where guarantees do not, and nowhere where nothing goes.
    let plain = Request {
        guarantee: None,
        ..request(16, 1, 0)
    };
    assert!(dc.fit(&plain).is_ok());
    dc.set_offer(a(&dc, 0), HostOffer::Nothing);
    assert!(dc.fit(&plain).is_err());
    assert_eq!(dc.fit(&Request { vms: 12, ..plain }).unwrap().vms(), 12);
}

#[test]
fn a_reduced_host_offer_takes_effect_at_a_relocation() {
    let mut dc = four();
    dc.admit(TenantId(1), &request(4, 2_000, 15_000)).unwrap();
    let first = a(&dc, 0);
    assert_eq!(
        dc.tenant(TenantId(1)).unwrap().placement,
        Placement::new([(first, 4)])
    );
    let asked = request(4, 2_000, 15_000);
    assert_eq!(dc.broken_rule(first, &asked), None);
    dc.set_offer(first, HostOffer::Within(limits(1_000, 1_538)));
    assert!(matches!(
        dc.broken_rule(first, &asked),
        Some(HostRule::Bandwidth { .. })
    ));
    dc.set_offer(first, HostOffer::Within(limits(5_000, 1_538)));
    assert!(matches!(
        dc.broken_rule(first, &asked),
        Some(HostRule::Sum { .. })
    ));
    let placement = dc.relocate(TenantId(1)).unwrap().clone();
    assert!(
        placement.hosts().iter().all(|(host, _)| *host != first),
        "{placement:?}"
    );
    assert_eq!(dc.promised(first), Rate(0));
}

#[test]
fn bursts_by_subtree_need_a_host_that_keeps_them() {
    let mut dc = four();
    let hosts = dc.topology().hosts().to_vec();
    let mut asked = request(6, 100, 15_000);
    asked.guarantee.as_mut().unwrap().bursts = Some(Bursts::PerSubtree(2));
    let per_receiver = HostLimits {
        subtree_bursts: false,
        inward_bursts: false,
        lateness: Lateness::Exact,
        packet: None,
        ..limits(10_000, 1_538)
    };
    for host in &hosts {
        dc.set_offer(*host, HostOffer::Within(per_receiver));
    }
    let rule = refused(&dc, &asked);
    assert_eq!(
        rule.to_string(),
        "its pacer limits bursts for each receiver, not for each host, rack and pod (bursts = 2); \
         update tailbound on it, or request bursts = \"per-receiver\""
    );
    for bursts in [None, Some(Bursts::PerReceiver)] {
        let mut plain = asked;
        plain.guarantee.as_mut().unwrap().bursts = bursts;
        assert!(dc.fit(&plain).is_ok());
    }
    for host in &hosts[2..] {
        dc.set_offer(*host, HostOffer::Within(limits(10_000, 1_538)));
    }
    let placement = dc.admit(TenantId(1), &asked).unwrap().clone();
    let used: Vec<NodeId> = placement.hosts().iter().map(|(host, _)| *host).collect();
    assert_eq!(used, hosts[2..], "only these keep it");
    dc.set_offer(hosts[2], HostOffer::Within(per_receiver));
    assert_eq!(dc.broken_rule(hosts[2], &asked), Some(rule));
}

#[test]
fn inward_bursts_need_a_host_that_keeps_them() {
    let mut dc = four();
    let hosts = dc.topology().hosts().to_vec();
    let asked = inwards(request(6, 100, 15_000), 500);
    let burst_in = asked.guarantee.unwrap().burst_in;
    assert_eq!(burst_in, Some(Bytes(45_190)));
    let unlimited = HostLimits {
        inward_bursts: false,
        ..limits(10_000, 1_538)
    };
    for host in &hosts {
        dc.set_offer(*host, HostOffer::Within(unlimited));
    }
    let rule = refused(&dc, &asked);
    assert_eq!(
        rule.to_string(),
        "its pacer does not limit inward bursts (burst_in = 45.19KB); leave the inward burst out, or \
         use hosts that report `limits.inward_bursts`"
    );
    assert!(dc.fit(&request(6, 100, 15_000)).is_ok());
    for host in &hosts[2..] {
        dc.set_offer(*host, HostOffer::Within(limits(10_000, 1_538)));
    }
    let placement = dc.admit(TenantId(1), &asked).unwrap().clone();
    let used: Vec<NodeId> = placement.hosts().iter().map(|(host, _)| *host).collect();
    assert_eq!(used, hosts[2..], "only these keep it");
    dc.set_offer(hosts[2], HostOffer::Within(unlimited));
    assert_eq!(dc.broken_rule(hosts[2], &asked), Some(rule));
    // Half of 9,038 bytes for each of the five others is less than a frame of this host.
    dc.set_offer(hosts[2], HostOffer::Within(limits(10_000, 9_038)));
    let rule = dc.broken_rule(hosts[2], &asked).unwrap().to_string();
    assert_eq!(
        rule,
        "an inward burst of 45.19KB is always 4.519KB for each other machine, below one frame on its \
         wire, 9.038KB; request at least two frames for each, or leave the inward burst out"
    );
}

fn offers() -> impl Strategy<Value = HostOffer> {
    let within = (
        prop_oneof![Just(500_u64), Just(1_000), Just(10_000), Just(40_000)],
        0_u64..2_000,
        prop_oneof![Just(1_538_u64), Just(84), Just(9_038)],
        0_u64..20,
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(
            |(link, reserved, frame, slowest, subtree_bursts, inward_bursts)| {
                HostOffer::Within(HostLimits {
                    reserved: Rate::from_mbit(reserved),
                    slowest: Rate::from_mbit(slowest),
                    subtree_bursts,
                    inward_bursts,
                    ..limits(link, frame)
                })
            },
        );
    prop_oneof![
        2 => Just(HostOffer::Unknown),
        8 => within,
        1 => Just(HostOffer::BestEffort),
        1 => Just(HostOffer::Nothing),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Admissions, resizes and moves break no rule of a host, for all reports of hosts. A later
    /// report breaks only the rules of its own host.
    #[test]
    fn admitted_requests_break_no_rule_of_a_host(
        tree in trees(),
        said in proptest::collection::vec(offers(), 30),
        changes in proptest::collection::vec(changes(), 1..24),
        (later, number) in (offers(), any::<usize>()),
    ) {
        let mut dc = Datacentre::new(tree, Policy::Silo);
        dc.assume_paced();
        let hosts = dc.topology().hosts().to_vec();
        for (host, offer) in hosts.iter().zip(said.iter().cycle()) {
            dc.set_offer(*host, *offer);
        }
        for (number, change) in changes.iter().enumerate() {
            let before = dc.clone();
            if !apply(&mut dc, number as u64, change) {
                prop_assert_eq!(DatacentreState::of(&before), DatacentreState::of(&dc));
            }
            state_is_as_recomputed(&dc);
            all_promises_hold(&dc);
            for (id, tenant) in dc.tenants() {
                for (host, _) in tenant.placement.hosts() {
                    let broken = dc.broken_rule(*host, &tenant.request);
                    prop_assert_eq!(broken, None, "{:?}", id);
                    prop_assert!(dc.offer(*host) != HostOffer::Nothing);
                }
            }
        }
        let host = hosts[number % hosts.len()];
        let before: Vec<_> = dc.tenants().map(|(id, tenant)| (id, tenant.clone())).collect();
        dc.set_offer(host, later);
        state_is_as_recomputed(&dc);
        let after: Vec<_> = dc.tenants().map(|(id, tenant)| (id, tenant.clone())).collect();
        prop_assert_eq!(before, after);
    }

    #[test]
    fn the_nearest_request_passes_all_hosts(
        tree in trees(),
        said in proptest::collection::vec(offers(), 30),
        request in requests(),
    ) {
        let mut dc = Datacentre::new(tree, Policy::Silo);
        dc.assume_paced();
        for (host, offer) in dc.topology().hosts().to_vec().iter().zip(said.iter().cycle()) {
            dc.set_offer(*host, *offer);
        }
        let Some(report) = dc.explain(&request).unwrap() else {
            prop_assert!(dc.fit(&request).is_ok());
            return Ok(());
        };
        for near in &report.nearest {
            prop_assert!(dc.fit(&near.apply(&request)).is_ok(), "{:?}", near);
        }
    }
}

#[test]
fn an_inward_burst_has_room_for_a_frame_of_each_other_machine_and_the_rest_of_a_burst() {
    let mut dc = four();
    for host in dc.topology().hosts().to_vec() {
        dc.set_offer(host, HostOffer::Within(limits(10_000, 1_538)));
    }
    let refused = |vms, burst_in| {
        let mut request = request(vms, 100, 15_000);
        request.guarantee.as_mut().unwrap().burst_in = Some(Bytes(burst_in));
        dc.fit(&request).err().map(|error| error.to_string())
    };
    let below_one = refused(4, 14_999);
    assert_eq!(
        below_one.as_deref(),
        Some(
            "an inward burst of 14.999KB is below the burst of 15KB; request at least 15KB, or \
             leave it out"
        )
    );
    // 15 frames, and S without one.
    let below_frames = refused(16, 36_531);
    assert_eq!(
        below_frames.as_deref(),
        Some(
            "an inward burst of 36.531KB is too small for a frame of 1.538KB of each of the other \
             machines and for the part that is lent; request at least 36.532KB, or leave it out"
        )
    );
    assert_eq!(refused(16, 36_532), None);
    assert_eq!(refused(4, 15_000), None);
    assert_eq!(refused(1, 15_000), None, "nothing is sent to it");
}

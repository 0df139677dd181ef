//! Hosts with departure times, whose lateness J counts: S' = S + one frame + B·J.

use super::*;
use crate::host::{HostLimits, HostOffer, HostRule, Lateness};

const J: Nanos = Nanos::from_micros(50);
const FRAME: u64 = 1_538;

/// Four hosts of four slots at 10 Gbit/s with queues of `buffer`, below one switch.
fn four(lateness: Option<Nanos>, buffer: u64) -> Datacentre {
    releasing(None, lateness, buffer)
}

/// The same, with packets of `packet` bytes.
fn releasing(packet: Option<u64>, lateness: Option<Nanos>, buffer: u64) -> Datacentre {
    let hosts = HostSpec {
        lateness,
        ..host("a", "rack", 4, 4, link(10_000, buffer))
    };
    let spec = Spec {
        frame: Bytes(FRAME),
        packet: packet.map(Bytes),
        classes: Classes::default().into(),
        delay_classes: Vec::new(),
        groups: vec![group("rack", None, link(40_000, 500_000))],
        hosts: vec![hosts],
    };
    Datacentre::new(spec.build().unwrap(), Policy::Silo)
}

/// A guarantee of {B, 15 KB} with bursts at 4·B.
fn bursting(vms: u32, mbit: u64) -> Request {
    let mut request = request(vms, mbit, 15_000);
    let guarantee = request.guarantee.as_mut().unwrap();
    guarantee.burst_rate = Some(Rate::from_mbit(4 * mbit));
    request
}

fn said(lateness: Lateness) -> HostOffer {
    HostOffer::Within(HostLimits {
        link: Rate::from_mbit(10_000),
        reserved: Rate(0),
        frame: Bytes(FRAME),
        slowest: Rate(10_000),
        subtree_bursts: true,
        inward_bursts: false,
        delay_classes: false,
        lateness,
        packet: Some(Bytes(FRAME)),
    })
}

fn say(dc: &mut Datacentre, lateness: Lateness) {
    for host in dc.topology().hosts().to_vec() {
        dc.set_offer(host, said(lateness));
    }
}

/// The first and the last of the curves of the first host's port up, in bits.
fn ends(dc: &Datacentre) -> [(u64, u64); 2] {
    let port = PortId {
        node: dc.topology().hosts()[0],
        direction: Direction::Up,
    };
    let curves = dc.load(port).curves();
    [curves[0], curves[curves.len() - 1]].map(|curve| (curve.rate, curve.burst))
}

#[test]
fn a_late_host_adds_a_frame_and_its_lateness_at_each_rate() {
    let mut dc = four(Some(J), 900_000);
    dc.admit(TenantId(1), &bursting(5, 1_000)).unwrap();
    // Four machines on the first host send to the fifth one: 50 us are 6,250 bytes at 1 Gbit/s. No
    // rates are negotiated, so all four may send at B. A burst of Bmax · J is longer than theirs.
    let slow = (4_000_000_000, 4 * (15_000 + FRAME + 6_250) * 8);
    assert_eq!(ends(&dc), [slow, slow]);
    let soon = Nanos::from_micros(10);
    let mut dc = four(Some(soon), 900_000);
    dc.admit(TenantId(1), &bursting(5, 1_000)).unwrap();
    let slow = (4_000_000_000, 4 * (15_000 + FRAME + 1_250) * 8);
    let fast = (16_000_000_000, 4 * (FRAME + 5_000) * 8);
    assert_eq!(ends(&dc), [fast, slow]);
    let mut exact = four(None, 900_000);
    exact.admit(TenantId(1), &bursting(5, 1_000)).unwrap();
    assert_eq!(ends(&exact)[0], (16_000_000_000, 4 * FRAME * 8));
    assert_eq!(ends(&exact)[1], (1_000_000_000, 4 * 15_000 * 8));
}

#[test]
fn a_request_that_fits_exact_hosts_may_not_fit_late_hosts() {
    // Five machines on two hosts: their bursts just fit into the queues.
    let request = bursting(5, 1_000);
    assert!(four(None, 80_000).fit(&request).is_ok());
    assert!(four(Some(Nanos(0)), 90_000).fit(&request).is_ok());
    for lateness in [J, Nanos::from_millis(3)] {
        assert!(four(Some(lateness), 80_000).fit(&request).is_err());
    }
}

/// A packet of segmentation offload leaves whole: S' = S + the longest packet + B·J, and one packet at the
/// peak rate.
#[test]
fn the_longest_packet_enlarges_both_bursts_of_late_hosts_only() {
    const PACKET: u64 = 80_000;
    let soon = Nanos::from_micros(10);
    let mut dc = releasing(Some(PACKET), Some(soon), 900_000);
    dc.admit(TenantId(1), &bursting(5, 1_000)).unwrap();
    let slow = (4_000_000_000, 4 * (15_000 + PACKET + 1_250) * 8);
    let fast = (16_000_000_000, 4 * (PACKET + 5_000) * 8);
    assert_eq!(ends(&dc), [fast, slow]);
    let mut exact = releasing(Some(PACKET), None, 900_000);
    let mut without = four(None, 900_000);
    for dc in [&mut exact, &mut without] {
        dc.admit(TenantId(1), &bursting(5, 1_000)).unwrap();
    }
    assert_eq!(ends(&exact), ends(&without));
    // Two bursts of 16.5 KB fit where two of 95 KB do not.
    let request = bursting(5, 1_000);
    assert!(four(Some(soon), 100_000).fit(&request).is_ok());
    let refused = releasing(Some(PACKET), Some(soon), 100_000).fit(&request);
    assert!(refused.is_err());
}

#[test]
fn a_host_with_longer_packets_than_its_topology_counts_is_refused_by_name() {
    let mut dc = releasing(Some(20_000), Some(J), 900_000);
    let request = bursting(5, 1_000);
    let host = dc.topology().hosts()[0];
    let mut say = |packet: Option<u64>, lateness| {
        for host in dc.topology().hosts().to_vec() {
            let HostOffer::Within(limits) = said(lateness) else {
                unreachable!("it has limits");
            };
            let packet = packet.map(Bytes);
            dc.set_offer(host, HostOffer::Within(HostLimits { packet, ..limits }));
        }
        (
            dc.fit(&request)
                .map(drop)
                .map_err(|error| error.to_string()),
            dc.broken_rule(host, &request),
        )
    };
    let late = Lateness::Within(J);
    for packet in [FRAME, 20_000] {
        assert_eq!(say(Some(packet), late), (Ok(()), None));
    }
    let (refused, rule) = say(Some(20_001), late);
    let end =
        "a-4: its guests' packets are up to 20.001KB, and the topology counts with 20KB (`packet`)";
    assert!(refused.as_ref().unwrap_err().ends_with(end), "{refused:?}");
    let counted = Bytes(20_000);
    let longest = Some(Bytes(20_001));
    assert_eq!(rule, Some(HostRule::Packets { longest, counted }));
    // A host that limits no packet says nothing of them.
    let (refused, _) = say(None, late);
    assert!(refused.unwrap_err().contains("packets are unlimited"));
    assert_eq!(say(None, Lateness::Exact), (Ok(()), None));
}

#[test]
fn lateness_is_part_of_the_delay() {
    let mut request = bursting(5, 100);
    let guarantee = request.guarantee.as_mut().unwrap();
    // Two queues of 100 KB at 10 Gbit/s take 80 us each.
    guarantee.delay = Some(Nanos::from_micros(200));
    assert!(
        four(Some(Nanos::from_micros(40)), 100_000)
            .fit(&request)
            .is_ok()
    );
    let error = four(Some(Nanos::from_micros(41)), 100_000).fit(&request);
    let error = error.unwrap_err().to_string();
    assert!(error.contains("it takes at least 201us"), "{error}");
}

#[test]
fn a_host_that_is_later_than_its_topology_says_is_refused_by_name() {
    let mut dc = four(Some(J), 900_000);
    let request = bursting(5, 1_000);
    say(&mut dc, Lateness::Within(J));
    dc.admit(TenantId(1), &request).unwrap();
    let host = dc.topology().hosts()[0];
    assert_eq!(dc.broken_rule(host, &request), None);

    say(&mut dc, Lateness::Within(Nanos::from_micros(51)));
    let error = dc.fit(&request).unwrap_err().to_string();
    assert!(
        error.ends_with("a-4: its frames leave up to 51us late, and the topology counts with 50us"),
        "{error}"
    );
    // The machines stay, with the broken rule.
    let measured = Nanos::from_micros(51);
    let counted = Some(J);
    let late = HostRule::Late { measured, counted };
    assert_eq!(dc.broken_rule(host, &request), Some(late));
    assert_eq!(dc.tenants().count(), 1);

    say(&mut dc, Lateness::WarmingUp);
    let error = dc.fit(&request).unwrap_err().to_string();
    assert!(error.contains("it is warming up"), "{error}");
    // An exact pacer is within any lateness.
    say(&mut dc, Lateness::Exact);
    assert!(dc.fit(&request).is_ok());

    let mut exact = four(None, 900_000);
    say(&mut exact, Lateness::Within(Nanos(1)));
    let error = exact.fit(&request).unwrap_err().to_string();
    assert!(error.contains("(its `lateness` is missing)"), "{error}");
    let best_effort = Request {
        guarantee: None,
        ..request
    };
    assert_eq!(exact.broken_rule(host, &best_effort), None);
}

#[test]
fn a_late_host_affects_only_its_own_placements() {
    let mut spec = Spec {
        frame: Bytes(FRAME),
        packet: None,
        classes: Classes::default().into(),
        delay_classes: Vec::new(),
        groups: vec![group("rack", None, link(40_000, 500_000))],
        hosts: vec![
            host("exact", "rack", 2, 4, link(10_000, 300_000)),
            HostSpec {
                lateness: Some(J),
                ..host("late", "rack", 1, 4, link(10_000, 300_000))
            },
        ],
    };
    let mut dc = Datacentre::new(spec.build().unwrap(), Policy::Silo);
    // Five machines have room on the exact hosts, and count as if there were no other ones.
    dc.admit(TenantId(1), &bursting(5, 1_000)).unwrap();
    spec.hosts.pop();
    let mut alone = Datacentre::new(spec.build().unwrap(), Policy::Silo);
    alone.admit(TenantId(1), &bursting(5, 1_000)).unwrap();
    assert_eq!(ends(&dc), ends(&alone));
}

//! Compares placement's admission, by the limits that hosts report, with the pacers of these hosts.

use super::limits;
use crate::guarantees::from_service;
use proptest::prelude::*;
use tailbound_api::VmGuarantee;
use tailbound_dataplane::{Guarantee, GuestId, Pacer, PacerConfig, Packet};
use tailbound_placement::{
    Datacentre, Guarantee as ReportMeasurements, HostOffer, NodeId, Policy, Request, Spec, TenantId,
};
use tailbound_units::{Bytes, Nanos, Rate};

/// A host of the fabric: its wire, and what its own file guarantees to guests.
#[derive(Debug, Clone)]
struct Host {
    wire: PacerConfig,
    own: Vec<Rate>,
}

fn hosts() -> impl Strategy<Value = Vec<Host>> {
    let link = prop_oneof![
        Just(100_u64),
        Just(1_000),
        Just(9_900),
        Just(10_000),
        Just(40_000)
    ];
    let frame = prop_oneof![3 => Just(1_538_u64), 1 => Just(9_038), 1 => 84_u64..3_000];
    let own = proptest::collection::vec(1_u64..300, 0..4);
    let host = (link, frame, 0_u64..3, own).prop_map(|(link, frame, frames, own)| {
        let mut wire = PacerConfig::new(Rate::from_mbit(link));
        wire.frame = Bytes(frame);
        // A batch has room for a frame.
        let least = wire.link.time_for(Bytes(frame * (frames + 1)));
        wire.batch = wire.batch.max(least + Nanos(1));
        let own = own
            .into_iter()
            .map(|parts| Rate(wire.link.0 * parts / 1_000));
        Host {
            own: own.collect(),
            wire,
        }
    });
    proptest::collection::vec(host, 2..7)
}

fn requests() -> impl Strategy<Value = Request> {
    let bandwidth = prop_oneof![
        1_000_u64..200_000,
        1_000_000_u64..3_000_000_000,
        1_000_000_000_u64..20_000_000_000
    ];
    let burst = prop_oneof![Just(0_u64), 0_u64..2_000, 1_538_u64..60_000];
    (1_u32..8, bandwidth, burst, proptest::option::of(1_u64..20)).prop_map(
        |(vms, bandwidth, burst, times)| Request {
            vms,
            guarantee: Some(ReportMeasurements {
                bandwidth: Rate(bandwidth),
                burst: Bytes(burst),
                delay: None,
                bursts: None,
                burst_in: None,
                class: None,
                burst_rate: times.map(|times| Rate(bandwidth * times)),
            }),
            cpu: 0,
            memory: Bytes::ZERO,
            domains: None,
            cpu_reservation: None,
            message: None,
        },
    )
}

/// A rack of such hosts, which the topology takes for ones of 10 Gbit/s and usual frames.
fn datacentre(hosts: &[Host]) -> Datacentre {
    let tree = format!(
        r#"frame = "1538B"
        [[group]]
        name = "rack"
        uplink = {{ rate = "40Gbit/s", buffer = "500KB" }}
        [[host]]
        name = "a"
        group = "rack"
        count = {}
        slots = 6
        uplink = {{ rate = "10Gbit/s", buffer = "300KB" }}"#,
        hosts.len()
    );
    let spec = Spec::from_toml(&tree).expect("a topology");
    let mut dc = Datacentre::new(spec.build().expect("a tree"), Policy::Silo);
    dc.assume_paced();
    let nodes: Vec<NodeId> = dc.topology().hosts().to_vec();
    for (node, host) in nodes.into_iter().zip(hosts) {
        let reserved = Rate(host.own.iter().map(|rate| rate.0).sum());
        let offer =
            limits(&host.wire, reserved, true).map_or(HostOffer::BestEffort, HostOffer::Within);
        dc.set_offer(node, offer);
    }
    dc
}

/// The pacer of a host with the guarantees of its file.
fn pacer(host: &Host) -> Pacer<Packet> {
    let mut pacer = Pacer::new(&host.wire).expect("a wire");
    for (slot, bandwidth) in (1_000..).zip(&host.own) {
        let mut own = Guarantee::new(*bandwidth, host.wire.frame, host.wire.link);
        own.horizon = own.horizon.max(host.wire.batch);
        pacer
            .set_guest(Nanos::ZERO, GuestId::first(slot), Some(&own))
            .expect("the file's own");
    }
    pacer
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn every_host_applies_each_admitted_guarantee(
        hosts in hosts(),
        requests in proptest::collection::vec(requests(), 1..24),
    ) {
        let mut dc = datacentre(&hosts);
        let mut pacers: Vec<_> = hosts.iter().map(pacer).collect();
        let nodes: Vec<NodeId> = dc.topology().hosts().to_vec();
        let mut slot = 0;
        for (number, request) in (1..).zip(&requests) {
            let Ok(placement) = dc.admit(TenantId(number), request) else {
                continue;
            };
            for (node, count) in placement.hosts() {
                let at = nodes.iter().position(|host| host == node).expect("a host");
                for vm in 0..*count {
                    let known = VmGuarantee {
                        moves: None,
                        vm: format!("t/{number}/{vm}"),
                        tenant: TenantId(number),
                        tenant_vms: request.vms,
                        guarantee: request.guarantee,
                        cpu_reservation: None,
                        limit: tailbound_api::VmLimit::default(),
                    };
                    let told = from_service(&hosts[at].wire, &known, None);
                    slot += 1;
                    let applied = pacers[at].set_guest(Nanos::ZERO, GuestId::first(slot), told.as_ref());
                    prop_assert_eq!(applied, Ok(()), "{:?} on {:?}", request, hosts[at]);
                }
            }
        }
    }
}

//! Random trees, random tenants, random changes.

use super::check::{DatacentreState, all_promises_hold, state_is_as_recomputed};
use super::*;
use crate::datacentre::search::Search;
use crate::topology::DelayClassSpec;
use proptest::prelude::*;

/// Up to two pods of up to three racks of up to four hosts, all different, and
/// perhaps a host at the top.
pub(super) fn trees() -> impl Strategy<Value = Topology> {
    trees_with(&[1_000, 10_000, 25_000], 20_000..600_000, Just(Vec::new()))
}

/// The same with links of these rates in Mbit/s, with these buffers, and delay classes.
pub(super) fn trees_with(
    rates: &'static [u64],
    buffers: std::ops::Range<u64>,
    classes: impl Strategy<Value = Vec<DelayClassSpec>>,
) -> impl Strategy<Value = Topology> {
    let uplink = || {
        let rate = proptest::sample::select(rates);
        (rate, buffers.clone()).prop_map(|(mbit, buffer)| link(mbit, buffer))
    };
    let lateness = || proptest::option::weighted(0.2, (0_u64..400_000).prop_map(Nanos));
    let hosts = proptest::collection::vec((1_u32..4, 1_u32..6, uplink(), lateness()), 1..3);
    let racks = proptest::collection::vec((hosts, uplink()), 1..4);
    let pods = proptest::collection::vec((racks, uplink()), 1..3);
    let packet = proptest::option::weighted(0.3, 1_538_u64..80_000);
    let top = proptest::option::of(uplink());
    (pods, top, packet, classes).prop_map(|(pods, top, packet, delay_classes)| {
        let mut spec = Spec {
            frame: Bytes(1_538),
            packet: packet.map(Bytes),
            classes: Classes::default().into(),
            delay_classes,
            groups: Vec::new(),
            hosts: Vec::new(),
        };
        for (pod, (racks, uplink)) in pods.into_iter().enumerate() {
            let pod = format!("pod{pod}");
            spec.groups.push(group(&pod, None, uplink));
            for (rack, (hosts, uplink)) in racks.into_iter().enumerate() {
                let rack = format!("{pod}-{rack}");
                spec.groups.push(group(&rack, Some(&pod), uplink));
                for (kind, (count, slots, uplink, lateness)) in hosts.into_iter().enumerate() {
                    let name = format!("{rack}-{kind}x");
                    spec.hosts.push(HostSpec {
                        lateness,
                        ..host(&name, &rack, count, slots, uplink)
                    });
                }
            }
        }
        spec.hosts.extend(top.map(|uplink| HostSpec {
            group: None,
            cpu: Some(2_000),
            memory: Some(Bytes(1_000)),
            ..host("top", "", 1, 4, uplink)
        }));
        spec.build().unwrap()
    })
}

pub(super) fn requests() -> impl Strategy<Value = Request> {
    let guarantee = (
        1_u64..1_500,
        0_u64..40_000,
        proptest::option::of(50_000_u64..3_000_000),
        proptest::option::of(1_u64..10),
        bursts(),
    )
        .prop_map(|(mbit, burst, delay, times, bursts)| Guarantee {
            bandwidth: Rate::from_mbit(mbit),
            burst: Bytes(burst),
            delay: delay.map(Nanos),
            burst_rate: times.map(|times| Rate::from_mbit(mbit * times)),
            bursts,
            burst_in: None,
            class: None,
        });
    let domains = proptest::option::of((0_u8..3, 1_u32..4));
    (
        1_u32..14,
        proptest::option::weighted(0.9, guarantee),
        0_u64..1_000,
        0_u64..400,
        domains,
        inward_bursts(),
    )
        .prop_map(|(vms, guarantee, cpu, memory, domains, inward)| {
            let request = Request {
                vms,
                guarantee,
                cpu,
                memory: Bytes(memory),
                domains: domains.map(|(height, count)| FaultDomains {
                    height,
                    count: count.min(vms),
                }),
                cpu_reservation: None,
                message: None,
            };
            inward.map_or(request, |inward| inwards(request, inward))
        })
}

/// Inward bursts, from the least to the bursts of all other machines, in thousandths.
pub(super) fn inward_bursts() -> impl Strategy<Value = Option<u64>> {
    proptest::option::weighted(0.4, 0_u64..=1_000)
}

#[derive(Debug, Clone)]
pub(super) enum Change {
    Admit(Request),
    Release(usize),
    Resize(usize, u32),
    /// A tenant's request becomes another one, with its fault domains.
    Replace(usize, Request),
    Close(usize),
    Open(usize),
    Relocate(usize),
    /// A tenant, a source, a destination, and whether the machine arrives there.
    Move(usize, usize, usize, bool),
}

pub(super) fn changes() -> impl Strategy<Value = Change> {
    prop_oneof![
        6 => requests().prop_map(Change::Admit),
        2 => any::<usize>().prop_map(Change::Release),
        2 => (any::<usize>(), 1_u32..16).prop_map(|(which, vms)| Change::Resize(which, vms)),
        2 => (any::<usize>(), requests())
            .prop_map(|(which, request)| Change::Replace(which, request)),
        1 => any::<usize>().prop_map(Change::Close),
        1 => any::<usize>().prop_map(Change::Open),
        1 => any::<usize>().prop_map(Change::Relocate),
        3 => (any::<usize>(), any::<usize>(), any::<usize>(), any::<bool>())
            .prop_map(|(which, from, to, comes)| Change::Move(which, from, to, comes)),
    ]
}

pub(super) fn apply(dc: &mut Datacentre, number: u64, change: &Change) -> bool {
    let count = dc.tenants.len().max(1);
    let which = |index: usize, dc: &Datacentre| {
        let id = dc.tenants.keys().nth(index % count);
        id.copied().unwrap_or(TenantId(u64::MAX))
    };
    let node = |index: usize, dc: &Datacentre| NodeId((index % dc.topology.len()) as u32);
    match change {
        Change::Admit(request) => dc.admit(TenantId(number), request).is_ok(),
        Change::Release(index) => dc.release(which(*index, dc)).is_ok(),
        Change::Resize(index, vms) => dc.resize(which(*index, dc), *vms).is_ok(),
        Change::Replace(index, request) => {
            let id = which(*index, dc);
            let Some(tenant) = dc.tenants.get(&id).cloned() else {
                return false;
            };
            let request = Request {
                domains: tenant.request.domains.filter(|it| it.count <= request.vms),
                ..*request
            };
            let is_done = dc.change(id, request).is_ok();
            let now = &dc.tenants[&id];
            if request.vms == tenant.request.vms {
                assert_eq!(now.placement, tenant.placement, "a machine moved");
            }
            assert_eq!(now.request, if is_done { request } else { tenant.request });
            is_done
        }
        Change::Relocate(index) => dc.relocate(which(*index, dc)).is_ok(),
        Change::Move(index, from, to, comes) => {
            let (id, hosts) = (which(*index, dc), dc.topology.hosts());
            let to = hosts[to % hosts.len()];
            let tenant = dc.tenants.get(&id);
            let tenant = tenant.map_or(&[][..], |tenant| tenant.placement.hosts());
            let Some((from, _)) = tenant.get(from % tenant.len().max(1)).copied() else {
                return false;
            };
            if dc.begin_move(id, from, to).is_err() {
                return false;
            }
            state_is_as_recomputed(dc);
            all_promises_hold(dc);
            let again = dc.release(id).unwrap();
            dc.restore(id, &again.request, again.placement).unwrap();
            dc.end_move(id, if *comes { from } else { to }).unwrap();
            let tenant = dc.tenants[&id].clone();
            let stands = dc.without(id, |dc, _| dc.verify(&tenant.request, &tenant.placement));
            assert_eq!(stands, Ok(Ok(())));
            true
        }
        Change::Close(index) => {
            dc.close(node(*index, dc));
            true
        }
        Change::Open(index) => {
            dc.open(node(*index, dc));
            true
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn state_is_exact_and_promises_hold_after_any_changes(
        tree in trees(),
        changes in proptest::collection::vec(changes(), 1..30),
    ) {
        let mut dc = Datacentre::new(tree, Policy::Silo);
        for (number, change) in changes.iter().enumerate() {
            let before = dc.clone();
            if !apply(&mut dc, number as u64, change) {
                prop_assert_eq!(DatacentreState::of(&before), DatacentreState::of(&dc), "a refused change leaves no trace");
            }
            state_is_as_recomputed(&dc);
            all_promises_hold(&dc);
        }
        for (_, tenant) in dc.tenants() {
            prop_assert_eq!(tenant.placement.vms(), u64::from(tenant.request.vms));
            prop_assert!(dc.verify_domains(&tenant.request, &tenant.placement).is_ok());
        }
    }

    #[test]
    fn release_undoes_admission_to_the_bit(
        tree in trees(),
        others in proptest::collection::vec(requests(), 0..6),
        request in requests(),
    ) {
        for policy in [Policy::Silo, Policy::Oktopus, Policy::OktopusBursts, Policy::Locality] {
            let mut dc = Datacentre::new(tree.clone(), policy);
            for (number, other) in others.iter().enumerate() {
                let _ = dc.admit(TenantId(number as u64), other);
            }
            let before = dc.clone();
            let fit = dc.fit(&request);
            prop_assert_eq!(DatacentreState::of(&before), DatacentreState::of(&dc), "fit reserves nothing");
            let admitted = dc.admit(TenantId(99), &request).cloned();
            prop_assert_eq!(&fit, &admitted);
            if admitted.is_ok() {
                dc.release(TenantId(99)).unwrap();
            }
            prop_assert_eq!(DatacentreState::of(&before), DatacentreState::of(&dc));
        }
    }

    #[test]
    fn the_nearest_request_passes(
        tree in trees(),
        others in proptest::collection::vec(requests(), 0..6),
        request in requests(),
    ) {
        let mut dc = Datacentre::new(tree, Policy::Silo);
        for (number, other) in others.iter().enumerate() {
            let _ = dc.admit(TenantId(number as u64), other);
        }
        let explanation = dc.explain(&request).unwrap();
        prop_assert_eq!(explanation.is_none(), dc.fit(&request).is_ok());
        for near in explanation.iter().flat_map(|explanation| &explanation.nearest) {
            prop_assert!(dc.fit(&near.apply(&request)).is_ok(), "{:?}", near);
            let rounded = near.rounded();
            prop_assert_eq!(rounded, rounded.rounded());
            // What has more digits would not pass with fewer.
            if rounded != *near {
                prop_assert!(dc.fit(&rounded.apply(&request)).is_err(), "{:?}", near);
            }
        }
        if let Some(overload) = explanation.and_then(|explanation| explanation.overload) {
            prop_assert!(overload.excess() != Some(0));
        }
    }

    #[test]
    fn subtrees_ruled_out_by_summaries_cannot_be_filled(
        tree in trees(),
        others in proptest::collection::vec(requests(), 0..8),
        mut request in requests(),
        vms in 2_u32..40,
    ) {
        request.vms = vms;
        let mut dc = Datacentre::new(tree, Policy::Silo);
        for (number, other) in others.iter().enumerate() {
            let _ = dc.admit(TenantId(number as u64), other);
        }
        let inner = (0..dc.topology.len() as u32).map(NodeId);
        for scope in inner.filter(|node| !dc.topology.is_host(*node)) {
            let mut search = Search::new(&dc, &request, Policy::Silo);
            search.look_below(scope);
            let hopeless = search.is_hopeless();
            let most = search.most_below(scope);
            let want = vms.min(dc.free(scope).slots);
            let too_small = want > 0 && search.is_too_small(scope, want);
            let placed = search.fill(scope, want);
            prop_assert!(!hopeless || placed == 0);
            prop_assert!(placed <= most);
            prop_assert!(!too_small || placed < want);
        }
    }

    #[test]
    fn tenants_come_back_in_any_order(
        tree in trees(),
        all in proptest::collection::vec(requests(), 1..12),
        closed in proptest::collection::vec(any::<usize>(), 0..3),
        first in 0_usize..4,
    ) {
        let mut dc = Datacentre::new(tree.clone(), Policy::Silo);
        for (number, request) in all.iter().enumerate() {
            let _ = dc.admit(TenantId(number as u64), request);
        }
        let mut again = Datacentre::new(tree, Policy::Silo);
        for (index, node) in closed.iter().enumerate() {
            let node = NodeId((node % dc.topology.len()) as u32);
            dc.close(node);
            // Some are closed before their tenants are there, some after.
            if index < first {
                again.set_closed(node, true);
            }
        }
        for (id, tenant) in dc.tenants.iter().rev() {
            again.restore(*id, &tenant.request, tenant.placement.clone()).unwrap();
        }
        for host in dc.topology.hosts() {
            again.set_closed(*host, dc.is_closed(*host));
        }
        prop_assert_eq!(DatacentreState::of(&dc), DatacentreState::of(&again));
    }

    #[test]
    fn every_placement_is_one_that_brute_force_finds(
        tree in trees(),
        vms in 2_u32..5,
        other in requests(),
        mut request in requests(),
    ) {
        request.vms = vms;
        request.domains = None;
        if request.guarantee.is_some_and(|guarantee| guarantee.burst_in.is_some()) {
            request = inwards(request, 300);
        }
        let mut dc = Datacentre::new(tree, Policy::Silo);
        let _ = dc.admit(TenantId(1), &other);
        let all = everywhere(&dc, vms);
        let good = all.iter().any(|placement| dc.verify(&request, placement).is_ok());
        match dc.fit(&request) {
            Ok(found) => prop_assert!(all.contains(&found) && dc.verify(&request, &found).is_ok()),
            Err(AdmitError::NoPlacement(PlacementError::Effort { .. })) => {}
            Err(_) => prop_assert!(!good),
        }
    }
}

/// Returns all distributions of `vms` machines over the hosts.
fn everywhere(dc: &Datacentre, vms: u32) -> Vec<Placement> {
    let mut all = vec![Vec::new()];
    for host in dc.topology.hosts() {
        let mut longer = Vec::new();
        for hosts in &all {
            let used: u32 = hosts.iter().map(|(_, count): &(NodeId, u32)| *count).sum();
            for count in 0..=(vms - used).min(dc.free(*host).slots) {
                let mut hosts = hosts.clone();
                if count > 0 {
                    hosts.push((*host, count));
                }
                longer.push(hosts);
            }
        }
        all = longer;
    }
    let placements = all.into_iter().map(Placement::new);
    placements
        .filter(|placement| placement.vms() == u64::from(vms))
        .collect()
}

//! Nodes with more children than are added up at a time.

use super::check::DatacentreState;
use super::*;
use proptest::prelude::*;

/// Returns a tree with `racks` racks of one host directly below the core, and `hosts` hosts.
fn wide(racks: u32, hosts: u32) -> Datacentre {
    let uplink = link(10_000, 300_000);
    let mut spec = Spec {
        frame: Bytes(1_538),
        packet: None,
        classes: Classes::default().into(),
        delay_classes: Vec::new(),
        groups: Vec::new(),
        hosts: vec![HostSpec {
            group: None,
            cpu: Some(2_000),
            ..host("host", "", hosts, 4, uplink.clone())
        }],
    };
    for number in 0..racks {
        let rack = format!("rack{number}");
        spec.groups.push(group(&rack, None, uplink.clone()));
        let name = format!("{rack}-host");
        spec.hosts
            .push(host(&name, &rack, 1, 1 + number % 8, uplink.clone()));
    }
    Datacentre::new(spec.build().unwrap(), Policy::Silo)
}

/// Panics unless what is known of each node is the sum of its children, added
/// up one by one.
fn sums_are_exact(dc: &Datacentre) {
    for node in (0..dc.topology.len() as u32).map(NodeId) {
        let range = dc.topology.child_range(node);
        if let Some(summary) = dc.summary(node) {
            let range = range.start as usize..range.end as usize;
            let sum = dc.sum_of(range);
            assert_eq!((dc.free(node), summary), (sum.free, &sum.summary));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn sums_of_many_children_are_exact_after_any_changes(
        racks in 0_u32..150,
        hosts in 1_u32..150,
        changes in proptest::collection::vec((0_u8..4, any::<usize>(), 1_u32..60), 1..30),
    ) {
        let mut dc = wide(racks, hosts);
        sums_are_exact(&dc);
        for (number, (kind, which, vms)) in changes.into_iter().enumerate() {
            let node = NodeId((which % dc.topology.len()) as u32);
            match kind {
                0 => dc.set_closed(node, true),
                1 => dc.set_closed(node, false),
                2 => drop(dc.release(TenantId((which % (number + 1)) as u64))),
                _ => drop(dc.admit(TenantId(number as u64), &request(vms, 100, 1_500)).cloned()),
            }
            sums_are_exact(&dc);
        }
    }

    #[test]
    fn tenants_restored_at_once_are_as_if_restored_one_by_one(
        racks in 0_u32..150,
        requests in proptest::collection::vec((1_u32..60, 1_u64..1_000), 1..20),
        closed in any::<usize>(),
        broken in proptest::option::of(any::<proptest::sample::Index>()),
    ) {
        let mut dc = wide(racks, 100);
        let empty = dc.clone();
        for (number, (vms, mbit)) in requests.into_iter().enumerate() {
            drop(dc.admit(TenantId(number as u64), &request(vms, mbit, 1_500)).cloned());
        }
        let mut all: Vec<_> = dc
            .tenants()
            .map(|(id, tenant)| (id, tenant.request, tenant.placement.clone()))
            .collect();
        let node = NodeId((closed % dc.topology.len()) as u32);
        if let Some(broken) = broken.filter(|_| !all.is_empty()) {
            let broken = broken.index(all.len());
            all[broken].1.vms += 1;
        }
        let mut one_by_one = empty.clone();
        one_by_one.set_closed(node, true);
        let before = one_by_one.clone();
        let mut at_once = one_by_one.clone();
        let refused = all.iter().find_map(|(id, request, placement)| {
            let restored = one_by_one.restore(*id, request, placement.clone());
            restored.err().map(|error| (*id, error))
        });
        let restored = at_once.restore_all(all);
        let expected = if refused.is_some() { &before } else { &one_by_one };
        prop_assert_eq!(restored, refused.map_or(Ok(()), Err));
        prop_assert_eq!(DatacentreState::of(&at_once), DatacentreState::of(expected));
    }
}

#[test]
fn two_levels_of_sums_are_exact() {
    // More than the square of how many are added up at a time.
    let mut dc = wide(0, 5_000);
    for number in 0..40 {
        dc.admit(TenantId(number), &request(7, 100, 1_500)).unwrap();
    }
    dc.set_closed(NodeId(4_999), true);
    dc.release(TenantId(20)).unwrap();
    sums_are_exact(&dc);
    assert_eq!(dc.free(NodeId::TOP).slots, 4 * 4_999 - 39 * 7);
}

/// Returns racks of two hosts of four slots.
fn racks_of_two(racks: u32) -> Datacentre {
    let mut spec = Spec {
        frame: Bytes(1_538),
        packet: None,
        classes: Classes::default().into(),
        delay_classes: Vec::new(),
        groups: Vec::new(),
        hosts: Vec::new(),
    };
    for number in 0..racks {
        let (rack, uplink) = (format!("rack{number}"), link(10_000, 300_000));
        spec.groups.push(group(&rack, None, uplink.clone()));
        let name = format!("{rack}-host");
        spec.hosts.push(host(&name, &rack, 2, 4, uplink));
    }
    Datacentre::new(spec.build().unwrap(), Policy::Silo)
}

/// First fit has one order: each host to its last slot, before the next host, for tenants of one
/// machine as for those of several hosts or racks. None is passed over.
#[test]
fn hosts_are_filled_one_after_another_to_their_last_slots() {
    for (dc, most) in [(wide(0, 40), 8), (racks_of_two(20), 16)] {
        let slots = dc.free(NodeId::TOP).slots;
        for vms in [1, 2, 4, 8, 16].into_iter().filter(|vms| *vms <= most) {
            let mut dc = dc.clone();
            for first in (0..slots).step_by(vms as usize) {
                let hosts = first / 4..=(first + vms - 1) / 4;
                let hosts = hosts.map(|host| (dc.topology.hosts()[host as usize], vms.min(4)));
                let expected: Vec<_> = hosts.collect();
                let one = dc.admit(TenantId(first.into()), &request(vms, 100, 1_500));
                let found = one.expect("slots are free").hosts();
                assert_eq!(found, expected, "{vms} machines from slot {first} on");
            }
            assert_eq!(dc.free(NodeId::TOP).slots, 0);
        }
    }
}

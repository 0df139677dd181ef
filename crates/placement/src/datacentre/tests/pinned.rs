//! Placements that the caller chooses, against the search, an independent check and each other.

use super::check::{DatacentreState, all_promises_hold, state_is_as_recomputed};
use super::random::{requests, trees};
use super::*;
use crate::datacentre::pinned::candidates::{Candidates, spare};
use crate::datacentre::pinned::{Running, admit, change, overfull, put};
use proptest::prelude::*;

/// Returns a placement of as many machines on these hosts, in turn.
fn spread_over(topology: &Topology, hosts: &[usize], vms: u32) -> Placement {
    let all = topology.hosts();
    let each = (0..vms as usize).map(|vm| (all[hosts[vm % hosts.len()] % all.len()], 1));
    Placement::new(each)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_promise_holds_after_any_choices_and_a_verdict_is_the_decision(
        topology in trees(),
        steps in prop::collection::vec(
            (requests(), prop::collection::vec(any::<usize>(), 1..4), any::<bool>()),
            1..12,
        ),
    ) {
        let mut dc = Datacentre::new(topology, Policy::Silo);
        for (number, (request, hosts, found)) in steps.iter().enumerate() {
            let id = TenantId(number as u64);
            let placement = match dc.fit(request) {
                Ok(placement) if *found => placement,
                _ => spread_over(dc.topology(), hosts, request.vms),
            };
            let before = dc.clone();
            let is_in = admit(&mut dc, id, request, placement.clone());
            if *found && before.fit(request) == Ok(placement) {
                prop_assert_eq!(&is_in, &Ok(()), "the search found it");
            }
            if is_in.is_err() {
                prop_assert_eq!(DatacentreState::of(&dc), DatacentreState::of(&before));
                continue;
            }
            // One host more, for each host and number.
            let tenant = dc.tenant(id).unwrap().clone();
            let mut verdicts = Candidates::of_tenant(&dc, id).unwrap();
            for host in dc.topology().hosts().to_vec() {
                for vms in 1..4 {
                    let verdict = verdicts.check(host, vms);
                    let more = Request { vms: request.vms + vms, ..*request };
                    let hosts = tenant.placement.hosts().iter().copied();
                    let grown = Placement::new(hosts.chain([(host, vms)]));
                    let mut copy = dc.clone();
                    let is_changed = change(&mut copy, id, &more, grown);
                    prop_assert_eq!(verdict.is_ok(), is_changed.is_ok(), "{:?}", verdict);
                    if is_changed.is_ok() {
                        all_promises_hold(&copy);
                    }
                }
            }
        }
        all_promises_hold(&dc);
        state_is_as_recomputed(&dc);
        for host in dc.topology().hosts() {
            let _ = spare(&dc, *host);
        }
    }

    #[test]
    fn machines_beyond_a_hosts_resources_leave_in_any_order_without_a_trace(
        topology in trees(),
        tenants in prop::collection::vec((requests(), any::<usize>()), 1..8),
        order in any::<u64>(),
    ) {
        let mut dc = Datacentre::new(topology, Policy::Silo);
        let empty = dc.clone();
        for (number, (request, host)) in tenants.iter().enumerate() {
            let running = Running {
                id: TenantId(number as u64),
                request: *request,
                placement: spread_over(dc.topology(), &[*host], request.vms),
                is_misfit: true,
            };
            prop_assert_eq!(put(&mut dc, [running]), Ok(()));
        }
        // The other order is the same state.
        let mut reversed = empty.clone();
        let all: Vec<_> = dc.tenants().map(|(id, tenant)| (id, tenant.clone())).collect();
        let running = all.iter().rev().map(|(id, tenant)| Running {
            id: *id,
            request: tenant.request,
            placement: tenant.placement.clone(),
            is_misfit: true,
        });
        prop_assert_eq!(put(&mut reversed, running), Ok(()));
        prop_assert_eq!(DatacentreState::of(&reversed), DatacentreState::of(&dc));
        for host in overfull(&dc) {
            let one = Request { guarantee: None, domains: None, vms: 1, ..all[0].1.request };
            let more = admit(&mut dc.clone(), TenantId(99), &one, Placement::new([(host, 1)]));
            let free = dc.free[host.index()];
            let has_room = free.slots > 0 && free.cpu >= one.cpu && free.memory >= one.memory;
            prop_assert_eq!(more.is_ok(), has_room);
        }
        let mut left: Vec<_> = all.iter().map(|(id, _)| *id).collect();
        let mut random = order;
        while !left.is_empty() {
            let place = (random % left.len() as u64) as usize;
            random = random.rotate_left(7) ^ 0x9E37;
            dc.release(left.remove(place)).unwrap();
        }
        prop_assert_eq!(DatacentreState::of(&dc), DatacentreState::of(&empty));
        prop_assert_eq!(overfull(&dc).count(), 0);
    }
}

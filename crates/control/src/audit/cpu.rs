//! Recomputes the CPU reservations of hosts.

use super::CpuOnHost;
use crate::ledger::Snapshot;
use std::collections::BTreeMap;
use tailbound_placement::Topology;

/// Sums up the reserved CPU of each host, and reports guests that have more. A moving machine
/// counts on both of its hosts.
pub(super) fn reserved(topology: &Topology, snapshot: &Snapshot) -> Vec<CpuOnHost> {
    let mut hosts: BTreeMap<&str, (u128, u128)> = BTreeMap::new();
    for tenant in snapshot.tenants.values() {
        let Some(reservation) = tenant.request.cpu_reservation else {
            continue;
        };
        let deadline = u128::from(reservation.deadline.0).max(1);
        let each = (u128::from(reservation.runtime.0) * 1000).div_ceil(deadline);
        let runs = tenant.runs.iter().map(|run| (&*run.host, run.count));
        let moving = tenant.moving.iter().map(|moving| (&*moving.to, 1));
        for (host, machines) in runs.chain(moving) {
            let vcpus = u128::from(reservation.vcpus) * u128::from(machines);
            let sum = hosts.entry(host).or_default();
            sum.0 += each * vcpus;
            sum.1 += vcpus;
        }
    }
    let names = topology.hosts().iter().map(|host| topology.name(*host));
    let reserved = names.filter_map(|host| {
        let last_report = snapshot.said.get(host);
        let speaks = last_report.filter(|last_report| last_report.silent_since.is_none());
        let unpromised = speaks.map_or_else(Vec::new, |last_report| {
            last_report.report.unpromised.clone()
        });
        let (reserved, vcpus) = match hosts.get(host) {
            Some(sum) => *sum,
            None if unpromised.is_empty() => return None,
            None => (0, 0),
        };
        Some(CpuOnHost {
            host: host.to_owned(),
            reserved,
            vcpus,
            keeps: speaks.and_then(|last_report| last_report.report.cpu),
            unpromised,
        })
    });
    reserved.collect()
}

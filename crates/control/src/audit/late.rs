//! Looks for hosts whose frames leave later than admission counted with.

use super::LateHost;
use crate::ledger::Snapshot;
use std::collections::BTreeMap;
use tailbound_placement::Topology;

/// Returns the hosts that are too late for the guarantees of machines there, by their last reports.
pub(super) fn hosts(topology: &Topology, snapshot: &Snapshot) -> Vec<LateHost> {
    let mut guaranteed: BTreeMap<&str, u64> = BTreeMap::new();
    let tenants = snapshot.tenants.values();
    for tenant in tenants.filter(|tenant| tenant.request.guarantee.is_some()) {
        for run in &tenant.runs {
            *guaranteed.entry(&run.host).or_default() += u64::from(run.count);
        }
    }
    let late = guaranteed.into_iter().filter_map(|(host, machines)| {
        let last_report = snapshot.said.get(host)?;
        let limits = last_report
            .report
            .limits
            .filter(|_| last_report.silent_since.is_none())?;
        let counted = topology.lateness(topology.find(host)?);
        let rule = limits.check_departures(counted, topology.packet());
        let rule = rule.err()?;
        Some(LateHost {
            host: host.to_owned(),
            machines,
            rule,
        })
    });
    late.collect()
}

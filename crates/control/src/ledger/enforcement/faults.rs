//! Faults of hosts, ports, tokens and owners, as far as the ledger has them.

use super::{Trouble, is_late};
use crate::ledger::{Ledger, Quota, tokens, usage_of};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use tailbound_api::{FaultKind, TenantState};
use tailbound_placement::{CpuUse, HostRule, NodeId};

/// Limit on the names of a fault.
const NAMED: usize = 5;

/// A fault without its begin, if the ledger does not have that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FoundFault {
    pub(crate) count: u64,
    pub(crate) names: Vec<String>,
    /// The reason, for the first of the names.
    pub(crate) why: String,
    /// The begin in seconds since 1970.
    pub(crate) since: Option<u64>,
}

/// Faults by kind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FoundFaults(pub(crate) BTreeMap<FaultKind, FoundFault>);

impl FoundFaults {
    /// Adds a thing that has a fault, since `since` if that is known.
    pub(crate) fn add(
        &mut self,
        kind: FaultKind,
        name: &str,
        why: &dyn fmt::Display,
        since: Option<u64>,
    ) {
        let fault = self.0.entry(kind).or_insert_with(|| FoundFault {
            count: 0,
            names: Vec::new(),
            why: why.to_string(),
            since,
        });
        fault.count += 1;
        if fault.names.len() < NAMED {
            fault.names.push(name.to_owned());
        }
        fault.since = fault.since.into_iter().chain(since).min();
    }
}

/// Returns the faults that a ledger has at `now`, in seconds since 1970; `quota` returns what an
/// owner may have.
pub(crate) fn faults(ledger: &Ledger, now: u64, quota: impl Fn(&str) -> Quota) -> FoundFaults {
    let mut faults = FoundFaults::default();
    let named = add_hosts(ledger, &mut faults);
    add_hosts_of_tenants(ledger, &mut faults, &named);
    for (name, end) in tokens::expired(ledger, now) {
        let why = "its validity has ended; revoke it, or issue another".to_owned();
        faults.add(FaultKind::TokensExpired, name, &why, Some(end));
    }
    for owner in ledger.owners.names() {
        if let Some(limit) = quota(owner).reached_by(usage_of(ledger, owner)) {
            let why = format!("it has all of its {limit}");
            faults.add(FaultKind::QuotaReached, owner, &why, None);
        }
    }
    faults
}

/// Adds the ports with more guarantees than they can keep. This takes some microseconds for each port
/// with guarantees; the result changes with tenants of an overloaded port and with the topology only.
pub(crate) fn add_ports(ledger: &Ledger, faults: &mut FoundFaults) {
    for port in ledger.over() {
        let name = port.split('"').nth(1).unwrap_or_default().to_owned();
        faults.add(FaultKind::PortsOverloaded, &name, &port, None);
    }
}

/// Hosts whose faults towards single tenants are consequences.
#[derive(Debug, Default)]
struct NamedHosts {
    /// Hosts that keep no guarantee, or are late.
    blamed: BTreeSet<NodeId>,
    /// Hosts that offer less CPU than is reserved.
    short_of_cpu: BTreeSet<NodeId>,
}

/// Adds the faults of hosts that concern all of their guarantees, or their CPUs.
fn add_hosts(ledger: &Ledger, faults: &mut FoundFaults) -> NamedHosts {
    let mut named = NamedHosts::default();
    let topology = ledger.datacentre.topology();
    for host in topology.hosts().iter().copied() {
        let name = topology.name(host);
        let last_report = ledger.last_report(host);
        let trouble = last_report.and_then(|last_report| ledger.trouble_of_all(last_report));
        let trouble = trouble.filter(|it| *it != Trouble::Unpaced || ledger.promises_on(host));
        let since = last_report.and_then(|last_report| last_report.silent_since);
        if let Some(trouble) = trouble {
            faults.add(kind_of(trouble), name, &trouble, since);
            named.blamed.insert(host);
        } else if is_late(ledger, host) {
            let why = "its frames leave later than the topology's `lateness`";
            faults.add(FaultKind::HostsLate, name, &why, None);
            named.blamed.insert(host);
        }
        // A host that does not report offers nothing, which is no fault of its own.
        let speaks = last_report.is_some_and(|report| report.silent_since.is_none());
        if speaks && let Err(error) = ledger.datacentre.check_reserved(host) {
            let kind = FaultKind::HostsShortOfCpu;
            faults.add(kind, name, &error, None);
            named.short_of_cpu.insert(host);
        }
        let cpu = ledger.datacentre.host_cpu(host);
        if cpu.is_some_and(|cpu| cpu.unpromised != CpuUse::default()) {
            let guest = last_report.and_then(|last_report| last_report.report.unpromised.first());
            let why = guest.map_or_else(String::new, |it| format!("{}: {}", it.guest, it.what));
            faults.add(FaultKind::HostsWithUnpromisedCpu, name, &why, None);
        }
    }
    named
}

/// Adds the faults of hosts towards single tenants: for each host the worst one.
fn add_hosts_of_tenants(ledger: &Ledger, faults: &mut FoundFaults, named: &NamedHosts) {
    let mut worst: BTreeMap<NodeId, (TenantState, Trouble<'_>)> = BTreeMap::new();
    for id in ledger.standings.states.keys() {
        let Some(tenant) = ledger.tenants.get(id) else {
            continue;
        };
        let hosts = ledger.hosts_of(*id);
        for host in hosts.filter(|host| !named.blamed.contains(host)) {
            let Some(trouble) = ledger.trouble(host, tenant) else {
                continue;
            };
            let trouble = match kind_of(trouble) {
                FaultKind::HostsShortOfCpu if named.short_of_cpu.contains(&host) => continue,
                FaultKind::HostsShortOfCpu if ledger.last_report(host).is_none() => {
                    Trouble::Unheard
                }
                _ => trouble,
            };
            let entry = worst.entry(host).or_insert((trouble.state(), trouble));
            if trouble.state() > entry.0 {
                *entry = (trouble.state(), trouble);
            }
        }
    }
    let topology = ledger.datacentre.topology();
    for (host, (_, trouble)) in worst {
        let name = topology.name(host);
        faults.add(kind_of(trouble), name, &trouble, None);
    }
}

const fn kind_of(trouble: Trouble<'_>) -> FaultKind {
    match trouble {
        Trouble::Silent => FaultKind::HostsSilent,
        Trouble::Classes { .. } => FaultKind::HostsOfOtherClasses,
        Trouble::Unpaced => FaultKind::HostsUnpaced,
        Trouble::Rule(HostRule::Late { .. } | HostRule::WarmingUp) => FaultKind::HostsLate,
        Trouble::Rule(
            HostRule::NoCpu
            | HostRule::Cpu { .. }
            | HostRule::CpuSum { .. }
            | HostRule::CpuThreads { .. },
        ) => FaultKind::HostsShortOfCpu,
        Trouble::Rule(_) => FaultKind::HostsTooSmall,
        Trouble::Refused(_) => FaultKind::HostsRefuse,
        Trouble::Unheard => FaultKind::HostsUnheard,
        Trouble::Behind => FaultKind::HostsBehind,
    }
}

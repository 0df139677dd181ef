//! Recomputes every guarantee from the content of a store, without the code that decided it.
//!
//! The audit uses only the topology of `tailbound-placement`: names, links and buffers. It follows
//! each tenant's traffic between hosts, uses the exact curves of [`tailbound_netcalc`], and checks
//! each port against the exact sum of all curves, of which the placement has an upper bound.

mod cpu;
mod keys;
mod late;
mod reservations;
mod tenants;
mod traffic;
mod trail;

#[cfg(test)]
mod tests;

use crate::ledger::Snapshot;
use std::fmt;
use tailbound_api::{CpuUse, HostCpu, UnpromisedGuest};
use tailbound_placement::HostRule;
use tenants::Tenants;
use traffic::Traffic;

/// The result of an audit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// The number of tenants.
    pub tenants: usize,
    /// The number of machines.
    pub vms: u64,
    /// The number of ports that carry guaranteed traffic.
    pub ports: usize,
    /// The number of idempotency keys.
    pub keys: usize,
    /// The number of entries of the audit.
    pub entries: usize,
    /// The number of open reservations.
    pub reservations: usize,
    /// The number of tenants that did not fit when they were adopted.
    pub misfits: usize,
    /// The hosts of whose CPU something is reserved, in the order of the tree.
    pub cpu: Vec<CpuOnHost>,
    /// The hosts whose frames leave later than admission counted with, in the order of their names.
    pub late: Vec<LateHost>,
    /// Everything that is wrong; empty if all promises hold.
    pub findings: Vec<Finding>,
}

/// Reserved CPU of a host, and the capacity in the last report of its agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CpuOnHost {
    /// The host.
    pub host: String,
    /// Reserved CPU in thousandths of a CPU.
    pub reserved: u128,
    /// Number of vCPUs with a reservation.
    pub vcpus: u128,
    /// Capacity that the host reported; `None` if unknown or silent.
    pub keeps: Option<HostCpu>,
    /// Its guests that have more reserved than they are promised.
    pub unpromised: Vec<UnpromisedGuest>,
}

impl CpuOnHost {
    /// Returns whether the host's capacity covers its reservations. A later decision can be correct
    /// although this is false, because a host can lower its reported capacity.
    pub fn holds(&self) -> bool {
        let most = self.keeps.map(|keeps| keeps.left()).unwrap_or_default();
        self.reserved <= most.cpu.into() && self.vcpus <= most.threads.into()
    }
}

impl fmt::Display for CpuOnHost {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            host,
            reserved,
            vcpus,
            keeps,
            unpromised,
        } = self;
        let cpus = |thousandths: u128| format!("{}.{:03}", thousandths / 1000, thousandths % 1000);
        write!(
            formatter,
            "host {host:?}: {} of a CPU reserved for {vcpus} vCPUs, ",
            cpus(*reserved)
        )?;
        match keeps {
            Some(keeps) => write!(
                formatter,
                "and it keeps {} for {}",
                cpus(keeps.reservable.into()),
                keeps.threads
            ),
            None => formatter.write_str("and it keeps none"),
        }?;
        if let Some(CpuUse { cpu, threads }) = keeps.map(|keeps| keeps.unpromised)
            && !unpromised.is_empty()
        {
            let cpu = cpus(cpu.into());
            write!(
                formatter,
                ", of which {threads} vCPUs have {cpu} unpromised:"
            )?;
        }
        for UnpromisedGuest { guest, what } in unpromised {
            write!(formatter, "\n  {guest}: {what}")?;
        }
        Ok(())
    }
}

/// A host with guarantees whose frames leave later than admission counted with, or whose lateness is
/// not known yet. Later decisions can be correct although there is one: hosts can become late.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LateHost {
    /// The host.
    pub host: String,
    /// The number of its machines with a guarantee.
    pub machines: u64,
    /// The rule that the host breaks.
    pub rule: HostRule,
}

impl fmt::Display for LateHost {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            host,
            machines,
            rule,
        } = self;
        write!(
            formatter,
            "host {host:?} with {machines} guaranteed machines: {rule}"
        )
    }
}

/// Something that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// A tenant, host, port or key.
    pub subject: String,
    /// Description of the mistake.
    pub what: String,
    /// True for a port that carries more than the rules allow and has no other mistake: its tenants
    /// were admitted by other rules, or adopted. Also true for tenants that were adopted although
    /// they did not fit, and for their hosts.
    pub is_over: bool,
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.subject, self.what)
    }
}

impl Finding {
    fn new(subject: impl Into<String>, what: impl Into<String>) -> Self {
        Self {
            subject: subject.into(),
            what: what.into(),
            is_over: false,
        }
    }
}

/// Audits the content of a store.
pub fn audit(snapshot: &Snapshot) -> Report {
    let mut report = Report {
        tenants: snapshot.tenants.len(),
        keys: snapshot.keys.len(),
        ..Report::default()
    };
    keys::look(snapshot, &mut report.findings);
    report.entries = trail::look(snapshot, &mut report.findings);
    report.reservations = reservations::look(snapshot, &mut report.findings);
    let misfits = snapshot.tenants.values().filter(|tenant| tenant.misfit);
    report.misfits = misfits.count();
    let Some(state) = &snapshot.topology else {
        report
            .findings
            .push(Finding::new("topology", "there is none"));
        return report;
    };
    let topology = match state.spec.build() {
        Ok(topology) => topology,
        Err(error) => {
            let finding = Finding::new("topology", error.to_string());
            report.findings.push(finding);
            return report;
        }
    };
    for name in snapshot.hosts.keys() {
        if !topology
            .find(name)
            .is_some_and(|node| topology.is_host(node))
        {
            let problem = "it is recorded as closed, but there is no such host";
            report
                .findings
                .push(Finding::new(format!("host {name:?}"), problem));
        }
    }
    let mut tenants = Tenants::new(&topology);
    let mut traffic = Traffic::new(&topology, state.policy);
    for (id, tenant) in &snapshot.tenants {
        report.vms += u64::from(tenant.request.vms);
        let subject = format!("tenant {} ({}/{})", id.0, tenant.owner, tenant.name);
        let looked = tenants
            .look(*id, tenant, snapshot.next_id)
            .and_then(|hosts| traffic.add(&tenant.reserved(), &hosts));
        if let Err(problem) = looked {
            report.findings.push(Finding {
                is_over: tenant.misfit,
                ..Finding::new(subject, problem)
            });
        }
    }
    tenants.resources(&mut report.findings);
    report.cpu = cpu::reserved(&topology, snapshot);
    report.late = late::hosts(&topology, snapshot);
    report.ports = traffic.ports(&mut report.findings);
    report
}

//! Audits names, numbers, and the resources of hosts.

use super::Finding;
use std::collections::{BTreeMap, HashMap, HashSet};
use tailbound_api::{Run, Tenant, is_name};
use tailbound_placement::{FaultDomains, NodeId, Resources, TenantId, Topology};
use tailbound_units::Bytes;

/// The resources that all tenants use together.
pub(super) struct Tenants<'a> {
    topology: &'a Topology,
    names: HashMap<(&'a str, &'a str), TenantId>,
    /// Used resources by node.
    usage: Vec<HostUse>,
    /// Hosts of tenants that were adopted although they did not fit.
    misfits: HashSet<NodeId>,
}

#[derive(Clone, Copy, Default)]
struct HostUse {
    slots: u64,
    cpu: u128,
    memory: u128,
}

impl<'a> Tenants<'a> {
    pub(super) fn new(topology: &'a Topology) -> Self {
        Self {
            topology,
            names: HashMap::new(),
            usage: vec![HostUse::default(); topology.len()],
            misfits: HashSet::new(),
        }
    }

    /// Audits a tenant by itself and adds the resources that it uses. Returns how many machines it
    /// has on which hosts, or what is wrong.
    pub(super) fn look(
        &mut self,
        id: TenantId,
        tenant: &'a Tenant,
        next_id: u64,
    ) -> Result<Vec<(NodeId, u32)>, String> {
        let hosts = self.hosts(tenant)?;
        if tenant.misfit {
            self.misfits.extend(hosts.iter().map(|(host, _)| *host));
        }
        for (host, count) in &hosts {
            let usage = &mut self.usage[host.index()];
            usage.slots += u64::from(*count);
            usage.cpu += u128::from(tenant.request.cpu) * u128::from(*count);
            usage.memory += u128::from(tenant.request.memory.0) * u128::from(*count);
        }
        if tenant.id != id {
            return Err(format!("its record has the number {}", tenant.id.0));
        }
        if id.0 >= next_id {
            return Err(format!("the next number is {next_id}"));
        }
        if !is_name(&tenant.owner) || !is_name(&tenant.name) {
            return Err("its owner or its name is none".to_owned());
        }
        let name = (tenant.owner.as_str(), tenant.name.as_str());
        if let Some(other) = self.names.insert(name, id) {
            return Err(format!("the tenant {} has the same name", other.0));
        }
        let wrong = tenant.request.check();
        wrong.map_err(|error| error.to_string())?;
        if let Some(domains) = tenant.request.domains {
            self.domains(domains, tenant.reserved().vms, &hosts)?;
        }
        Ok(hosts)
    }

    /// Returns the hosts of a tenant, checked: every machine is there once, on a host that exists.
    fn hosts(&self, tenant: &Tenant) -> Result<Vec<(NodeId, u32)>, String> {
        let mut hosts: BTreeMap<NodeId, u32> = BTreeMap::new();
        let (mut next, mut sum) = (0_u64, 0_u64);
        for run in &tenant.runs {
            let node = self.topology.find(&run.host);
            let host = node.filter(|node| self.topology.is_host(*node));
            let host = host.ok_or_else(|| format!("there is no host {:?}", run.host))?;
            if run.count == 0 || u64::from(run.first) < next {
                return Err(format!("the machine {} is there twice", run.first));
            }
            next = u64::from(run.first) + u64::from(run.count);
            sum += u64::from(run.count);
            let here = hosts.entry(host).or_default();
            *here = here.saturating_add(run.count);
        }
        if sum != u64::from(tenant.request.vms) {
            return Err(format!(
                "it asked for {} machines and has {sum}",
                tenant.request.vms
            ));
        }
        if let Some(moving) = &tenant.moving {
            let has = |run: &Run| {
                let at = moving.vm.checked_sub(run.first);
                at.is_some_and(|at| at < run.count) && *run.host != *moving.to
            };
            let node = self.topology.find(&moving.to);
            let host = node.filter(|node| self.topology.is_host(*node));
            let (Some(host), true) = (host, tenant.runs.iter().any(has)) else {
                return Err(format!(
                    "its machine {} cannot move to {:?}",
                    moving.vm, moving.to
                ));
            };
            *hosts.entry(host).or_default() += 1;
        }
        Ok(hosts.into_iter().collect())
    }

    /// Checks that no fault domain has more than its part of the machines.
    fn domains(
        &self,
        domains: FaultDomains,
        vms: u32,
        hosts: &[(NodeId, u32)],
    ) -> Result<(), String> {
        let mut parts: BTreeMap<NodeId, u32> = BTreeMap::new();
        for (host, count) in hosts {
            let above = std::iter::successors(Some(*host), |node| self.topology.parent(*node));
            let domain = above.take_while(|node| self.topology.height(*node) <= domains.height);
            *parts.entry(domain.last().unwrap_or(*host)).or_default() += count;
        }
        let most = vms.div_ceil(domains.count);
        match parts.iter().find(|(_, part)| **part > most) {
            Some((domain, part)) => Err(format!(
                "{} has {part} of its machines, and may have {most}",
                self.topology.name(*domain)
            )),
            None => Ok(()),
        }
    }

    /// Checks that no host's resources are exceeded.
    pub(super) fn resources(&self, findings: &mut Vec<Finding>) {
        for host in self.topology.hosts() {
            let usage = self.usage[host.index()];
            let Resources { slots, cpu, memory } = self.topology.resources(*host);
            let Bytes(memory) = memory;
            for (what, usage, has) in [
                ("slots", u128::from(usage.slots), u128::from(slots)),
                ("thousandths of a CPU", usage.cpu, u128::from(cpu)),
                ("bytes of memory", usage.memory, u128::from(memory)),
            ] {
                if usage > has {
                    let subject = format!("host {:?}", self.topology.name(*host));
                    let what = format!("{usage} {what} are taken of {has}");
                    findings.push(Finding {
                        is_over: self.misfits.contains(host),
                        ..Finding::new(subject, what)
                    });
                }
            }
        }
    }
}

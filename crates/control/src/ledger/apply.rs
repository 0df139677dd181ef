//! Applies changes to a ledger: those that another ledger decided, and those that undo a decision.

use super::change::{Change, Hosts, Subject};
use super::{Ledger, LoadError, runs};
use std::collections::BTreeSet;
use std::sync::Arc;
use tailbound_api::Tenant;
use tailbound_placement::pinned::{self, Running};
use tailbound_placement::{NodeId, Placement, TenantId};

/// The hosts whose guarantees may differ after some changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AffectedHosts {
    /// These hosts.
    Hosts(BTreeSet<String>),
    /// Every host: the topology was replaced.
    All,
}

impl Ledger {
    /// Applies what another ledger decided.
    ///
    /// Tenants that are deleted or replaced are removed first, so that the order of changes within
    /// one commit does not matter.
    ///
    /// # Errors
    /// The changes do not fit this ledger, which is as it was before.
    pub fn apply(&mut self, changes: &[Change]) -> Result<AffectedHosts, LoadError> {
        let changes = Change::coalesced(changes);
        if changes
            .iter()
            .any(|change| change.subject() == Subject::Topology)
        {
            // All tenants have to be checked anyway.
            let mut snapshot = self.snapshot();
            for change in changes {
                snapshot.apply(std::slice::from_ref(change));
            }
            self.replace_with(Self::load(snapshot)?);
            return Ok(AffectedHosts::All);
        }
        let touched = self.touched(&changes);
        let before: Vec<Change> = changes.iter().map(|change| self.before(change)).collect();
        let put = self.put_all(&changes);
        if let Err(error) = put.and_then(|()| check_resources(self)) {
            self.put_all(&before.iter().collect::<Vec<_>>())?;
            return Err(error);
        }
        Ok(AffectedHosts::Hosts(touched))
    }

    /// Returns the hosts whose guarantees these changes affect.
    fn touched(&self, changes: &[&Change]) -> BTreeSet<String> {
        let mut touched = BTreeSet::new();
        for change in changes {
            if let Subject::Tenant(id) = change.subject() {
                let old = self.tenants.get(&id);
                let new = match change {
                    Change::Tenant(tenant) => Some(tenant),
                    _ => None,
                };
                let hosts = [old, new].into_iter().flatten().flat_map(|t| t.hosts());
                touched.extend(hosts.map(str::to_owned));
            }
            if let Change::Hosts(hosts) = change {
                touched.extend(hosts_that_differ(self, hosts).cloned());
            }
        }
        touched
    }

    /// Applies changes of different things.
    fn put_all(&mut self, changes: &[&Change]) -> Result<(), LoadError> {
        for change in changes {
            if let Subject::Tenant(id) = change.subject() {
                self.remove_tenant(id);
            }
        }
        for change in changes {
            self.put(change)?;
        }
        Ok(())
    }

    /// Returns the change that undoes this one.
    pub(super) fn before(&self, change: &Change) -> Change {
        match change.subject() {
            Subject::Tenant(id) => match self.tenants.get(&id) {
                Some(tenant) => Change::Tenant(Arc::clone(tenant)),
                None => Change::Gone(id),
            },
            Subject::Hosts => Change::Hosts(Arc::clone(&self.hosts)),
            Subject::Said(host) => match self.report_by_name(host) {
                Some(last_report) => Change::Said(host.to_owned(), Arc::clone(last_report)),
                None => Change::SaidGone(host.to_owned()),
            },
            Subject::Topology => Change::Topology(Arc::clone(&self.topology)),
            Subject::Key(key) => match self.callers.keys.get(key) {
                Some(record) => Change::Key(Arc::new(key.clone()), Arc::clone(record)),
                None => Change::KeyGone(key.clone()),
            },
            Subject::Token(name) => match self.callers.tokens.get(name) {
                Some(token) => Change::Token(Arc::clone(token)),
                None => Change::TokenGone(name.to_owned()),
            },
            Subject::NextId => Change::NextId(self.next_id),
            Subject::Audit(first) => match self.log.audit.block(first) {
                Some(block) => Change::Audit(first, Arc::clone(block)),
                None => Change::AuditGone(first),
            },
        }
    }

    /// Applies one change. After an error the entry that the change replaces may be missing.
    pub(super) fn put(&mut self, change: &Change) -> Result<(), LoadError> {
        match change {
            Change::Tenant(tenant) => {
                self.remove_tenant(tenant.id);
                self.put_tenant(Arc::clone(tenant))?;
            }
            Change::Gone(id) => {
                self.remove_tenant(*id);
            }
            Change::Hosts(hosts) => self.set_hosts(Arc::clone(hosts))?,
            Change::Said(host, last_report) => self.put_report(host, Some(Arc::clone(last_report))),
            Change::SaidGone(host) => self.put_report(host, None),
            Change::Topology(topology) => {
                let mut snapshot = self.snapshot();
                snapshot.topology = Some(Arc::clone(topology));
                self.replace_with(Self::load(snapshot)?);
            }
            Change::Key(key, record) => self.callers.keys.put(Arc::clone(key), Arc::clone(record)),
            Change::KeyGone(key) => self.callers.keys.remove(key),
            Change::Token(token) => self.callers.tokens.put(Arc::clone(token)),
            Change::TokenGone(name) => self.callers.tokens.remove(name),
            Change::NextId(next) => self.next_id = *next,
            Change::Audit(first, block) => self.log.audit.put(*first, Arc::clone(block)),
            Change::AuditGone(first) => self.log.audit.remove(*first),
        }
        Ok(())
    }

    /// Adds all tenants of a new ledger at their recorded places. After an error some of them may
    /// have been added.
    pub(super) fn put_tenants(&mut self, tenants: Vec<Arc<Tenant>>) -> Result<(), LoadError> {
        let mut placements = Vec::with_capacity(tenants.len());
        for tenant in &tenants {
            placements.push(self.placement(tenant)?);
        }
        let placed = tenants.iter().zip(&placements);
        let running = placed.map(|(tenant, at)| running(tenant, at));
        pinned::put(&mut self.datacentre, running).map_err(|(tenant, error)| {
            LoadError::Tenant {
                tenant,
                why: error.to_string(),
            }
        })?;
        for (tenant, placement) in tenants.into_iter().zip(placements) {
            self.check_name(&tenant)?;
            self.list(tenant, &placement);
        }
        Ok(())
    }

    /// Adds a tenant whose number is free if every promise holds.
    pub(super) fn put_if_kept(&mut self, tenant: Arc<Tenant>) -> Result<(), LoadError> {
        let placement = self.placement(&tenant)?;
        self.datacentre
            .holds(&tenant.reserved(), &placement)
            .map_err(|error| LoadError::Tenant {
                tenant: tenant.id,
                why: error.to_string(),
            })?;
        self.put_tenant(tenant)
    }

    /// Adds a tenant with an unused number at its recorded place. Ports may exceed their capacity
    /// if the rules were different at the tenant's admission.
    pub(super) fn put_tenant(&mut self, tenant: Arc<Tenant>) -> Result<(), LoadError> {
        let placement = self.placement(&tenant)?;
        self.check_name(&tenant)?;
        let put = pinned::put(&mut self.datacentre, [running(&tenant, &placement)]);
        put.map_err(|(tenant, error)| LoadError::Tenant {
            tenant,
            why: error.to_string(),
        })?;
        self.list(tenant, &placement);
        Ok(())
    }

    /// Checks that the tenant's name is free.
    fn check_name(&self, tenant: &Tenant) -> Result<(), LoadError> {
        match self.owners.find(&tenant.owner, &tenant.name) {
            None => Ok(()),
            Some(other) => Err(LoadError::Tenant {
                tenant: tenant.id,
                why: format!(
                    "{}/{} is the tenant {} as well",
                    tenant.owner, tenant.name, other.0
                ),
            }),
        }
    }

    /// Removes a tenant if it is there, and returns it.
    pub(super) fn remove_tenant(&mut self, id: TenantId) -> Option<Arc<Tenant>> {
        let had = self.datacentre.release(id).ok()?;
        self.unlist(id, &had.placement)
    }

    /// Returns the placement of a tenant, checked against the topology.
    pub(super) fn placement(&self, tenant: &Tenant) -> Result<Placement, LoadError> {
        let bad = |why: String| LoadError::Tenant {
            tenant: tenant.id,
            why,
        };
        runs::check(&tenant.runs, tenant.request.vms).map_err(bad)?;
        let topology = self.datacentre.topology();
        let mut hosts = Vec::with_capacity(tenant.runs.len());
        let runs = tenant.runs.iter().map(|run| (&*run.host, run.count));
        let moving = tenant.moving.as_ref();
        if let Some(moving) = moving
            && runs::host_of(&tenant.runs, moving.vm).is_none()
        {
            return Err(bad(format!("it has no machine {} to move", moving.vm)));
        }
        for (name, count) in runs.chain(moving.map(|moving| (&*moving.to, 1))) {
            let host = topology.find(name).filter(|node| topology.is_host(*node));
            let host = host.ok_or_else(|| bad(format!("there is no host {name:?}")))?;
            hosts.push((host, count));
        }
        Ok(Placement::new(hosts))
    }

    /// Adds a tenant to the indices; the data centre has it already.
    pub(super) fn list(&mut self, tenant: Arc<Tenant>, placement: &Placement) {
        self.used += u64::from(tenant.reserved().vms);
        self.owners.add(&tenant);
        self.index.add(tenant.id, placement);
        let id = tenant.id;
        self.tenants.insert(id, tenant);
        self.note_listed(id, placement);
    }

    /// Removes a tenant from the indices.
    pub(super) fn unlist(&mut self, id: TenantId, had: &Placement) -> Option<Arc<Tenant>> {
        let tenant = self.tenants.remove(&id)?;
        self.used -= u64::from(tenant.reserved().vms);
        self.owners.remove(&tenant);
        self.index.remove(id, had);
        self.note_unlisted(id, had);
        Some(tenant)
    }

    /// Opens and closes hosts, so that exactly these are closed.
    pub(super) fn set_hosts(&mut self, hosts: Arc<Hosts>) -> Result<(), LoadError> {
        let topology = self.datacentre.topology();
        let differ = |one: &Hosts, other: &Hosts| -> Result<Vec<NodeId>, LoadError> {
            let names = one.keys().filter(|name| !other.contains_key(*name));
            names
                .map(|name| {
                    let host = topology.find(name).filter(|node| topology.is_host(*node));
                    host.ok_or_else(|| LoadError::Host(name.clone()))
                })
                .collect()
        };
        let closed = differ(&hosts, &self.hosts)?;
        let open = differ(&self.hosts, &hosts)?;
        for host in closed {
            self.datacentre.set_closed(host, true);
        }
        for host in open {
            self.datacentre.set_closed(host, false);
        }
        self.hosts = hosts;
        Ok(())
    }
}

/// Returns a tenant as the data centre receives it. The resources of hosts are not checked:
/// [`check_resources`] checks them when all tenants are there.
fn running(tenant: &Tenant, placement: &Placement) -> Running {
    Running {
        id: tenant.id,
        request: tenant.reserved(),
        placement: placement.clone(),
        is_misfit: tenant.misfit,
    }
}

/// Checks that no host has more machines than it has resources for, unless some were adopted there
/// although they did not fit.
pub(super) fn check_resources(ledger: &Ledger) -> Result<(), LoadError> {
    for host in pinned::overfull(&ledger.datacentre) {
        let here = ledger.index.at(host);
        let mut tenants = here.iter().filter_map(|id| ledger.tenants.get(id));
        if !tenants.clone().any(|tenant| tenant.misfit)
            && let Some(last) = tenants.next_back()
        {
            let name = ledger.datacentre.topology().name(host);
            return Err(LoadError::Tenant {
                tenant: last.id,
                why: format!("host {name:?} has too few slots, CPUs or memory for its machines"),
            });
        }
    }
    Ok(())
}

/// Returns the hosts whose states differ from those of a ledger; some of them twice.
pub(crate) fn hosts_that_differ<'h>(
    ledger: &'h Ledger,
    hosts: &'h Hosts,
) -> impl Iterator<Item = &'h String> {
    let names = ledger.hosts.keys().chain(hosts.keys());
    names.filter(|name| ledger.hosts.get(*name) != hosts.get(*name))
}

/// Returns the tenants that are new, gone or changed from one ledger to another.
pub(crate) fn tenants_that_differ<'t>(old: &'t Ledger, new: &'t Ledger) -> Vec<&'t Tenant> {
    let differs = |(id, tenant): &(&TenantId, &Arc<Tenant>), other: &Ledger| {
        other.tenants.get(id).is_none_or(|other| other != *tenant)
    };
    let removed_tenants = old.tenants.iter();
    let removed_tenants = removed_tenants.filter(|(id, _)| !new.tenants.contains_key(id));
    let changed = new.tenants.iter().filter(|it| differs(it, old));
    removed_tenants
        .chain(changed)
        .map(|(_, tenant)| &**tenant)
        .collect()
}

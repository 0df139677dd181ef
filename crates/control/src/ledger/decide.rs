//! Decides calls: from a command to the reply, the changes and how to undo them.

use super::change::{Change, Hosts, KeyId, KeyRecord, ReceivedReport};
use super::checks::{check_limit, check_names};
use super::command::{Call, Command, Reply};
use super::draft::{Draft, Replacement, Undo};
use super::quota::{Quota, Usage};
use super::{
    Ledger, LedgerError, LoadError, adopt, batch, machines, marks, pinned, reservations, runs,
    tokens, topology,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use tailbound_api::{
    Affected, HostChange, HostReport, HostState, NewTenant, Run, Tenant, TopologyState, VmLimit,
};
use tailbound_placement::{Guarantee, NodeId, Placement, Request, Spec, TenantId};
use tailbound_units::Nanos;

/// Limit on the idempotency keys that one decision deletes, so that decisions stay short.
const FORGET: usize = 8;

/// An accepted call. The ledger is changed already.
#[derive(Debug)]
#[must_use = "the reply counts only once the changes are durable"]
pub struct Decision {
    /// The reply to the caller.
    pub reply: Reply,
    /// The changes that the store has to keep before the reply is sent; empty if nothing changed.
    pub changes: Vec<Change>,
    /// Undoes the decision.
    pub undo: Undo,
}

/// The parts of a request that a call changes; None keeps a part.
#[derive(Clone, Copy)]
struct RequestChange {
    vms: Option<u32>,
    guarantee: Option<Guarantee>,
}

impl Ledger {
    /// Decides a call: changes this ledger, and returns the reply and the changes to keep before
    /// it is sent.
    ///
    /// `now` is the time since 1970; only idempotency keys and ends of tokens depend on it.
    ///
    /// # Errors
    /// The call is refused, and nothing has changed.
    pub fn decide(&mut self, call: &Call, now: Nanos) -> Result<Decision, LedgerError> {
        let now = self.callers.keys.later(now);
        let owner = call.owner.as_deref();
        let owner = owner.or_else(|| call.command.owner_of_host());
        let key = call.key.as_ref().map(|key| KeyId {
            owner: owner.map(str::to_owned),
            key: key.clone(),
        });
        if let Some(key) = &key
            && let Some(record) = self.callers.keys.live(key, now)
        {
            if record.fingerprint != call.fingerprint {
                return Err(LedgerError::KeyReused(key.key.clone()));
            }
            return Ok(Decision {
                reply: record.reply.clone(),
                changes: Vec::new(),
                undo: Undo::default(),
            });
        }
        let mut draft = Draft::default();
        check_expected(self, call)?;
        let reply = execute(self, call, now, &mut draft)?;
        if let Some(key) = key {
            self.keep_reply(key, call.fingerprint, now, &reply, &mut draft);
        }
        self.forget_moves();
        Ok(Decision {
            reply,
            changes: draft.changes,
            undo: draft.undo,
        })
    }

    /// Undoes the last decision that was not undone. The state is as before it, to the bit.
    ///
    /// # Errors
    /// `undo` does not belong to the last decision. The ledger must not be used any more.
    pub fn undo(&mut self, undo: Undo) -> Result<(), LoadError> {
        for change in undo.0.into_iter().rev() {
            self.put(&change)?;
        }
        Ok(())
    }

    pub(super) fn create(
        &mut self,
        new: &NewTenant,
        quota: &Quota,
        draft: &mut Draft,
    ) -> Result<Reply, LedgerError> {
        let owner = new.owner.as_deref().unwrap_or_default();
        check_names(owner, &new.name)?;
        let request = self.datacentre.topology().with_class(new.request());
        request.check()?;
        check_limit(&new.limit, &request)?;
        if let Some(id) = self.owners.find(owner, &new.name) {
            return Err(LedgerError::Exists {
                owner: owner.to_owned(),
                name: new.name.clone(),
                id,
            });
        }
        let has = self.owners.usage(owner);
        quota.check(owner, has, has.plus(Usage::of(&request)))?;
        let id = TenantId(self.next_id);
        let placement = if new.placement.is_empty() {
            self.datacentre.admit(id, &request)?.clone()
        } else {
            pinned::admit(self, id, &request, &new.placement)?
        };
        let tenant = Tenant {
            id,
            owner: owner.to_owned(),
            name: new.name.clone(),
            request,
            limit: new.limit,
            runs: self.runs(&[], &placement),
            change: id.0,
            moving: None,
            standing: None,
            reservations: Vec::new(),
            misfit: false,
        };
        let reply = self.entered(tenant, &placement, draft);
        self.count(draft);
        Ok(reply)
    }

    /// Returns the next number, which is unused by tenants and by their changes. Both share one
    /// counter, so that the number of the latest change that a host knows implies which tenants and
    /// changes it knows.
    pub(super) fn count(&mut self, draft: &mut Draft) -> u64 {
        let next = self.next_id;
        draft.keep(Change::NextId(next), Change::NextId(next + 1));
        self.next_id += 1;
        next
    }

    fn change(
        &mut self,
        call: &Call,
        id: TenantId,
        change: RequestChange,
        draft: &mut Draft,
    ) -> Result<Reply, LedgerError> {
        let old = self.settled(call.owner.as_deref(), id)?;
        let topology = self.datacentre.topology();
        let guarantee = change.guarantee.map(|it| topology.guarantee_with_class(it));
        let request = Request {
            vms: change.vms.unwrap_or(old.request.vms),
            guarantee: guarantee.or(old.request.guarantee),
            ..old.request
        };
        if request == old.request {
            return Ok(Reply::Tenant(old));
        }
        request.check()?;
        check_limit(&old.limit, &request)?;
        if request.vms < old.request.vms {
            marks::check_none_open(&old)?;
        }
        let has = self.owners.usage(&old.owner);
        let after = has.minus(Usage::of(&old.request)).plus(Usage::of(&request));
        call.quota.check(&old.owner, has, after)?;
        let placement = Replacement {
            old: self.placement_of(id),
            new: self.datacentre.change(id, request)?.clone(),
        };
        Ok(self.replaced(&old, request, &placement, draft))
    }

    fn relocate(
        &mut self,
        owner: Option<&str>,
        id: TenantId,
        draft: &mut Draft,
    ) -> Result<Reply, LedgerError> {
        let old = self.settled(owner, id)?;
        marks::check_none_open(&old)?;
        let placement = Replacement {
            old: self.placement_of(id),
            new: self.datacentre.relocate(id)?.clone(),
        };
        if placement.old == placement.new {
            return Ok(Reply::Tenant(old));
        }
        Ok(self.replaced(&old, old.request, &placement, draft))
    }

    /// Limits a tenant's machines: nothing is placed anew for that.
    fn limit(
        &mut self,
        owner: Option<&str>,
        id: TenantId,
        limit: VmLimit,
        draft: &mut Draft,
    ) -> Result<Reply, LedgerError> {
        let old = self.visible(owner, id)?;
        check_limit(&limit, &old.request)?;
        if old.limit == limit {
            return Ok(Reply::Tenant(old));
        }
        let placement = self.placement_of(id);
        let placement = Replacement {
            old: placement.clone(),
            new: placement,
        };
        let tenant = Tenant {
            limit,
            ..Tenant::clone(&old)
        };
        Ok(self.relisted(&old, tenant, &placement, draft))
    }

    pub(super) fn delete(
        &mut self,
        owner: Option<&str>,
        id: TenantId,
        draft: &mut Draft,
    ) -> Result<Reply, LedgerError> {
        let old = self.visible(owner, id)?;
        draft.keep(Change::Tenant(old), Change::Gone(id));
        self.remove_tenant(id);
        Ok(Reply::Deleted)
    }

    fn set_states(
        &mut self,
        name: &str,
        state: HostState,
        draft: &mut Draft,
    ) -> Result<Reply, LedgerError> {
        let node = self
            .node(name)
            .ok_or_else(|| LedgerError::NotFound(format!("host, rack or pod {name:?}")))?;
        let below = self.hosts_below(node);
        let mut hosts = Hosts::clone(&self.hosts);
        for host in &below {
            let name = self.datacentre.topology().name(*host);
            match state {
                HostState::Open => hosts.remove(name),
                HostState::Drained | HostState::Failed => hosts.insert(name.to_owned(), state),
            };
        }
        if hosts != *self.hosts {
            let hosts = Arc::new(hosts);
            let before = Change::Hosts(Arc::clone(&self.hosts));
            draft.keep(before, Change::Hosts(Arc::clone(&hosts)));
            self.hosts = hosts;
        }
        self.datacentre.set_closed(node, state != HostState::Open);
        let affected = match state {
            HostState::Open => Vec::new(),
            HostState::Drained | HostState::Failed => self.affected(&below),
        };
        Ok(Reply::Hosts(Arc::new(HostChange {
            node: name.to_owned(),
            state,
            hosts: below.len() as u32,
            affected,
        })))
    }

    fn report(
        &mut self,
        name: &str,
        report: &HostReport,
        draft: &mut Draft,
    ) -> Result<Reply, LedgerError> {
        let host = self.host_node(name);
        let host = host.ok_or_else(|| LedgerError::NotFound(format!("host {name:?}")))?;
        if self.is_news(name, report) {
            let stored_report = self.stored_part_of(host, report);
            self.store_report(name, stored_report, None, draft);
            let arrived: Vec<_> = self.arrivals(host, report).collect();
            for id in arrived {
                self.arrive(id, draft)?;
            }
        }
        Ok(Reply::Noted)
    }

    /// Replaces the report of a host, which must exist.
    fn store_report(
        &mut self,
        name: &str,
        report: HostReport,
        silent_since: Option<u64>,
        draft: &mut Draft,
    ) {
        let last_report = ReceivedReport {
            report,
            silent_since,
        };
        let last_report = Arc::new(last_report);
        let change = Change::Said(name.to_owned(), Arc::clone(&last_report));
        draft.keep(self.before(&change), change);
        self.put_report(name, Some(last_report));
    }

    fn set_topology(
        &mut self,
        spec: &Spec,
        expected: Option<u64>,
        draft: &mut Draft,
    ) -> Result<Reply, LedgerError> {
        let is = self.topology.revision;
        if let Some(expected) = expected.filter(|expected| *expected != is) {
            return Err(LedgerError::Changed { expected, is });
        }
        let (mut diff, mut ledger) = topology::plan(&self.snapshot(), spec)?;
        if !diff.broken.is_empty() {
            return Err(LedgerError::Breaks(diff.broken));
        }
        if *spec == self.topology.spec {
            return Ok(Reply::Topology(Arc::new(diff)));
        }
        diff.revision = is + 1;
        let topology = TopologyState {
            revision: diff.revision,
            policy: self.topology.policy,
            spec: spec.clone(),
        };
        ledger.topology = Arc::new(topology);
        // Undone in the reverse order: the hosts' states need the old topology.
        draft.keep(
            Change::Hosts(Arc::clone(&self.hosts)),
            Change::Hosts(Arc::clone(&ledger.hosts)),
        );
        draft.keep(
            Change::Topology(Arc::clone(&self.topology)),
            Change::Topology(Arc::clone(&ledger.topology)),
        );
        *self = ledger;
        Ok(Reply::Topology(Arc::new(diff)))
    }

    /// Returns a tenant that the caller may see.
    pub(super) fn visible(
        &self,
        owner: Option<&str>,
        id: TenantId,
    ) -> Result<Arc<Tenant>, LedgerError> {
        self.tenant(id)
            .filter(|tenant| owner.is_none_or(|owner| tenant.owner == owner))
            .cloned()
            .ok_or_else(|| LedgerError::NotFound(format!("tenant {}", id.0)))
    }

    /// Returns a tenant without moving machines.
    pub(super) fn settled(
        &self,
        owner: Option<&str>,
        id: TenantId,
    ) -> Result<Arc<Tenant>, LedgerError> {
        let tenant = self.visible(owner, id)?;
        match &tenant.moving {
            None => Ok(tenant),
            Some(moving) => Err(LedgerError::on_its_way(&tenant, moving)),
        }
    }

    pub(super) fn placement_of(&self, id: TenantId) -> Placement {
        let tenant = self.datacentre.tenant(id);
        tenant.map_or_else(Placement::default, |tenant| tenant.placement.clone())
    }

    /// Returns the runs of machines for a placement, in which machines keep their numbers.
    pub(super) fn runs(&self, old: &[Run], placement: &Placement) -> Vec<Run> {
        let topology = self.datacentre.topology();
        let hosts = placement.hosts().iter();
        runs::assign(
            old,
            hosts.map(|(host, count)| (topology.shared_name(*host), *count)),
        )
    }

    /// Lists a tenant that the data centre has admitted.
    pub(super) fn entered(
        &mut self,
        tenant: Tenant,
        placement: &Placement,
        draft: &mut Draft,
    ) -> Reply {
        let tenant = Arc::new(tenant);
        draft.keep(Change::Gone(tenant.id), Change::Tenant(Arc::clone(&tenant)));
        self.list(Arc::clone(&tenant), placement);
        Reply::Tenant(tenant)
    }

    /// Lists a tenant again whose placement the data centre has changed.
    fn replaced(
        &mut self,
        old: &Arc<Tenant>,
        request: Request,
        placement: &Replacement,
        draft: &mut Draft,
    ) -> Reply {
        let tenant = Tenant {
            request,
            runs: self.runs(&old.runs, &placement.new),
            ..Tenant::clone(old)
        };
        self.relisted(old, tenant, placement, draft)
    }

    /// Replaces a tenant by its changed version, with the next number of a change.
    pub(super) fn relisted(
        &mut self,
        old: &Arc<Tenant>,
        tenant: Tenant,
        placement: &Replacement,
        draft: &mut Draft,
    ) -> Reply {
        let mut tenant = Tenant {
            change: self.count(draft),
            ..tenant
        };
        marks::prune(&mut tenant);
        let tenant = Arc::new(tenant);
        draft.keep(
            Change::Tenant(Arc::clone(old)),
            Change::Tenant(Arc::clone(&tenant)),
        );
        self.unlist(old.id, &placement.old);
        self.list(Arc::clone(&tenant), &placement.new);
        Reply::Tenant(tenant)
    }

    fn hosts_below(&self, node: NodeId) -> Vec<NodeId> {
        let topology = self.datacentre.topology();
        let mut hosts = Vec::new();
        let mut todo = vec![node];
        while let Some(node) = todo.pop() {
            if topology.is_host(node) {
                hosts.push(node);
            } else {
                todo.extend(topology.children(node));
            }
        }
        hosts
    }

    /// Returns the tenants with machines on these closed hosts, and where each of them would fit.
    fn affected(&mut self, hosts: &[NodeId]) -> Vec<Affected> {
        let mut lost: BTreeMap<TenantId, u32> = BTreeMap::new();
        for host in hosts {
            for (tenant, count) in self.machines_at(*host) {
                *lost.entry(tenant).or_default() += count;
            }
        }
        let affected = lost.into_iter().filter_map(|(id, lost)| {
            let (refit, refusal) = match self.datacentre.refit(id).ok()? {
                Ok(placement) => (self.placed(&placement), None),
                Err(refusal) => (Vec::new(), Some(refusal.to_string())),
            };
            let tenant = self.tenants.get(&id)?;
            Some(Affected {
                tenant: id,
                owner: tenant.owner.clone(),
                name: tenant.name.clone(),
                lost,
                refit,
                refusal,
            })
        });
        affected.collect()
    }

    /// Keeps a reply under its idempotency key, and forgets some that are too old.
    fn keep_reply(
        &mut self,
        key: KeyId,
        fingerprint: [u8; 32],
        now: Nanos,
        reply: &Reply,
        draft: &mut Draft,
    ) {
        let record = Arc::new(KeyRecord {
            fingerprint,
            at: now,
            reply: reply.clone(),
        });
        for _ in 0..FORGET {
            let Some(outdated_key) = self.callers.keys.outdated(now) else {
                break;
            };
            draft.keep(
                self.before(&Change::KeyGone(outdated_key.clone())),
                Change::KeyGone(outdated_key.clone()),
            );
            self.callers.keys.remove(&outdated_key);
        }
        let key = Arc::new(key);
        let key_change = Change::Key(Arc::clone(&key), Arc::clone(&record));
        draft.keep(self.before(&key_change), key_change);
        self.callers.keys.put(key, record);
    }
}

/// Executes a call's command. After an error nothing has changed.
fn execute(
    ledger: &mut Ledger,
    call: &Call,
    now: Nanos,
    draft: &mut Draft,
) -> Result<Reply, LedgerError> {
    let owner = call.owner.as_deref();
    match &call.command {
        Command::Create(new) => ledger.create(new, &call.quota, draft),
        Command::Change { id, vms, guarantee } => {
            let change = RequestChange {
                vms: *vms,
                guarantee: *guarantee,
            };
            ledger.change(call, *id, change, draft)
        }
        Command::Delete { id } => ledger.delete(owner, *id, draft),
        Command::Relocate { id } => ledger.relocate(owner, *id, draft),
        Command::Move { id, step } => ledger.move_vm(owner, *id, step, draft),
        Command::PutHost { id, host, machines } => {
            pinned::put_host(ledger, call, *id, host, machines, draft)
        }
        Command::Reserve(new) => reservations::reserve(ledger, &call.quota, new, draft),
        Command::PutMachine(put) => machines::put(ledger, &call.quota, put, draft),
        Command::DeleteMachine { machine, host, .. } => {
            machines::delete(ledger, machine, host, draft)
        }
        Command::Confirm(id) => reservations::confirm(ledger, owner, *id, draft),
        Command::Cancel(id) => reservations::cancel(ledger, owner, *id, draft),
        Command::Expire(ids) => Ok(reservations::expire(ledger, ids, draft)),
        Command::Batch(operations) => batch::execute(ledger, call, operations, draft),
        Command::Adopt(tenants) => adopt::adopt(ledger, tenants, draft),
        Command::Limit { id, limit } => ledger.limit(owner, *id, *limit, draft),
        Command::SetHosts { node, state } => ledger.set_states(node, *state, draft),
        Command::Report { host, report } => ledger.report(host, report, draft),
        Command::Silence { hosts } => Ok(silence(ledger, hosts, draft)),
        Command::IssueToken(token) => tokens::issue(ledger, token, now, draft),
        Command::RevokeToken(name) => tokens::revoke(ledger, owner, name, draft),
        Command::SetTopology { spec, expected } => ledger.set_topology(spec, *expected, draft),
    }
}

/// Marks hosts as silent.
fn silence(ledger: &mut Ledger, hosts: &[(String, u64)], draft: &mut Draft) -> Reply {
    for (name, since) in hosts {
        let last_report = ledger
            .host_node(name)
            .and_then(|host| ledger.last_report(host));
        let last_report = last_report.filter(|last_report| last_report.silent_since.is_none());
        if let Some(report) = last_report.map(|last_report| last_report.report.clone()) {
            ledger.store_report(name, report, Some(*since), draft);
        }
    }
    Reply::Noted
}

/// Checks that the caller knows the last change of the tenant that it changes.
fn check_expected(ledger: &Ledger, call: &Call) -> Result<(), LedgerError> {
    let (Some(expected), Some(id)) = (call.expected, call.command.tenant()) else {
        return Ok(());
    };
    let change = ledger.visible(call.owner.as_deref(), id)?.change;
    if change == expected {
        return Ok(());
    }
    Err(LedgerError::TenantChanged {
        id,
        expected,
        change,
    })
}

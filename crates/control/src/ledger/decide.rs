//! Calls that change something.

use super::change::{Change, Hosts, KeyId, KeyRecord};
use super::{Denied, Ledger, LoadError, runs, topology};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use tailbound_api::{
    Affected, HostChange, HostState, NewTenant, Run, Tenant, TopologyDiff, TopologyState, is_name,
};
use tailbound_placement::{NodeId, Placement, Request, Spec, TenantId};
use tailbound_units::Nanos;

/// How many idempotency keys one decision forgets at most, so that it stays
/// short.
const FORGET: usize = 8;

/// What shall be changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// A new tenant, whose owner is said.
    Create(NewTenant),
    /// Another number of machines.
    Resize {
        /// Whose.
        id: TenantId,
        /// The new number.
        vms: u32,
    },
    /// A tenant goes.
    Delete {
        /// Which.
        id: TenantId,
    },
    /// A tenant's machines on closed hosts go to open ones.
    Relocate {
        /// Whose.
        id: TenantId,
    },
    /// Hosts are drained, broken or back.
    SetHosts {
        /// The host, rack or pod.
        node: String,
        /// What its hosts are from now on.
        state: HostState,
    },
    /// Another topology.
    SetTopology {
        /// What it is.
        spec: Box<Spec>,
        /// The revision that it was compared with, if any.
        expected: Option<u64>,
    },
}

/// A command, and who gives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// Whose tenants may be changed; None for an operator: everybody's.
    pub owner: Option<String>,
    /// The idempotency key, if any.
    pub key: Option<String>,
    /// Tells requests with the same key apart: a hash of all of the request.
    pub fingerprint: [u8; 32],
    /// What shall be changed.
    pub command: Command,
}

/// What a call comes to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reply {
    /// The tenant as it is now.
    Tenant(Arc<Tenant>),
    /// The tenant is gone.
    Deleted,
    /// What happened to hosts.
    Hosts(Arc<HostChange>),
    /// What is different now.
    Topology(Arc<TopologyDiff>),
}

/// A call that was accepted; the ledger is changed already.
#[derive(Debug)]
#[must_use = "the reply counts only once the changes are durable"]
pub struct Decision {
    /// What to answer.
    pub reply: Reply,
    /// What has to be kept before that; nothing if nothing has changed.
    pub changes: Vec<Change>,
    /// How to take it back.
    pub undo: Undo,
}

/// What takes a decision back.
#[derive(Debug, Default)]
pub struct Undo(Vec<Change>);

impl Ledger {
    /// Decides a call: changes this ledger and says what to answer, and what to
    /// keep before.
    ///
    /// `now` is the time since 1970; only the age of idempotency keys depends on
    /// it.
    ///
    /// # Errors
    /// Why not; nothing has changed.
    pub fn decide(&mut self, call: &Call, now: Nanos) -> Result<Decision, Denied> {
        let now = self.keys.later(now);
        let key = call.key.as_ref().map(|key| KeyId {
            owner: call.owner.clone(),
            key: key.clone(),
        });
        if let Some(key) = &key
            && let Some(record) = self.keys.live(key, now)
        {
            if record.fingerprint != call.fingerprint {
                return Err(Denied::KeyReused(key.key.clone()));
            }
            return Ok(Decision {
                reply: record.reply.clone(),
                changes: Vec::new(),
                undo: Undo::default(),
            });
        }
        let mut draft = Draft::default();
        let owner = call.owner.as_deref();
        let reply = match &call.command {
            Command::Create(new) => self.create(new, &mut draft),
            Command::Resize { id, vms } => self.resize(owner, *id, *vms, &mut draft),
            Command::Delete { id } => self.delete(owner, *id, &mut draft),
            Command::Relocate { id } => self.relocate(owner, *id, &mut draft),
            Command::SetHosts { node, state } => self.set_states(node, *state, &mut draft),
            Command::SetTopology { spec, expected } => {
                self.set_topology(spec, *expected, &mut draft)
            }
        }?;
        if let Some(key) = key {
            self.keep_reply(key, call.fingerprint, now, &reply, &mut draft);
        }
        Ok(Decision {
            reply,
            changes: draft.changes,
            undo: draft.undo,
        })
    }

    /// Takes the last decision back that has not been: the state is as before,
    /// to the bit.
    ///
    /// # Errors
    /// It is not the last one; the state is not to be relied on any more.
    pub fn undo(&mut self, undo: Undo) -> Result<(), LoadError> {
        for change in undo.0.into_iter().rev() {
            self.put(&change)?;
        }
        Ok(())
    }

    fn create(&mut self, new: &NewTenant, draft: &mut Draft) -> Result<Reply, Denied> {
        let owner = new.owner.as_deref().unwrap_or_default();
        check_name("owner", owner)?;
        check_name("name", &new.name)?;
        let request = new.request();
        request.check()?;
        if let Some(id) = self.owners.find(owner, &new.name) {
            return Err(Denied::Exists {
                owner: owner.to_owned(),
                name: new.name.clone(),
                id,
            });
        }
        let id = TenantId(self.next_id);
        let placement = self.datacentre.admit(id, &request)?.clone();
        let tenant = Tenant {
            id,
            owner: owner.to_owned(),
            name: new.name.clone(),
            request,
            runs: self.runs(&[], &placement),
        };
        let reply = self.entered(tenant, &placement, draft);
        draft.keep(Change::NextId(self.next_id), Change::NextId(id.0 + 1));
        self.next_id += 1;
        Ok(reply)
    }

    fn resize(
        &mut self,
        owner: Option<&str>,
        id: TenantId,
        vms: u32,
        draft: &mut Draft,
    ) -> Result<Reply, Denied> {
        let old = self.visible(owner, id)?;
        if old.request.vms == vms {
            return Ok(Reply::Tenant(old));
        }
        let request = Request { vms, ..old.request };
        let had = self.placement_of(id);
        let now = self.datacentre.resize(id, vms)?.clone();
        Ok(self.replaced(&old, request, (&had, &now), draft))
    }

    fn relocate(
        &mut self,
        owner: Option<&str>,
        id: TenantId,
        draft: &mut Draft,
    ) -> Result<Reply, Denied> {
        let old = self.visible(owner, id)?;
        let had = self.placement_of(id);
        let now = self.datacentre.relocate(id)?.clone();
        if had == now {
            return Ok(Reply::Tenant(old));
        }
        Ok(self.replaced(&old, old.request, (&had, &now), draft))
    }

    fn delete(
        &mut self,
        owner: Option<&str>,
        id: TenantId,
        draft: &mut Draft,
    ) -> Result<Reply, Denied> {
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
    ) -> Result<Reply, Denied> {
        let node = self
            .node(name)
            .ok_or_else(|| Denied::NotFound(format!("host, rack or pod {name:?}")))?;
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

    fn set_topology(
        &mut self,
        spec: &Spec,
        expected: Option<u64>,
        draft: &mut Draft,
    ) -> Result<Reply, Denied> {
        let is = self.topology.revision;
        if let Some(expected) = expected.filter(|expected| *expected != is) {
            return Err(Denied::Changed { expected, is });
        }
        let (mut diff, mut ledger) = topology::plan(&self.snapshot(), spec)?;
        if !diff.broken.is_empty() {
            return Err(Denied::Breaks(diff.broken));
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
        // In the order in which they are taken back: the hosts' states need the
        // old topology.
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

    /// A tenant that the caller may see.
    fn visible(&self, owner: Option<&str>, id: TenantId) -> Result<Arc<Tenant>, Denied> {
        self.tenant(id)
            .filter(|tenant| owner.is_none_or(|owner| tenant.owner == owner))
            .cloned()
            .ok_or_else(|| Denied::NotFound(format!("tenant {}", id.0)))
    }

    fn placement_of(&self, id: TenantId) -> Placement {
        let tenant = self.datacentre.tenant(id);
        tenant.map_or_else(Placement::default, |tenant| tenant.placement.clone())
    }

    /// Which machines are where.
    fn runs(&self, old: &[Run], placement: &Placement) -> Vec<Run> {
        let topology = self.datacentre.topology();
        let hosts = placement.hosts().iter();
        runs::assign(
            old,
            hosts.map(|(host, count)| (topology.name(*host), *count)),
        )
    }

    /// Lists a tenant that the data centre has admitted.
    fn entered(&mut self, tenant: Tenant, placement: &Placement, draft: &mut Draft) -> Reply {
        let tenant = Arc::new(tenant);
        draft.keep(Change::Gone(tenant.id), Change::Tenant(Arc::clone(&tenant)));
        self.list(Arc::clone(&tenant), placement);
        Reply::Tenant(tenant)
    }

    /// Lists what the data centre has changed of a tenant.
    fn replaced(
        &mut self,
        old: &Arc<Tenant>,
        request: Request,
        (had, now): (&Placement, &Placement),
        draft: &mut Draft,
    ) -> Reply {
        let tenant = Arc::new(Tenant {
            request,
            runs: self.runs(&old.runs, now),
            ..Tenant::clone(old)
        });
        draft.keep(
            Change::Tenant(Arc::clone(old)),
            Change::Tenant(Arc::clone(&tenant)),
        );
        self.unlist(old.id, had);
        self.list(Arc::clone(&tenant), now);
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

    /// The tenants with machines on these hosts, which are closed, and where
    /// each of them would fit.
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

    /// Remembers a reply, and forgets some that are too old.
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
            let Some(gone) = self.keys.outdated(now) else {
                break;
            };
            draft.keep(
                self.before(&Change::KeyGone(gone.clone())),
                Change::KeyGone(gone.clone()),
            );
            self.keys.remove(&gone);
        }
        let kept = Change::Key(key.clone(), Arc::clone(&record));
        draft.keep(self.before(&kept), kept);
        self.keys.put(key, record);
    }
}

/// A decision while it is made.
#[derive(Debug, Default)]
struct Draft {
    changes: Vec<Change>,
    undo: Undo,
}

impl Draft {
    fn keep(&mut self, before: Change, change: Change) {
        self.undo.0.push(before);
        self.changes.push(change);
    }
}

/// Names are parts of a machine's name and of paths.
fn check_name(what: &str, name: &str) -> Result<(), Denied> {
    if is_name(name) {
        return Ok(());
    }
    Err(Denied::Absurd(format!(
        "the {what} {name:?} is not 1 to 63 of a-z, 0-9 and -, with no - at either end"
    )))
}

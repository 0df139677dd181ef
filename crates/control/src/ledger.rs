//! The state of the service and its changes, without clock or I/O.
//!
//! Read [`Ledger::decide`] (from a call to a reply and the [`Change`]s for a store) and
//! [`Ledger::apply`] (the same changes on another replica) first.
//! [`tailbound_placement::Datacentre`] has the port loads and finds placements; the ledger adds
//! names, owners, numbers of machines and idempotency keys.

pub(crate) mod adopt;
mod apply;
mod batch;
mod candidates;
mod change;
mod checks;
mod command;
mod decide;
mod draft;
mod enforcement;
mod entry;
mod error;
mod hosts;
mod intake;
mod keys;
pub(crate) mod machines;
mod marks;
mod message;
mod moves;
mod names;
mod owners;
mod pinned;
mod quota;
mod read;
mod recover;
pub(crate) mod reservations;
mod runs;
pub(crate) mod token;
pub(crate) mod tokens;
mod topology;
pub(crate) mod trail;

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

pub use apply::AffectedHosts;
pub(crate) use apply::{hosts_that_differ, tenants_that_differ};
pub use candidates::candidates;
pub use change::{AuditBlock, Change, Hosts, KeyId, KeyRecord, ReceivedReport, Snapshot, Subject};
pub use command::{Call, Caller, Command, NamedMachine, PutMachine, Reply};
pub use decide::Decision;
pub use draft::Undo;
pub use enforcement::HostCounts;
pub(crate) use enforcement::faults::{self, FoundFaults};
pub(crate) use entry::{Description, taken_back};
pub use error::{LedgerError, LoadError};
pub use keys::{KEY_LIFE, MAX_KEYS};
pub(crate) use quota::usage_of;
pub use quota::{MAX_OPEN, Quota, Usage};
pub use read::TenantFilter;
pub use recover::{Finding, RecoverError, Recovery, read_state, recover};
pub use reservations::OpenReservation;
pub use token::{TokenHash, TokenRecord};
pub use tokens::{MAX_OF_OWNER, MAX_TOKENS};
pub use topology::compare;
pub use trail::MAX_ENTRIES;

use enforcement::TenantStates;
use hosts::HostIndex;
use keys::Keys;
use owners::Owners;
use std::collections::BTreeMap;
use std::sync::Arc;
use tailbound_api::{Tenant, TopologyState};
use tailbound_placement::{Datacentre, NodeId, Policy, PortId, Spec, SpecError, TenantId};
use tailbound_units::Bytes;
use tokens::Tokens;
use trail::Trail;

/// Tenants, hosts, topology, idempotency keys and tokens.
///
/// A clone shares what is large and does not change.
#[derive(Debug, Clone)]
pub struct Ledger {
    /// The last commit that was applied, and the audit up to it.
    log: CommitLog,
    topology: Arc<TopologyState>,
    /// Placement of all tenants, and the load of every port.
    datacentre: Datacentre,
    tenants: BTreeMap<TenantId, Arc<Tenant>>,
    owners: Owners,
    /// The tenants with machines on each host.
    index: HostIndex,
    /// The states of hosts that are not open.
    hosts: Arc<Hosts>,
    /// Reports of hosts, and the states of tenants that follow from them.
    standings: TenantStates,
    callers: Callers,
    next_id: u64,
    /// The number of all machines.
    used: u64,
}

/// The state of callers, which no guarantee depends on.
#[derive(Debug, Clone, Default)]
struct Callers {
    keys: Keys,
    tokens: Tokens,
}

/// The log of all commits.
#[derive(Debug, Clone, Default)]
struct CommitLog {
    /// The store's revision after the last one.
    revision: u64,
    /// The entries of the audit.
    audit: Trail,
}

impl Ledger {
    /// Returns an empty ledger, and the changes that a new store has to keep of it.
    pub fn new(spec: Spec, policy: Policy) -> Result<(Self, Vec<Change>), SpecError> {
        let datacentre = Datacentre::new(spec.build()?, policy);
        let topology = Arc::new(TopologyState {
            revision: 1,
            policy,
            spec,
        });
        let ledger = Self::empty(topology, datacentre);
        let changes = vec![
            Change::Topology(Arc::clone(&ledger.topology)),
            Change::NextId(ledger.next_id),
        ];
        Ok((ledger, changes))
    }

    /// Rebuilds the ledger from the content of a store. Tenants keep their places even if the rules
    /// are stricter now than at their admission: [`Self::over`] returns the overloaded ports.
    pub fn load(snapshot: Snapshot) -> Result<Self, LoadError> {
        let topology = snapshot.topology.ok_or(LoadError::NoTopology)?;
        let datacentre = Datacentre::new(topology.spec.build()?, topology.policy);
        let mut ledger = Self::empty(topology, datacentre);
        ledger.set_hosts(snapshot.hosts)?;
        for (name, last_report) in snapshot.said {
            ledger.put_report(&name, Some(last_report));
        }
        ledger.next_id = snapshot.next_id;
        let mut tenants: Vec<_> = snapshot.tenants.into_values().collect();
        for tenant in &mut tenants {
            names::share(ledger.datacentre.topology(), tenant);
        }
        for tenant in &tenants {
            if tenant.id.0 >= ledger.next_id {
                return Err(LoadError::Tenant {
                    tenant: tenant.id,
                    why: format!("the next number was {}", ledger.next_id),
                });
            }
        }
        ledger.put_tenants(tenants)?;
        apply::check_resources(&ledger)?;
        for (key, mut record) in snapshot.keys {
            names::share_in_reply(ledger.datacentre.topology(), &mut record);
            ledger.callers.keys.put(Arc::new(key), record);
        }
        for token in snapshot.tokens.into_values() {
            ledger.callers.tokens.put(token);
        }
        ledger.log = CommitLog {
            revision: snapshot.revision,
            audit: Trail::of(snapshot.audit),
        };
        ledger.forget_moves();
        Ok(ledger)
    }

    /// Returns everything that a store has to keep. Large parts are shared.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            revision: self.log.revision,
            topology: Some(Arc::clone(&self.topology)),
            tenants: self.tenants.clone(),
            hosts: Arc::clone(&self.hosts),
            said: self
                .all_reports()
                .map(|(name, last_report)| (name.to_owned(), Arc::clone(last_report)))
                .collect(),
            keys: self.callers.keys.iter().collect(),
            tokens: self.callers.tokens.all().clone(),
            next_id: self.next_id,
            audit: self.log.audit.blocks().clone(),
        }
    }

    /// Shares this ledger's host names with changes that were just read.
    pub fn share_names(&self, changes: &mut [Change]) {
        names::share_in_changes(self.datacentre.topology(), changes);
    }

    fn empty(topology: Arc<TopologyState>, mut datacentre: Datacentre) -> Self {
        datacentre.assume_paced();
        Self {
            log: CommitLog::default(),
            topology,
            index: HostIndex::new(datacentre.topology().len()),
            standings: TenantStates::new(datacentre.topology().len()),
            datacentre,
            tenants: BTreeMap::new(),
            owners: Owners::default(),
            hosts: Arc::default(),
            callers: Callers::default(),
            next_id: 1,
            used: 0,
        }
    }

    /// Returns the store's revision that this ledger is at.
    pub fn revision(&self) -> u64 {
        self.log.revision
    }

    /// Sets the store's revision that this ledger is at.
    pub fn set_revision(&mut self, revision: u64) {
        self.log.revision = revision;
    }

    /// Returns the topology in force.
    pub fn topology(&self) -> &Arc<TopologyState> {
        &self.topology
    }

    /// Returns the placement of all tenants and the load of every port.
    pub fn datacentre(&self) -> &Datacentre {
        &self.datacentre
    }

    /// Returns descriptions of the ports that carry more than the rules allow. Their tenants were
    /// admitted by other rules. New tenants are not admitted there.
    pub fn over(&self) -> Vec<String> {
        let topology = self.datacentre.topology();
        let over = |port: PortId| {
            let holds = self.datacentre.bound(port).map_or_else(
                || "get more than it sends".to_owned(),
                |bound| format!("hold {} at worst", Bytes(bound.backlog.div_ceil(8))),
            );
            let most = Bytes(topology.port(port).backlog_limit.div_ceil(8));
            let name = topology.port_name(port);
            format!("port {name:?} would {holds}, and may hold {most}")
        };
        self.datacentre.ports_over().into_iter().map(over).collect()
    }

    /// The tenants whose traffic passes a port that carries more than the rules allow now, as
    /// owner/name in the order of their numbers.
    pub fn tenants_over(&self) -> Vec<String> {
        let topology = self.datacentre.topology();
        let ports = self.datacentre.ports_over();
        let is_over = |hosts: &[(NodeId, u32)]| {
            ports.iter().any(|port| {
                let is_below = |(host, _): &(NodeId, u32)| topology.is_below(*host, port.node);
                hosts.iter().any(is_below) && !hosts.iter().all(is_below)
            })
        };
        let over = self.datacentre.tenants().filter(|(_, tenant)| {
            tenant.request.guarantee.is_some() && is_over(tenant.placement.hosts())
        });
        over.filter_map(|(id, _)| self.tenants.get(&id))
            .map(|tenant| format!("{}/{}", tenant.owner, tenant.name))
            .collect()
    }

    /// The host, rack or pod of this name.
    pub fn node(&self, name: &str) -> Option<NodeId> {
        self.datacentre.topology().find(name)
    }
}

/// Returns all tenants.
pub(crate) const fn tenants_of(ledger: &Ledger) -> &BTreeMap<TenantId, Arc<Tenant>> {
    &ledger.tenants
}

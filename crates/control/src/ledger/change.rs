//! The changes and snapshots that a store keeps: values with names, put and deleted.

use super::command::Reply;
use super::token::TokenRecord;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use tailbound_api::{AuditEntry, HostReport, HostState, Tenant, TopologyState};
use tailbound_placement::TenantId;
use tailbound_units::Nanos;

/// An idempotency key, of which each owner has its own.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyId {
    /// The owner whose token it came with; None for an operator's token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The key as the caller chose it.
    pub key: String,
}

/// The reply to the request with an idempotency key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyRecord {
    /// Hash of the whole request, which distinguishes requests.
    pub fingerprint: [u8; 32],
    /// The time of the reply, since 1970.
    pub at: Nanos,
    /// The reply.
    pub reply: Reply,
}

/// The states of hosts by name, without those that are open.
pub type Hosts = BTreeMap<String, HostState>;

/// Last report of a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReceivedReport {
    /// Report of the host.
    pub report: HostReport,
    /// Start of its silence, in seconds since 1970; None if it is not silent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silent_since: Option<u64>,
}

/// Consecutive entries of the audit, of one transaction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AuditBlock {
    /// The digest of the entry before the first one; empty for the first entry of all.
    pub previous: String,
    /// The entries in ascending order of their numbers.
    pub entries: Vec<Arc<AuditEntry>>,
}

/// Change of one value: put or deleted.
///
/// Changes build the ledger when they are applied in the order of their commits. The last of
/// several changes to one key in a commit is in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A tenant is new or differs.
    Tenant(Arc<Tenant>),
    /// A tenant is gone.
    Gone(TenantId),
    /// The states of all hosts that are not open.
    Hosts(Arc<Hosts>),
    /// A host reported a change, or became silent.
    Said(String, Arc<ReceivedReport>),
    /// A host's report was deleted.
    SaidGone(String),
    /// A new topology.
    Topology(Arc<TopologyState>),
    /// A request with an idempotency key was answered.
    Key(Arc<KeyId>, Arc<KeyRecord>),
    /// An idempotency key is forgotten.
    KeyGone(KeyId),
    /// A token was issued.
    Token(Arc<TokenRecord>),
    /// The token of this name was revoked, or had expired.
    TokenGone(String),
    /// The next tenant's number.
    NextId(u64),
    /// Entries of the audit, by the number of the first one.
    Audit(u64, Arc<AuditBlock>),
    /// The oldest entries of the audit are forgotten.
    AuditGone(u64),
}

/// The thing that a change is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject<'a> {
    /// A tenant.
    Tenant(TenantId),
    /// The states of all hosts.
    Hosts,
    /// Last report of a host.
    Said(&'a str),
    /// The topology.
    Topology,
    /// An idempotency key.
    Key(&'a KeyId),
    /// The token of this name.
    Token(&'a str),
    /// The next tenant's number.
    NextId,
    /// The entries of the audit from this number.
    Audit(u64),
}

impl Change {
    /// Returns the thing that the change is about.
    pub fn subject(&self) -> Subject<'_> {
        match self {
            Self::Tenant(tenant) => Subject::Tenant(tenant.id),
            Self::Gone(id) => Subject::Tenant(*id),
            Self::Hosts(_) => Subject::Hosts,
            Self::Said(host, _) | Self::SaidGone(host) => Subject::Said(host),
            Self::Topology(_) => Subject::Topology,
            Self::Key(key, _) => Subject::Key(key),
            Self::KeyGone(key) => Subject::Key(key),
            Self::Token(token) => Subject::Token(&token.name),
            Self::TokenGone(name) => Subject::Token(name),
            Self::NextId(_) => Subject::NextId,
            Self::Audit(first, _) | Self::AuditGone(first) => Subject::Audit(*first),
        }
    }

    /// Returns the last change about each thing, in the order of the things. Together they are
    /// equal to all changes in their order.
    #[must_use]
    pub fn coalesced(changes: &[Self]) -> Vec<&Self> {
        let last: BTreeMap<Subject<'_>, &Self> = changes
            .iter()
            .map(|change| (change.subject(), change))
            .collect();
        last.into_values().collect()
    }
}

/// Everything that a store keeps.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// The store's revision: rises with each commit that changes something.
    pub revision: u64,
    /// The topology; None in a new store.
    pub topology: Option<Arc<TopologyState>>,
    /// The tenants by number.
    pub tenants: BTreeMap<TenantId, Arc<Tenant>>,
    /// The states of hosts that are not open.
    pub hosts: Arc<Hosts>,
    /// Last reports of hosts, by name.
    pub said: BTreeMap<String, Arc<ReceivedReport>>,
    /// The kept replies.
    pub keys: BTreeMap<KeyId, Arc<KeyRecord>>,
    /// The issued tokens by name.
    pub tokens: BTreeMap<String, Arc<TokenRecord>>,
    /// The next tenant's number; 0 in a store that is new.
    pub next_id: u64,
    /// The kept entries of the audit, by the number of the first one of each block.
    pub audit: BTreeMap<u64, Arc<AuditBlock>>,
}

impl Snapshot {
    /// Applies the changes of a commit. The revision stays as it is.
    pub fn apply(&mut self, changes: &[Change]) {
        for change in changes {
            match change.clone() {
                Change::Tenant(tenant) => {
                    self.tenants.insert(tenant.id, tenant);
                }
                Change::Gone(id) => {
                    self.tenants.remove(&id);
                }
                Change::Hosts(hosts) => self.hosts = hosts,
                Change::Said(host, last_report) => {
                    self.said.insert(host, last_report);
                }
                Change::SaidGone(host) => {
                    self.said.remove(&host);
                }
                Change::Topology(topology) => self.topology = Some(topology),
                Change::Key(key, record) => {
                    self.keys.insert(Arc::unwrap_or_clone(key), record);
                }
                Change::KeyGone(key) => {
                    self.keys.remove(&key);
                }
                Change::Token(token) => {
                    self.tokens.insert(token.name.clone(), token);
                }
                Change::TokenGone(name) => {
                    self.tokens.remove(&name);
                }
                Change::NextId(next) => self.next_id = next,
                Change::Audit(first, block) => {
                    self.audit.insert(first, block);
                }
                Change::AuditGone(first) => {
                    self.audit.remove(&first);
                }
            }
        }
    }
}

//! The store in etcd, for several replicas.
//!
//! Read [`Keys`] for the layout, then [`EtcdStore::commit`]. Only the replica that holds the
//! leader's key commits: each transaction is conditioned on the revision at which that replica
//! created the key, so a leader that was deposed or suspended cannot write. This is the "fencing
//! token" of leases (Gray and Cheriton, *Leases*, SOSP 1989).
//!
//! A commit is one transaction that writes its number and compares the number before it. So a
//! transaction whose answer was lost is simply sent again: either it is applied now, or the number
//! shows that it was applied before. Only if that stays unknown until the lease ends is the commit
//! uncertain. Then the replica steps down and reads the store anew.

mod client;
mod keys;
mod layout;
mod link;
mod load;
mod location;
pub mod messages;
mod patches;
mod plan;
mod value;

pub use client::Client;
pub use keys::{Keys, change};
pub use layout::Layout;
pub use link::{Link, LinkError, reason};
pub use load::{StoreContent, document, load};
pub use location::{Location, LocationError, Tls, User};
pub use patches::Patches;
#[cfg(test)]
pub(super) use plan::tests::CommitSizes;
pub use value::Pointer;

use super::sections::StoredTenants;
use super::{Store, StoreError};
use crate::ledger::{Change, Snapshot};
use messages::{Compare, RangeRequest, RequestOp, TxnRequest, TxnResponse, prefix_end};
use plan::Plan;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tailbound_api::Tenant;
use tailbound_placement::TenantId;
use tokio::runtime::Handle;
use tokio::time;

/// The number of operations that etcd accepts in one transaction by default.
const MAX_OPS: usize = 128;
/// Largest size of the documents in one transaction, in bytes; etcd accepts 1.5 MiB with all
/// headers.
const MAX_BYTES: usize = 1 << 20;
/// Time limit for a commit with its retries.
const COMMIT_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause between two attempts to commit.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// Time until which this replica may assume that it leads, by its own clock.
#[derive(Debug, Clone)]
pub struct Deadline(Arc<Mutex<Option<Instant>>>);

impl Deadline {
    /// Makes a deadline at a time.
    pub fn new(at: Instant) -> Self {
        Self(Arc::new(Mutex::new(Some(at))))
    }

    /// Moves the deadline to a later time, unless it was ended.
    pub fn extend(&self, at: Instant) {
        if let Some(until) = &mut *self.until() {
            *until = at.max(*until);
        }
    }

    /// Ends the deadline now and for good.
    pub fn end(&self) {
        *self.until() = None;
    }

    /// Returns whether the deadline is in the future.
    pub fn holds(&self) -> bool {
        self.until().is_some_and(|until| Instant::now() < until)
    }

    fn until(&self) -> MutexGuard<'_, Option<Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Term of a replica as the leader.
#[derive(Debug, Clone)]
pub struct Term {
    /// The lease that holds the leader's key; also names the term.
    pub lease: i64,
    /// The revision at which the key was created.
    pub created: i64,
    /// Earliest end of the lease.
    pub deadline: Deadline,
}

impl Term {
    /// Returns the value under [`Keys::commits`] after `number` commits of a term.
    pub fn commit(lease: i64, number: u64) -> String {
        format!("{lease:x}/{number}")
    }
}

/// The store of the leader.
pub struct EtcdStore {
    runtime: Handle,
    link: Link,
    keys: Keys,
    term: Term,
    /// The number of commits in this term.
    number: u64,
    /// The pointers of long documents by name.
    long: HashMap<String, Pointer>,
    /// The tenants that the store has.
    stored: StoredTenants,
    /// The prefixes of keys that no document needs any more.
    garbage: Vec<String>,
    /// The number of long documents written in this term.
    written: u64,
    revision: u64,
}

impl EtcdStore {
    /// Makes the store for a term that has begun, from a store that was read up to its begin. Its
    /// methods block on the runtime, so they must not be called from one of its threads.
    pub fn new(runtime: Handle, link: Link, keys: Keys, term: Term, layout: Layout) -> Self {
        let (long, stored) = layout.into_state();
        let revision = u64::try_from(term.created).unwrap_or(0);
        Self {
            runtime,
            link,
            keys,
            term,
            number: 0,
            long,
            stored,
            garbage: Vec::new(),
            written: 0,
            revision,
        }
    }

    /// Deletes what a leader left over when it died: parts that no document points to, and sections of
    /// tenants that are gone.
    pub async fn sweep(&mut self) -> Result<(), StoreError> {
        let parts = self.keys_with(self.keys.parts()).await?;
        let used: Vec<String> = self
            .long
            .values()
            .map(|pointer| self.keys.parts_of(&pointer.id))
            .collect();
        let is_used = |key: &Vec<u8>| used.iter().any(|used| key.starts_with(used.as_bytes()));
        let sections = self.keys_with(self.keys.sections()).await?;
        let is_gone = |key: &Vec<u8>| {
            let of = self.keys.document(key).and_then(keys::section_of);
            of.is_some_and(|(id, _)| !self.stored.has(id))
        };
        let orphans = parts.into_iter().filter(|key| !is_used(key));
        let orphans = orphans.chain(sections.into_iter().filter(is_gone));
        let orphans: Vec<_> = orphans.map(RequestOp::delete).collect();
        for some in orphans.chunks(MAX_OPS) {
            self.fenced(some.to_vec()).await?;
        }
        Ok(())
    }

    /// Returns the keys with a prefix.
    async fn keys_with(&mut self, prefix: String) -> Result<Vec<Vec<u8>>, StoreError> {
        let key = prefix.into_bytes();
        let request = RangeRequest {
            range_end: prefix_end(&key),
            key,
            keys_only: true,
            ..RangeRequest::default()
        };
        let response = self.link.call(async |client| client.range(request).await);
        let response = response.await;
        let response = response.map_err(|error| StoreError::Failed(error.to_string()))?;
        Ok(response.kvs.into_iter().map(|kv| kv.key).collect())
    }

    async fn write(&mut self, changes: &[Change]) -> Result<u64, StoreError> {
        let mut plan = Plan::new(&self.stored, changes, MAX_OPS - 1)?;
        let mut documents = std::mem::take(&mut plan.documents);
        let mut garbage = self.garbage.clone();
        let pointers = self.lengthy(&mut documents).await?;
        let mut ops = Vec::new();
        for (name, document) in &documents {
            let key = self.keys.key(name);
            ops.push(match document {
                Some(document) => RequestOp::put(key, document.as_slice()),
                None => RequestOp::delete(key),
            });
        }
        // Sections of earlier documents do not count, so they may stay where these are too many.
        let left = plan
            .ends
            .iter()
            .skip((MAX_OPS - 1).saturating_sub(ops.len()));
        let left: BTreeSet<TenantId> = left.copied().collect();
        for id in plan.ends.difference(&left) {
            let prefix = self.keys.key(&keys::sections_of(*id));
            ops.push(RequestOp::delete_prefix(prefix));
        }
        // Where these are too many, some go with a later transaction.
        let old = documents.keys().filter_map(|name| self.long.get(name));
        garbage.extend(old.map(|old| self.keys.parts_of(&old.id)));
        let fit = (MAX_OPS - 1).saturating_sub(ops.len()).min(garbage.len());
        let (now, later) = garbage.split_at(fit);
        let deletions = now.iter().map(String::as_str);
        ops.extend(deletions.map(RequestOp::delete_prefix));
        self.revision = self.numbered(ops).await?;
        self.number += 1;
        plan.note(&mut self.stored, &left);
        self.garbage = later.to_vec();
        for name in documents.keys() {
            self.long.remove(name);
        }
        self.long.extend(pointers);
        Ok(self.revision)
    }

    /// Replaces documents that are too long for the transaction by pointers to parts, and writes
    /// the parts.
    async fn lengthy(
        &mut self,
        documents: &mut BTreeMap<String, Option<Vec<u8>>>,
    ) -> Result<HashMap<String, Pointer>, StoreError> {
        let mut pointers = HashMap::new();
        loop {
            let sizes = documents
                .iter()
                .filter_map(|(name, document)| Some((document.as_ref()?.len(), name)));
            let total: usize = sizes.clone().map(|(size, _)| size).sum();
            let Some((size, name)) = sizes.max() else {
                return Ok(pointers);
            };
            if size <= value::INLINE && total <= MAX_BYTES {
                return Ok(pointers);
            }
            let name = name.clone();
            let document = documents.get_mut(&name).and_then(Option::take);
            let parts = value::cut(&document.unwrap_or_default())
                .map_err(|error| StoreError::Failed(format!("{name}: {error}")))?;
            self.written += 1;
            let pointer = Pointer {
                id: format!("{:x}-{}", self.term.lease, self.written),
                // `cut` makes at most `MAX_PARTS`.
                count: u32::try_from(parts.len()).unwrap_or(u32::MAX),
            };
            // Until the commit is made, which then says what is garbage.
            self.garbage.push(self.keys.parts_of(&pointer.id));
            for (number, part) in (0..).zip(parts) {
                let put = RequestOp::put(self.keys.part(&pointer, number), part);
                self.fenced(vec![put]).await?;
            }
            documents.insert(name.clone(), Some(pointer.to_string().into_bytes()));
            pointers.insert(name, pointer);
        }
    }

    fn leads(&self) -> Compare {
        Compare::created(self.keys.leader(), self.term.created)
    }

    /// Does operations that may be done twice and that no reader looks at.
    async fn fenced(&mut self, ops: Vec<RequestOp>) -> Result<(), StoreError> {
        let txn = TxnRequest {
            compare: vec![self.leads()],
            success: ops,
            failure: Vec::new(),
        };
        match self.settle(txn).await? {
            (answer, _) if answer.succeeded => Ok(()),
            _ => Err(StoreError::NotLeader),
        }
    }

    /// Makes the next commit, as the module describes, and returns its revision.
    async fn numbered(&mut self, mut ops: Vec<RequestOp>) -> Result<u64, StoreError> {
        let commits = self.keys.commits();
        let before = Term::commit(self.term.lease, self.number);
        let this = Term::commit(self.term.lease, self.number + 1);
        ops.push(RequestOp::put(commits.as_str(), this.as_str()));
        if ops.len() > MAX_OPS {
            let many = format!(
                "{} operations in one transaction: etcd takes at most {MAX_OPS}",
                ops.len()
            );
            return Err(StoreError::Failed(many));
        }
        let txn = TxnRequest {
            compare: vec![self.leads(), Compare::value(commits.as_str(), before)],
            success: ops,
            failure: vec![RequestOp::read(commits)],
        };
        let (answer, again) = self.settle(txn).await?;
        if answer.succeeded {
            let revision = answer.header.unwrap_or_default().revision;
            return Ok(u64::try_from(revision).unwrap_or(0));
        }
        let read = answer.responses.into_iter();
        let mut read = read.filter_map(|response| response.response_range);
        if let Some(kv) = read.find_map(|mut range| range.kvs.pop())
            && kv.value == this.as_bytes()
        {
            // An earlier try was applied.
            return Ok(u64::try_from(kv.mod_revision).unwrap_or(0));
        }
        // Another leads now. Without an earlier try nothing can have been
        // applied; an earlier one may have been, before the other came.
        Err(if again {
            StoreError::Uncertain("another replica leads, and the answer was lost".into())
        } else {
            StoreError::NotLeader
        })
    }

    /// Sends a transaction until there is an answer. Also returns whether an earlier attempt may
    /// have been applied.
    async fn settle(&mut self, txn: TxnRequest) -> Result<(TxnResponse, bool), StoreError> {
        let end = Instant::now() + COMMIT_TIMEOUT;
        let mut again = false;
        loop {
            let txn = txn.clone();
            let error = match self.link.call(async |client| client.txn(txn).await).await {
                Ok(answer) => return Ok((answer, again)),
                Err(error) => error,
            };
            match refused(&error) {
                Some(error) if !again => return Err(error),
                _ => again = true,
            }
            if !self.term.deadline.holds() || Instant::now() >= end {
                return Err(StoreError::Uncertain(error.to_string()));
            }
            tracing::warn!(%error, "a transaction has no answer; trying again");
            time::sleep(RETRY_PAUSE).await;
        }
    }
}

impl Store for EtcdStore {
    fn load(&mut self) -> Result<Snapshot, StoreError> {
        let loaded = self.runtime.block_on(load(&mut self.link, &self.keys))?;
        Ok(loaded.snapshot)
    }

    fn begin(&mut self, tenants: &BTreeMap<TenantId, Arc<Tenant>>) {
        self.stored.begin(tenants);
    }

    fn commit(&mut self, changes: &[Change]) -> Result<u64, StoreError> {
        if !self.term.deadline.holds() {
            return Err(StoreError::NotLeader);
        }
        if changes.is_empty() {
            return Ok(self.revision);
        }
        self.runtime.clone().block_on(self.write(changes))
    }
}

/// Returns the error of an answer that certainly means that nothing was done.
fn refused(error: &LinkError) -> Option<StoreError> {
    let LinkError::Etcd(status) = error else {
        return None;
    };
    // The messages are part of etcd's interface: its own client goes by them.
    match status.message() {
        "etcdserver: mvcc: database space exceeded" => Some(StoreError::NoSpace),
        text @ ("etcdserver: request is too large"
        | "etcdserver: too many operations in txn request"
        | "etcdserver: permission denied") => Some(StoreError::Failed(text.to_owned())),
        _ => None,
    }
}

/// Reads a store without being a replica, for an audit. Each member is tried before an error is
/// returned, and the first one twice. Blocks.
pub fn snapshot(location: &Location) -> Result<Snapshot, StoreError> {
    let failed = |error: &dyn std::fmt::Display| StoreError::Failed(error.to_string());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| failed(&error))?;
    let mut link = Link::new(location, COMMIT_TIMEOUT).map_err(|error| failed(&error))?;
    let keys = Keys::new(&location.prefix);
    runtime.block_on(async {
        for _ in &location.endpoints {
            match load(&mut link, &keys).await {
                Ok(loaded) => return Ok(loaded.snapshot),
                Err(StoreError::Failed(error)) => {
                    tracing::warn!(error, "the store cannot be read; trying another member");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(load(&mut link, &keys).await?.snapshot)
    })
}

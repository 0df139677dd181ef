//! Watches what the leader commits, transaction by transaction.

use crate::ledger::Change;
use crate::store::StoreError;
use crate::store::etcd::messages::{
    Event, KeyValue, WatchCreateRequest, WatchResponse, prefix_end,
};
use crate::store::etcd::{Keys, Layout, Link, LinkError, Patches, StoreContent, document, reason};
use std::sync::Arc;
use tailbound_api::Tenant;
use tailbound_placement::TenantId;
use tonic::{Status, Streaming};

/// Reason why the watch ended; the store must be read again.
#[derive(Debug, thiserror::Error)]
pub(super) enum FollowError {
    /// etcd does not answer.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The stream broke.
    #[error("the watch: {}", reason(.0))]
    Broken(#[from] Status),
    /// etcd ended it, such as after a compaction.
    #[error("the watch was ended: {0}")]
    Ended(String),
    /// A document is damaged.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A complete transaction of etcd.
#[derive(Debug)]
pub(super) struct Transaction {
    /// The revision of etcd.
    pub(super) revision: i64,
    /// The documents that it puts and deletes.
    pub(super) changes: Vec<Change>,
    /// Change of the leader's key, if any.
    pub(super) leader: Option<LeaderChange>,
}

/// Change of the leader's key in a transaction.
#[derive(Debug)]
pub(super) enum LeaderChange {
    /// A replica was elected.
    Elected(KeyValue),
    /// The leader's key was deleted.
    Vacant,
}

/// Follows a store from the revision at which it was read.
pub(super) struct Follower {
    link: Link,
    keys: Keys,
    stream: Streaming<WatchResponse>,
    /// The layout of the documents after the last transaction.
    pub(super) layout: Layout,
}

impl Follower {
    /// Starts a watch on the connection with which the store was read.
    pub(super) async fn start(
        mut link: Link,
        keys: Keys,
        loaded: &StoreContent,
    ) -> Result<Self, LinkError> {
        let key = keys.all().into_bytes();
        let watch = WatchCreateRequest {
            range_end: prefix_end(&key),
            key,
            start_revision: loaded.revision + 1,
        };
        let stream = link.call(async |client| client.watch(watch).await).await?;
        Ok(Self {
            link,
            keys,
            stream,
            layout: loaded.layout.clone(),
        })
    }

    /// Waits for the next message. Nothing is lost if this is cancelled.
    pub(super) async fn message(&mut self) -> Result<WatchResponse, FollowError> {
        let message = self.stream.message().await?;
        let message = message.ok_or_else(|| FollowError::Ended("no reason given".into()))?;
        if message.canceled {
            return Err(FollowError::Ended(match message.compact_revision {
                0 => message.cancel_reason,
                revision => format!("compacted up to revision {revision}"),
            }));
        }
        Ok(message)
    }

    /// Returns the transactions in a message, in their order. `tenant` returns a tenant as it is
    /// before the message.
    pub(super) async fn read(
        &mut self,
        message: &WatchResponse,
        tenant: impl Fn(TenantId) -> Option<Arc<Tenant>>,
    ) -> Result<Vec<Transaction>, FollowError> {
        let mut transactions: Vec<Transaction> = Vec::new();
        let mut patches = Patches::new(tenant);
        for event in &message.events {
            let Some(kv) = &event.kv else { continue };
            let revision = kv.mod_revision;
            if transactions
                .last()
                .is_none_or(|last| last.revision != revision)
            {
                end(&mut transactions, &mut patches)?;
                transactions.push(Transaction {
                    revision,
                    changes: Vec::new(),
                    leader: None,
                });
            }
            let Some(transaction) = transactions.last_mut() else {
                continue;
            };
            if kv.key == self.keys.leader().as_bytes() {
                let leader = event.put().cloned();
                transaction.leader =
                    Some(leader.map_or(LeaderChange::Vacant, LeaderChange::Elected));
            } else {
                self.add(event, kv, &mut patches).await?;
            }
        }
        end(&mut transactions, &mut patches)?;
        Ok(transactions)
    }

    /// Adds the document that an event puts or deletes, if it is about one.
    async fn add(
        &mut self,
        event: &Event,
        kv: &KeyValue,
        patches: &mut Patches<impl Fn(TenantId) -> Option<Arc<Tenant>>>,
    ) -> Result<(), FollowError> {
        let Some(name) = self.keys.document(&kv.key) else {
            return Ok(());
        };
        let document = match event.put() {
            None => {
                self.layout.remove(name);
                None
            }
            Some(kv) => {
                let revision = kv.mod_revision;
                let document = document(&mut self.link, &self.keys, &kv.value, revision).await?;
                self.layout.put(name, &kv.value, &document);
                Some(document)
            }
        };
        let added = patches.add(name, document.as_deref());
        added.map_err(|why| StoreError::Corrupt(format!("{name}: {why}")).into())
    }
}

/// Ends the last transaction, if there is one.
fn end(
    transactions: &mut [Transaction],
    patches: &mut Patches<impl Fn(TenantId) -> Option<Arc<Tenant>>>,
) -> Result<(), StoreError> {
    if let Some(last) = transactions.last_mut() {
        last.changes = patches.end().map_err(StoreError::Corrupt)?;
    }
    Ok(())
}

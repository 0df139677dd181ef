//! Watches what the leader commits, transaction by transaction.

use crate::ledger::Change;
use crate::store::StoreError;
use crate::store::etcd::messages::{
    Event, KeyValue, WatchCreateRequest, WatchResponse, prefix_end,
};
use crate::store::etcd::{Keys, Link, LinkError, Loaded, Pointer, change, document, reason};
use std::collections::HashMap;
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
    /// Long documents by name, as they are after the last transaction.
    pub(super) long: HashMap<String, Pointer>,
}

impl Follower {
    /// Starts a watch on the connection with which the store was read.
    pub(super) async fn start(
        mut link: Link,
        keys: Keys,
        loaded: &Loaded,
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
            long: loaded.long.clone(),
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

    /// Returns the transactions in a message, in their order.
    pub(super) async fn read(
        &mut self,
        message: &WatchResponse,
    ) -> Result<Vec<Transaction>, FollowError> {
        let mut transactions: Vec<Transaction> = Vec::new();
        for event in &message.events {
            let Some(kv) = &event.kv else { continue };
            let revision = kv.mod_revision;
            if transactions
                .last()
                .is_none_or(|last| last.revision != revision)
            {
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
            } else if let Some(change) = self.change(event, kv).await? {
                transaction.changes.push(change);
            }
        }
        Ok(transactions)
    }

    /// Returns the change that an event makes, if it is about a document.
    async fn change(
        &mut self,
        event: &Event,
        kv: &KeyValue,
    ) -> Result<Option<Change>, FollowError> {
        let Some(name) = self.keys.document(&kv.key) else {
            return Ok(None);
        };
        self.long.remove(name);
        let document = match event.put() {
            None => None,
            Some(kv) => {
                if let Some(pointer) = Pointer::read(&kv.value) {
                    self.long.insert(name.to_owned(), pointer);
                }
                let revision = kv.mod_revision;
                Some(document(&mut self.link, &self.keys, &kv.value, revision).await?)
            }
        };
        change(name, document.as_deref())
            .map(Some)
            .map_err(|why| StoreError::Corrupt(format!("{name}: {why}")).into())
    }
}

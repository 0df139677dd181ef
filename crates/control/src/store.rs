//! Stores that make the ledger durable.

pub mod etcd;
mod sections;
mod sqlite;
#[cfg(test)]
mod testing;

pub use sqlite::Sqlite;

use crate::ledger::{Change, Snapshot};
use std::collections::BTreeMap;
use std::sync::Arc;
use tailbound_api::{Code, Tenant};
use tailbound_placement::TenantId;

/// Keeps what a ledger decided.
pub trait Store: Send {
    /// Returns everything that is kept.
    fn load(&mut self) -> Result<Snapshot, StoreError>;

    /// Notes the tenants of the ledger whose changes are committed from now on, which are those that
    /// are kept. With them a change of few machines of a large tenant writes only these; without them
    /// the first change of a tenant writes all its machines.
    fn begin(&mut self, tenants: &BTreeMap<TenantId, Arc<Tenant>>);

    /// Keeps changes, all or none; they are durable when it returns. Returns the store's revision
    /// after the commit, which rises with each commit that changes something and is the same for
    /// every reader of the store.
    ///
    /// The last of several changes to one key is in force. An empty commit checks whether commits
    /// are still possible.
    fn commit(&mut self, changes: &[Change]) -> Result<u64, StoreError>;

    /// Checks by a write without an effect that the next commit would be kept. Returns false if only a
    /// commit with changes can show it.
    ///
    /// # Errors
    /// The error that the commit would have.
    fn check_writable(&mut self) -> Result<bool, StoreError> {
        Ok(false)
    }
}

/// Failure of a store.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// There is no space left; nothing was written.
    #[error("no space is left for the store; nothing was changed")]
    NoSpace,
    /// The content is not what was written.
    #[error("the store is damaged: {0}; restore it from a backup")]
    Corrupt(String),
    /// The store cannot be used; nothing was written.
    #[error("the store: {0}")]
    Failed(String),
    /// The outcome of the write is unknown.
    #[error("the store: {0}; it is not known whether anything was changed")]
    Uncertain(String),
    /// Another replica leads; nothing was written.
    #[error("another replica leads")]
    NotLeader,
}

impl StoreError {
    /// Returns the error code of the reply.
    pub const fn code(&self) -> Code {
        match self {
            Self::NoSpace => Code::NoSpace,
            Self::Corrupt(_) | Self::Failed(_) => Code::Store,
            Self::Uncertain(_) | Self::NotLeader => Code::Unavailable,
        }
    }

    /// Returns whether the writer may go on: nothing was written, and no other writer exists.
    pub const fn is_certain(&self) -> bool {
        match self {
            Self::NoSpace | Self::Failed(_) => true,
            Self::Corrupt(_) | Self::Uncertain(_) | Self::NotLeader => false,
        }
    }
}

//! Where the ledger is kept.

pub mod etcd;
mod sqlite;

pub use sqlite::Sqlite;

use crate::ledger::{Change, Snapshot};
use tailbound_api::Code;

/// Keeps what a ledger decided.
pub trait Store: Send {
    /// All that is kept.
    fn load(&mut self) -> Result<Snapshot, StoreError>;

    /// Keeps changes, all or nothing; durable when it returns. Gives the
    /// store's revision after it, which rises with each commit that changes
    /// something and is the same for everybody who reads the store.
    ///
    /// Of several changes about one thing the last counts. No changes at all are
    /// a question whether commits are still possible.
    fn commit(&mut self, changes: &[Change]) -> Result<u64, StoreError>;
}

/// Why a store does not do what it should.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// There is no space; nothing was written.
    #[error("no space is left for the store; nothing was changed")]
    NoSpace,
    /// What is there is not what was written.
    #[error("the store is damaged: {0}; restore it from a backup")]
    Corrupt(String),
    /// It cannot be used; nothing was written.
    #[error("the store: {0}")]
    Failed(String),
    /// Nobody knows whether it was written.
    #[error("the store: {0}; it is not known whether anything was changed")]
    Uncertain(String),
    /// Another replica leads; nothing was written.
    #[error("another replica leads")]
    NotLeader,
}

impl StoreError {
    /// Which kind of error this is for a client.
    pub const fn code(&self) -> Code {
        match self {
            Self::NoSpace => Code::NoSpace,
            Self::Corrupt(_) | Self::Failed(_) => Code::Store,
            Self::Uncertain(_) | Self::NotLeader => Code::Unavailable,
        }
    }

    /// Whether the writer may go on: nothing was written, and nobody else
    /// writes.
    pub const fn is_certain(&self) -> bool {
        match self {
            Self::NoSpace | Self::Failed(_) => true,
            Self::Corrupt(_) | Self::Uncertain(_) | Self::NotLeader => false,
        }
    }
}

//! The running service: one thread decides, everybody reads.
//!
//! Read [`Service::call`] and [`Service::read`] first. There are two ledgers
//! while this service leads: the writer's own, on which it decides, and the one
//! that everybody reads, which gets what was decided once it is durable. So
//! nobody ever sees what may still fail, and long questions do not wait for
//! decisions. A follower has the second one alone.

mod watchers;
mod writer;

#[cfg(test)]
mod tests;

use crate::ledger::{Call, Change, Denied, Ledger, LoadError, Reply};
use crate::store::{Store, StoreError};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use tailbound_api::{Code, Role};
use tokio::sync::{mpsc, oneshot, watch};
use watchers::Watchers;
use writer::{Job, Turn, Writer};

/// How many calls may wait for the writer; more wait for a place.
const QUEUE: usize = 1024;

/// Why a call was not done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ServiceError {
    /// It may not be done.
    #[error(transparent)]
    Denied(#[from] Denied),
    /// It could not be kept.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Another replica decides, or none does.
    #[error("this replica does not lead")]
    NotLeader,
    /// The service ends.
    #[error("the service is ending")]
    Ended,
}

impl ServiceError {
    /// Which kind of error this is for a client.
    pub const fn code(&self) -> Code {
        match self {
            Self::Denied(denied) => denied.code(),
            Self::Store(error) => error.code(),
            Self::NotLeader | Self::Ended => Code::Unavailable,
        }
    }
}

/// One commit, for metrics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committed {
    /// How many calls were answered by it.
    pub calls: usize,
    /// How many changes it had.
    pub changes: usize,
    /// How long the store took.
    pub took: Duration,
    /// Why it failed, if it did.
    pub error: Option<StoreError>,
}

/// What is called when the writer cannot lead any more.
pub type OnEnd = Box<dyn FnOnce(StoreError) + Send>;

/// A handle to the service; clones are the same service. It ends when the last
/// one is dropped.
#[derive(Clone)]
pub struct Service {
    shared: Arc<Shared>,
    jobs: mpsc::Sender<Job>,
}

/// What readers and the writer have in common.
struct Shared {
    /// What is durable.
    ledger: RwLock<Ledger>,
    leads: AtomicBool,
    revision: watch::Sender<u64>,
    watchers: Watchers,
}

impl Service {
    /// Starts a service that answers questions about this ledger and, until it
    /// is told to lead, changes nothing. `observe` is called after each commit.
    pub fn start(ledger: Ledger, observe: impl FnMut(&Committed) + Send + 'static) -> Self {
        let (jobs, queue) = mpsc::channel(QUEUE);
        let (revision, _) = watch::channel(ledger.revision());
        let shared = Arc::new(Shared {
            ledger: RwLock::new(ledger),
            leads: AtomicBool::new(false),
            revision,
            watchers: Watchers::default(),
        });
        let writer = Writer::new(Arc::clone(&shared), queue, Box::new(observe));
        std::thread::spawn(move || writer.run());
        Self { shared, jobs }
    }

    /// Decides calls from now on and keeps them in the store, which is at the
    /// ledger's revision. `on_end` is called when it cannot go on, because
    /// another leads or it is not known what the store has; until
    /// [`Self::replace`] and another `lead` it changes nothing then.
    pub async fn lead(&self, store: Box<dyn Store>, on_end: OnEnd) -> Result<(), ServiceError> {
        self.turn(|done| Turn::Lead(store, on_end, done)).await
    }

    /// Changes nothing from now on, and drops the store.
    pub async fn follow(&self) -> Result<(), ServiceError> {
        self.turn(Turn::Follow).await
    }

    /// Puts another ledger in the place of this one; then it follows.
    pub async fn replace(&self, ledger: Ledger) -> Result<(), ServiceError> {
        self.turn(|done| Turn::Replace(Box::new(ledger), done))
            .await
    }

    /// Puts one commit of another replica, while it follows.
    ///
    /// # Errors
    /// The changes do not belong to this ledger, which is as before: load it
    /// anew.
    pub async fn apply(
        &self,
        changes: Vec<Change>,
        revision: u64,
    ) -> Result<Result<(), LoadError>, ServiceError> {
        self.turn(|done| Turn::Apply(changes, revision, done)).await
    }

    async fn turn<T>(
        &self,
        turn: impl FnOnce(oneshot::Sender<T>) -> Turn,
    ) -> Result<T, ServiceError> {
        self.ask(|done| Job::Turn(turn(done))).await
    }

    async fn ask<T>(&self, job: impl FnOnce(oneshot::Sender<T>) -> Job) -> Result<T, ServiceError> {
        let (sender, answer) = oneshot::channel();
        let sent = self.jobs.send(job(sender)).await;
        sent.map_err(|_| ServiceError::Ended)?;
        answer.await.map_err(|_| ServiceError::Ended)
    }

    /// Has a call decided. The answer is durable.
    ///
    /// # Errors
    /// Nothing was changed; with a code of [`Code::Unavailable`] that is not
    /// known: the same call with the same idempotency key tells.
    pub async fn call(&self, call: Call) -> Result<Reply, ServiceError> {
        if self.role() == Role::Follower {
            return Err(ServiceError::NotLeader);
        }
        self.ask(|answer| Job::Call(Box::new(call), answer)).await?
    }

    /// Asks the ledger something. Everything in it is durable.
    ///
    /// Commits wait while this runs, so it should not take long.
    pub fn read<T>(&self, ask: impl FnOnce(&Ledger) -> T) -> T {
        ask(&self
            .shared
            .ledger
            .read()
            .unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether this service decides.
    pub fn role(&self) -> Role {
        if self.shared.leads.load(Ordering::Acquire) {
            Role::Leader
        } else {
            Role::Follower
        }
    }

    /// The ledger's revision, and each later one. Who is slow sees the last one.
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.shared.revision.subscribe()
    }

    /// The revisions at which the guarantees of a host may have changed. Who is
    /// slow sees the last one. Begin to watch, then ask for the guarantees: no
    /// change is missed then.
    pub fn watch_host(&self, host: &str) -> watch::Receiver<u64> {
        self.shared
            .watchers
            .watch(host, self.read(Ledger::revision))
    }

    /// How many watch a host.
    pub fn watchers_of(&self, host: &str) -> usize {
        self.shared.watchers.of(host)
    }
}

//! The running service: one thread decides, all threads read.
//!
//! Read [`Service::call`] and [`Service::read`] first. A leader has two ledgers: the writer's, on
//! which it decides, and the readers', to which a decision is applied once it is durable. So
//! readers never see a decision that may still fail. A follower has the second ledger only. Long
//! questions have a third one ([`Service::question`]), so that no commit and no other reader waits
//! for them.

mod deadlines;
mod entries;
mod history;
mod questions;
mod watchers;
mod writer;

#[cfg(test)]
mod tests;

use crate::ledger::{Call, Change, Command, Ledger, LedgerError, LoadError, Reply};
use crate::store::{Store, StoreError};
use deadlines::Deadlines;
pub use entries::CallAnswer;
pub(crate) use entries::audit_line;
use history::History;
pub use history::{Gap, Item, Piece};
use questions::Questions;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use tailbound_api::{Code, ReservationId, Role};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;
use watchers::Watchers;
use writer::{Job, Transition, Writer};

/// Capacity of the writer's queue in calls; further callers wait.
const QUEUE: usize = 1024;
/// The maximum number of reservations that are cancelled in one transaction.
const AT_ONCE: usize = 32;

/// Reason why the service did not execute a call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ServiceError {
    /// The ledger refuses it.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The store could not keep it.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Another replica leads, or none does.
    #[error("this replica does not lead")]
    NotLeader,
    /// The service is ending.
    #[error("the service is ending")]
    Ended,
}

impl ServiceError {
    /// Returns the error code of the reply.
    pub fn code(&self) -> Code {
        match self {
            Self::Ledger(error) => error.code(),
            Self::Store(error) => error.code(),
            Self::NotLeader | Self::Ended => Code::Unavailable,
        }
    }
}

/// Commit of the writer, for metrics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitReport {
    /// The number of calls that it answers.
    pub calls: usize,
    /// The number of its changes.
    pub changes: usize,
    /// True if the store wrote something: only then a success proves that it can.
    pub wrote: bool,
    /// True for a check of the store ([`Service::check_store`]), which is no commit.
    pub is_check: bool,
    /// Duration of the store's commit.
    pub took: Duration,
    /// The error, if it failed.
    pub error: Option<StoreError>,
}

/// Called when the writer cannot lead any more, with the reason.
pub type OnEnd = Box<dyn FnOnce(StoreError) + Send>;

/// A handle to the service; clones are the same service. The service ends when the last handle is
/// dropped.
#[derive(Clone)]
pub struct Service {
    shared: Arc<Shared>,
    jobs: mpsc::Sender<Job>,
}

/// State shared by readers and the writer.
struct Shared {
    /// The durable state.
    ledger: RwLock<Ledger>,
    questions: Questions,
    /// The ends of reservations' times to live, while this service leads.
    deadlines: Deadlines,
    leads: AtomicBool,
    revision: watch::Sender<u64>,
    watchers: Watchers,
    /// Counts the changes of issued tokens.
    tokens: watch::Sender<u64>,
    history: History,
}

impl Service {
    /// Starts a service that answers queries about this ledger. The service changes nothing until
    /// it leads. `observe` is called after each commit.
    pub fn start(ledger: Ledger, observe: impl FnMut(&CommitReport) + Send + 'static) -> Self {
        let over = ledger.over();
        if let Some(first) = over.first() {
            tracing::warn!(
                ports = over.len(),
                first,
                "ports exceed their capacity by the rules of this version: their tenants stay, \
                    and no further tenant is admitted there; `tailbound place audit` lists all"
            );
        }
        let (jobs, queue) = mpsc::channel(QUEUE);
        let (revision, _) = watch::channel(ledger.revision());
        let shared = Arc::new(Shared {
            history: History::new(ledger.revision()),
            ledger: RwLock::new(ledger),
            questions: Questions::default(),
            deadlines: Deadlines::default(),
            leads: AtomicBool::new(false),
            revision,
            watchers: Watchers::default(),
            tokens: watch::Sender::new(0),
        });
        let writer = Writer::new(Arc::clone(&shared), queue, Box::new(observe));
        std::thread::spawn(move || writer.run());
        Self { shared, jobs }
    }

    /// Decides calls from now on and keeps them in the store, which must be at the ledger's
    /// revision. `on_end` is called when the service cannot go on leading, because another replica
    /// leads or because the store's content is not known. From then on it changes nothing until
    /// [`Self::replace`] and another `lead`.
    pub async fn lead(&self, store: Box<dyn Store>, on_end: OnEnd) -> Result<(), ServiceError> {
        self.transition(|done| Transition::Lead(store, on_end, done))
            .await
    }

    /// Stops leading and drops the store.
    pub async fn follow(&self) -> Result<(), ServiceError> {
        self.transition(Transition::Follow).await
    }

    /// Replaces the ledger, and follows from then on.
    pub async fn replace(&self, ledger: Ledger) -> Result<(), ServiceError> {
        self.transition(|done| Transition::Replace(Box::new(ledger), done))
            .await
    }

    /// Applies one commit of the leader while this service follows.
    ///
    /// # Errors
    /// The changes do not fit this ledger. It is unchanged, and has to be loaded anew.
    pub async fn apply(
        &self,
        changes: Vec<Change>,
        revision: u64,
    ) -> Result<Result<(), LoadError>, ServiceError> {
        self.transition(|done| Transition::Apply(changes, revision, done))
            .await
    }

    async fn transition<T>(
        &self,
        transition: impl FnOnce(oneshot::Sender<T>) -> Transition,
    ) -> Result<T, ServiceError> {
        self.ask(|done| Job::Transition(transition(done))).await
    }

    async fn ask<T>(&self, job: impl FnOnce(oneshot::Sender<T>) -> Job) -> Result<T, ServiceError> {
        let (sender, answer) = oneshot::channel();
        let sent = self.jobs.send(job(sender)).await;
        sent.map_err(|_| ServiceError::Ended)?;
        answer.await.map_err(|_| ServiceError::Ended)
    }

    /// Submits a call to the writer, and returns the reply once it is durable.
    ///
    /// # Errors
    /// Nothing was changed, except with the code [`Code::Unavailable`]: then the outcome is
    /// unknown, and a retry with the same idempotency key returns it.
    pub async fn call(&self, call: Call) -> Result<Reply, ServiceError> {
        self.audited(call).await.reply
    }

    /// As [`Self::call`], and returns the entry of the call in the audit, too.
    pub async fn audited(&self, call: Call) -> CallAnswer {
        if self.role() == Role::Follower {
            return CallAnswer::undecided(ServiceError::NotLeader);
        }
        let answer = self.ask(|answer| Job::Call(Box::new(call), answer)).await;
        answer.unwrap_or_else(CallAnswer::undecided)
    }

    /// Keeps the audit's entries of refused calls that no commit has kept yet. The caller does so at
    /// intervals.
    ///
    /// # Errors
    /// The service is ending. A commit that fails is observed as all are.
    pub async fn keep_refusals(&self) -> Result<(), ServiceError> {
        if self.role() == Role::Follower {
            return Ok(());
        }
        self.transition(Transition::KeepRefusals).await
    }

    /// Checks by a write without an effect whether the store keeps the next commit, and observes the
    /// outcome as that of a commit ([`Store::check_writable`]). A follower does nothing.
    ///
    /// # Errors
    /// The service is ending.
    pub async fn check_store(&self) -> Result<(), ServiceError> {
        if self.role() == Role::Follower {
            return Ok(());
        }
        self.transition(Transition::CheckStore).await
    }

    /// Calls `ask` with the ledger of everything that is durable, and returns its answer.
    ///
    /// Commits and other readers wait while this runs, so it takes some microseconds at most;
    /// [`Self::question`] is for everything else.
    pub fn read<T>(&self, ask: impl FnOnce(&Ledger) -> T) -> T {
        ask(&self
            .shared
            .ledger
            .read()
            .unwrap_or_else(PoisonError::into_inner))
    }

    /// Calls `ask` with a ledger of everything that was durable before. Only other long queries wait
    /// for it. It blocks the thread while the ledger catches up.
    pub fn question<T>(&self, ask: impl FnOnce(&Ledger) -> T) -> T {
        self.shared.questions.ask(&self.shared.ledger, ask)
    }

    /// Cancels the reservations whose time to live has passed since this service received them or
    /// became the leader. The caller does so at intervals, which delay the cancellations.
    ///
    /// # Errors
    /// A commit failed; the next call repeats the cancellation.
    pub async fn expire_reservations(&self) -> Result<(), ServiceError> {
        if self.role() == Role::Follower {
            self.shared.deadlines.clear();
            return Ok(());
        }
        let now = Instant::now();
        let due = self.read(|ledger| self.shared.deadlines.due(ledger, now));
        for some in due.chunks(AT_ONCE) {
            let call = Call::of_service(Command::Expire(some.to_vec()));
            self.call(call).await?;
        }
        Ok(())
    }

    /// Returns the open reservations whose time to live ended at least `delay` ago, although this service
    /// leads.
    pub fn overdue(&self, delay: Duration) -> Vec<ReservationId> {
        let Some(then) = Instant::now().checked_sub(delay) else {
            return Vec::new();
        };
        self.read(|ledger| self.shared.deadlines.overdue(ledger, then))
    }

    /// Returns the rest of a reservation's time to live; None if this service does not count it.
    pub fn time_left(&self, reservation: ReservationId) -> Option<Duration> {
        self.shared.deadlines.left(reservation, Instant::now())
    }

    /// Returns whether this service leads or follows.
    pub fn role(&self) -> Role {
        if self.shared.leads.load(Ordering::Acquire) {
            Role::Leader
        } else {
            Role::Follower
        }
    }

    /// Watches the ledger's revision. A slow watcher sees the last one.
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.shared.revision.subscribe()
    }

    /// Watches the revisions at which the guarantees of a host may have changed. A slow watcher
    /// sees the last one. A caller that begins to watch before it reads the guarantees misses no
    /// change.
    pub fn watch_host(&self, host: &str) -> watch::Receiver<u64> {
        self.shared
            .watchers
            .watch(host, self.read(Ledger::revision))
    }

    /// Watches changes of the issued tokens: the value rises with each one.
    pub fn watch_tokens(&self) -> watch::Receiver<u64> {
        self.shared.tokens.subscribe()
    }

    /// Returns what changed after a revision and is wanted. [`Self::watch`] wakes a caller that has
    /// everything.
    ///
    /// # Errors
    /// The history of this replica does not have all of it.
    pub fn noted_after(&self, since: u64, is_wanted: impl Fn(&Item) -> bool) -> Result<Piece, Gap> {
        self.shared.history.after(since, is_wanted)
    }

    /// Returns how many watch a host.
    pub fn watchers_of(&self, host: &str) -> usize {
        self.shared.watchers.of(host)
    }
}

//! The role loop of a replica: it follows, stands for election, leads, steps down, and begins anew.

use super::follow::{FollowError, Follower, LeaderChange};
use super::lease::ElectedTerm;
use super::{CALL_TIMEOUT, Leadership, Options, RETRY_PAUSE, campaign, lease, store};
use crate::ledger::{Ledger, LoadError};
use crate::service::{Service, ServiceError};
use crate::store::StoreError;
use crate::store::etcd::messages::KeyValue;
use crate::store::etcd::{Keys, Layout, Link, LinkError, StoreContent, load};
use std::convert::Infallible;
use std::time::{Duration, Instant};
use tailbound_api::Role;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::{task, time};

/// Time limit for an elected replica to read its own election in the watch.
const CATCH_UP: Duration = Duration::from_secs(10);

/// The longest pause before the store is read anew.
const MAX_PAUSE: Duration = Duration::from_secs(2);
/// Time without a new read of the store after which pauses are short again.
const CALM: Duration = Duration::from_secs(5);

/// Reason why a replica leaves its role and reads the store again.
#[derive(Debug, thiserror::Error)]
enum StepDownReason {
    #[error("the lease was lost")]
    LeaseLost,
    #[error("a commit failed: {0}")]
    CommitFailed(StoreError),
    #[error(transparent)]
    Service(#[from] ServiceError),
    #[error("it was elected, but received the result too late")]
    ElectionUnseen,
    #[error(transparent)]
    Follow(#[from] FollowError),
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the store: {0}")]
    Load(#[from] LoadError),
    /// The replica ends and does not read the store again.
    #[error("it received a request to resign")]
    Resigned(Option<oneshot::Sender<()>>),
}

/// The background task of a replica.
pub(super) struct RoleLoop {
    options: Options,
    keys: Keys,
    service: Service,
    leadership: watch::Sender<Leadership>,
    /// The revision of the store up to which the service has everything.
    read: watch::Sender<u64>,
    resigning: mpsc::Receiver<oneshot::Sender<()>>,
}

impl RoleLoop {
    pub(super) fn new(
        options: Options,
        service: Service,
        leadership: watch::Sender<Leadership>,
        read: watch::Sender<u64>,
        resigning: mpsc::Receiver<oneshot::Sender<()>>,
    ) -> Self {
        Self {
            keys: Keys::new(&options.location.prefix),
            options,
            service,
            leadership,
            read,
            resigning,
        }
    }

    /// Runs until the replica resigns, or until every handle that could stop it is dropped. The
    /// service must hold the ledger that was loaded.
    pub(super) async fn run(mut self, mut link: Link, mut loaded: StoreContent) {
        let mut pause = RETRY_PAUSE;
        loop {
            let begun = Instant::now();
            let mut elected = None;
            let reason = match Box::pin(self.term(link, &loaded, &mut elected)).await {
                Ok(never) => match never {},
                Err(reason) => reason,
            };
            self.publish(Role::Follower, None);
            if let Some(elected) = &elected {
                elected.stop();
            }
            if let Err(error) = self.service.follow().await {
                return tracing::error!(%error, "the replica ends");
            }
            // The lease is given back only now: nothing is decided here once another replica may
            // decide.
            if let StepDownReason::Resigned(done) = reason {
                match (elected, Link::new(&self.options.location, CALL_TIMEOUT)) {
                    (Some(elected), Ok(mut link)) => {
                        lease::revoke(&mut link, elected.term.lease).await;
                    }
                    (Some(_), Err(error)) => tracing::warn!(%error, "the lease ends by itself"),
                    (None, _) => {}
                }
                tracing::info!("resigned");
                // Whoever asked may have stopped waiting.
                let _ = done.map(|done| done.send(()));
                return;
            }
            link = match self.link().await {
                Some(link) => link,
                None => return,
            };
            if let Some(elected) = elected {
                lease::revoke(&mut link, elected.term.lease).await;
            }
            tracing::warn!(%reason, "reading the store anew");
            if begun.elapsed() >= CALM {
                pause = RETRY_PAUSE;
            }
            loaded = match self.reload_until_done(&mut link, &mut pause).await {
                Some(loaded) => loaded,
                None => return,
            };
        }
    }

    /// Reads the files that a connection needs, with retries, since they may be in the middle of a
    /// replacement. Returns None if the replica is stopped meanwhile.
    async fn link(&mut self) -> Option<Link> {
        loop {
            match Link::new(&self.options.location, CALL_TIMEOUT) {
                Ok(link) => return Some(link),
                Err(error) => tracing::warn!(%error, "etcd cannot be asked; trying again"),
            }
            if self.told_to_end(MAX_PAUSE).await {
                return None;
            }
        }
    }

    /// Waits, and returns whether the replica was stopped meanwhile.
    async fn told_to_end(&mut self, pause: Duration) -> bool {
        tokio::select! {
            () = time::sleep(pause) => false,
            done = self.resigning.recv() => {
                // Whoever asked may have stopped waiting.
                let _ = done.map(|done| done.send(()));
                true
            }
        }
    }

    /// Reads the store, with retries and growing pauses. Returns None if the replica is stopped
    /// meanwhile.
    async fn reload_until_done(
        &mut self,
        link: &mut Link,
        pause: &mut Duration,
    ) -> Option<StoreContent> {
        loop {
            if self.told_to_end(*pause).await {
                return None;
            }
            *pause = MAX_PAUSE.min(*pause * 2);
            match self.reload(link).await {
                Ok(loaded) => return Some(loaded),
                Err(error) => tracing::warn!(%error, "the store cannot be read; trying again"),
            }
        }
    }

    async fn reload(&mut self, link: &mut Link) -> Result<StoreContent, StepDownReason> {
        let loaded = load(link, &self.keys).await?;
        let snapshot = loaded.snapshot.clone();
        // With many tenants this takes a second, during which other requests are answered.
        let ledger = task::spawn_blocking(move || Ledger::load(snapshot)).await;
        let ledger = ledger.map_err(|error| StoreError::Failed(error.to_string()))??;
        self.service.replace(ledger).await?;
        self.read.send_replace(loaded.revision());
        Ok(loaded)
    }

    /// Follows from the loaded revision, stands for election when there is no leader, and leads
    /// when elected.
    async fn term(
        &mut self,
        link: Link,
        loaded: &StoreContent,
        elected: &mut Option<ElectedTerm>,
    ) -> Result<Infallible, StepDownReason> {
        let mut candidate = Link::new(&self.options.location, CALL_TIMEOUT)?;
        let mut follower = Follower::start(link, self.keys.clone(), loaded).await?;
        let mut leader = loaded.leader.clone();
        let mut heard_by = Instant::now();
        self.publish(Role::Follower, leader.as_ref());
        loop {
            if leader.is_none() && elected.is_none() {
                *elected = campaign(&mut candidate, &self.options).await?;
                heard_by = Instant::now() + CATCH_UP;
            }
            if let (Some(elected), Some(leader)) = (elected.as_mut(), &leader)
                && leader.create_revision == elected.term.created
            {
                // All transactions of earlier leaders precede this key in the same stream; none
                // can follow it.
                let layout = follower.layout.clone();
                return Err(self.lead(elected, leader, layout).await);
            }
            let message = tokio::select! {
                message = follower.message() => message?,
                reason = unseen(elected.as_mut(), heard_by) => return Err(reason),
                done = self.resigning.recv() => return Err(StepDownReason::Resigned(done)),
            };
            let service = self.service.clone();
            let tenant = |id| service.read(|ledger| ledger.tenant(id).cloned());
            for transaction in follower.read(&message, tenant).await? {
                if let Some(change) = transaction.leader {
                    leader = match change {
                        LeaderChange::Elected(leader) => Some(leader),
                        LeaderChange::Vacant => None,
                    };
                    self.publish(Role::Follower, leader.as_ref());
                }
                let revision = u64::try_from(transaction.revision).unwrap_or(0);
                if !transaction.changes.is_empty() {
                    self.service.apply(transaction.changes, revision).await??;
                }
                self.read.send_replace(revision);
            }
        }
    }

    /// Leads until there is a reason to step down, and returns it.
    async fn lead(
        &mut self,
        elected: &mut ElectedTerm,
        leader: &KeyValue,
        layout: Layout,
    ) -> StepDownReason {
        let mut store = match store(&self.options, elected, layout) {
            Ok(store) => store,
            Err(error) => return error.into(),
        };
        if let Err(error) = store.sweep().await {
            return error.into();
        }
        let (end, ended) = oneshot::channel();
        let on_end = move |error| {
            // Without a receiver this replica is stepping down already.
            let _ = end.send(error);
        };
        if let Err(error) = self.service.lead(Box::new(store), Box::new(on_end)).await {
            return error.into();
        }
        self.publish(Role::Leader, Some(leader));
        tracing::info!(revision = elected.term.created, "elected");
        tokio::select! {
            () = elected.lost() => StepDownReason::LeaseLost,
            error = ended => {
                StepDownReason::CommitFailed(error.unwrap_or(StoreError::NotLeader))
            }
            done = self.resigning.recv() => StepDownReason::Resigned(done),
        }
    }

    /// Publishes the role and the leader's URL to the replica's handles.
    fn publish(&self, role: Role, leader: Option<&KeyValue>) {
        let leader = leader.map(|kv| String::from_utf8_lossy(&kv.value).into_owned());
        self.leadership.send_if_modified(|leadership| {
            let now = Leadership { role, leader };
            let differs = *leadership != now;
            *leadership = now;
            differs
        });
    }
}

/// Waits until an election that the watch has not shown is of no use any more. Without an election
/// it waits for ever.
async fn unseen(elected: Option<&mut ElectedTerm>, heard_by: Instant) -> StepDownReason {
    match elected {
        None => std::future::pending().await,
        Some(elected) => tokio::select! {
            () = elected.lost() => StepDownReason::LeaseLost,
            () = time::sleep_until(heard_by.into()) => StepDownReason::ElectionUnseen,
        },
    }
}

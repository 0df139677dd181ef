//! What a replica does in the background: follow, lead, and again.

use super::follow::{FollowError, Follower, Seat};
use super::lease::Won;
use super::{Options, PATIENCE, PAUSE, Standing, campaign, lease, store};
use crate::ledger::{Ledger, LoadError};
use crate::service::{Service, ServiceError};
use crate::store::StoreError;
use crate::store::etcd::{Keys, Link, LinkError, Loaded, Pointer, load};
use etcd_client::KeyValue;
use std::collections::HashMap;
use std::convert::Infallible;
use std::time::{Duration, Instant};
use tailbound_api::Role;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::{task, time};

/// How long a replica that won may take until it has read its own victory.
const CATCH_UP: Duration = Duration::from_secs(10);

/// The longest pause before the store is read anew.
const MAX_PAUSE: Duration = Duration::from_secs(2);
/// After so long without a reason to read it anew, pauses are short again.
const CALM: Duration = Duration::from_secs(5);

/// Why a replica reads the store anew.
#[derive(Debug, thiserror::Error)]
enum Over {
    #[error("the lease was lost")]
    Lease,
    #[error("a commit failed: {0}")]
    Deposed(StoreError),
    #[error(transparent)]
    Service(#[from] ServiceError),
    #[error("it was elected, but did not hear of it in time")]
    Deaf,
    #[error(transparent)]
    Follow(#[from] FollowError),
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the store: {0}")]
    Load(#[from] LoadError),
    /// Not again: it is to end.
    #[error("it was told to resign")]
    Resigned(Option<oneshot::Sender<()>>),
}

/// What runs in the background.
pub(super) struct Part {
    options: Options,
    keys: Keys,
    service: Service,
    standing: watch::Sender<Standing>,
    resigning: mpsc::Receiver<oneshot::Sender<()>>,
}

impl Part {
    pub(super) fn new(
        options: Options,
        service: Service,
        standing: watch::Sender<Standing>,
        resigning: mpsc::Receiver<oneshot::Sender<()>>,
    ) -> Self {
        Self {
            keys: Keys::new(&options.location.prefix),
            options,
            service,
            standing,
            resigning,
        }
    }

    /// Until it is told to resign, or nobody is left who could. The service is
    /// at what was loaded.
    pub(super) async fn play(mut self, mut link: Link, mut loaded: Loaded) {
        let mut pause = PAUSE;
        loop {
            let begun = Instant::now();
            let mut won = None;
            let over = match Box::pin(self.term(link, &loaded, &mut won)).await {
                Ok(never) => match never {},
                Err(over) => over,
            };
            self.stand(Role::Follower, None);
            if let Some(won) = &won {
                won.stop();
            }
            if let Err(error) = self.service.follow().await {
                return tracing::error!(%error, "the replica ends");
            }
            // The lease only now, so that nothing is decided after another may
            // decide.
            if let Over::Resigned(done) = over {
                match (won, Link::new(&self.options.location, PATIENCE)) {
                    (Some(won), Ok(mut link)) => lease::revoke(&mut link, won.term.lease).await,
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
            if let Some(won) = won {
                lease::revoke(&mut link, won.term.lease).await;
            }
            tracing::warn!(reason = %over, "reading the store anew");
            if begun.elapsed() >= CALM {
                pause = PAUSE;
            }
            loaded = match self.again(&mut link, &mut pause).await {
                Some(loaded) => loaded,
                None => return,
            };
        }
    }

    /// Reads the files that a connection needs until that works, for they may be
    /// replaced just now; None if it is to end meanwhile.
    async fn link(&mut self) -> Option<Link> {
        loop {
            match Link::new(&self.options.location, PATIENCE) {
                Ok(link) => return Some(link),
                Err(error) => tracing::warn!(%error, "etcd cannot be asked; trying again"),
            }
            if self.told_to_end(MAX_PAUSE).await {
                return None;
            }
        }
    }

    /// Waits, unless it is told to end meanwhile.
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

    /// Reads the store until that works, with growing pauses; None if it is to
    /// end meanwhile.
    async fn again(&mut self, link: &mut Link, pause: &mut Duration) -> Option<Loaded> {
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

    async fn reload(&mut self, link: &mut Link) -> Result<Loaded, Over> {
        let loaded = load(link, &self.keys).await?;
        let snapshot = loaded.snapshot.clone();
        // With many tenants that takes a second, in which others are answered.
        let ledger = task::spawn_blocking(move || Ledger::load(snapshot)).await;
        let ledger = ledger.map_err(|error| StoreError::Failed(error.to_string()))??;
        self.service.replace(ledger).await?;
        Ok(loaded)
    }

    /// Follows from what was loaded, stands for election whenever nobody leads,
    /// and leads when elected.
    async fn term(
        &mut self,
        link: Link,
        loaded: &Loaded,
        won: &mut Option<Won>,
    ) -> Result<Infallible, Over> {
        let mut candidate = Link::new(&self.options.location, PATIENCE)?;
        let mut follower = Follower::start(link, self.keys.clone(), loaded).await?;
        let mut leader = loaded.leader.clone();
        let mut heard_by = Instant::now();
        self.stand(Role::Follower, leader.as_ref());
        loop {
            if leader.is_none() && won.is_none() {
                *won = campaign(&mut candidate, &self.options).await?;
                heard_by = Instant::now() + CATCH_UP;
            }
            if let (Some(won), Some(leader)) = (won.as_mut(), &leader)
                && leader.create_revision() == won.term.created
            {
                // All transactions of the leaders before came before this key,
                // in the same stream; none can come after it.
                let long = follower.long.clone();
                return Err(self.lead(won, leader, long).await);
            }
            let message = tokio::select! {
                message = follower.message() => message?,
                over = late(won.as_mut(), heard_by) => return Err(over),
                done = self.resigning.recv() => return Err(Over::Resigned(done)),
            };
            for transaction in follower.read(&message).await? {
                if let Some(seat) = transaction.leader {
                    leader = match seat {
                        Seat::Taken(leader) => Some(leader),
                        Seat::Free => None,
                    };
                    self.stand(Role::Follower, leader.as_ref());
                }
                if !transaction.changes.is_empty() {
                    let revision = u64::try_from(transaction.revision).unwrap_or(0);
                    self.service.apply(transaction.changes, revision).await??;
                }
            }
        }
    }

    /// Leads until there is a reason not to.
    async fn lead(
        &mut self,
        won: &mut Won,
        leader: &KeyValue,
        long: HashMap<String, Pointer>,
    ) -> Over {
        let mut store = match store(&self.options, won, long) {
            Ok(store) => store,
            Err(error) => return error.into(),
        };
        if let Err(error) = store.sweep().await {
            return error.into();
        }
        let (end, ended) = oneshot::channel();
        let on_end = move |error| {
            // Without a receiver this replica steps down already.
            let _ = end.send(error);
        };
        if let Err(error) = self.service.lead(Box::new(store), Box::new(on_end)).await {
            return error.into();
        }
        self.stand(Role::Leader, Some(leader));
        tracing::info!(revision = won.term.created, "elected");
        tokio::select! {
            () = won.lost() => Over::Lease,
            error = ended => Over::Deposed(error.unwrap_or(StoreError::NotLeader)),
            done = self.resigning.recv() => Over::Resigned(done),
        }
    }

    fn stand(&self, role: Role, leader: Option<&KeyValue>) {
        let leader = leader.map(|kv| String::from_utf8_lossy(kv.value()).into_owned());
        self.standing.send_if_modified(|standing| {
            let now = Standing { role, leader };
            let differs = *standing != now;
            *standing = now;
            differs
        });
    }
}

/// Waits until a victory that was not heard of is worth nothing; for ever
/// without a victory.
async fn late(won: Option<&mut Won>, heard_by: Instant) -> Over {
    match won {
        None => std::future::pending().await,
        Some(won) => tokio::select! {
            () = won.lost() => Over::Lease,
            () = time::sleep_until(heard_by.into()) => Over::Deaf,
        },
    }
}

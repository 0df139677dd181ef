//! Several services over one etcd store, of which one decides.
//!
//! Each replica holds the whole ledger. One is the leader: it holds the
//! leader's key by a lease, decides and commits. The others follow: they watch
//! the store and apply each transaction as one, answer reads (a little behind:
//! see [`Replica::standing`] for what they know), and send writes on to the
//! leader ([`Replica::forward`]).
//!
//! Nothing rests on clocks alone. A leader that lost its lease without noticing
//! cannot write, because its transactions are conditioned on its own key (see
//! [`EtcdStore`]); the clock only makes it stop answering refusals in time. What
//! a leader that steps down had decided without committing is forgotten: it
//! reads the store anew, as every follower does whose watch breaks.

mod follow;
mod forward;
mod lease;
mod part;

pub use forward::{FORWARDED, Forwarded, REVISION};

use crate::ledger::{Ledger, LoadError};
use crate::service::Service;
use crate::store::etcd::{EtcdStore, Keys, Link, LinkError, Loaded, Location, Pointer, load};
use crate::store::{Store, StoreError};
use axum::body::Bytes;
use axum::http::{HeaderMap, Method};
use forward::Forwarder;
use lease::Won;
use part::Part;
use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tailbound_api::Role;
use tailbound_placement::{Policy, Spec};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::{task, time};

/// How long the first read of the store is tried.
const START: Duration = Duration::from_secs(30);
/// Between two tries of anything.
const PAUSE: Duration = Duration::from_millis(100);
/// How long one call to etcd may take, but for those about the lease.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long a forwarded write's answer waits until this replica has the write
/// too.
const SEEN: Duration = Duration::from_secs(1);

/// What a replica has to know.
#[derive(Debug, Clone)]
pub struct Options {
    /// The store.
    pub location: Location,
    /// The URL at which the other replicas reach this one.
    pub advertise: String,
    /// How long nobody decides after a leader died without a word. At least
    /// a second; etcd may make it longer, and counts whole seconds.
    pub lease: Duration,
    /// Who signed the replicas' certificates, if not one of the usual
    /// authorities.
    pub leader_ca: Option<PathBuf>,
    /// What a new store begins with.
    pub initial: Option<(Spec, Policy)>,
}

/// Why a replica does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The store is new.
    #[error("the store is new and needs a topology to begin with")]
    NoTopology,
    /// What is in the store is not a ledger.
    #[error("the store: {0}")]
    Load(#[from] LoadError),
    /// The store does not answer, or is damaged.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A file cannot be read.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The topology to begin with is none.
    #[error("the topology: {0}")]
    Spec(#[from] tailbound_placement::SpecError),
    /// The authority's certificate.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Who decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// What this replica does.
    pub role: Role,
    /// Where the leader is, if there is one; this replica's own URL if it is.
    pub leader: Option<String>,
}

/// A handle on this process's part among the replicas.
#[derive(Debug, Clone)]
pub struct Replica {
    standing: watch::Receiver<Standing>,
    resign: mpsc::Sender<oneshot::Sender<()>>,
    forwarder: Forwarder,
    /// This replica's.
    revision: watch::Receiver<u64>,
}

impl Replica {
    /// Reads the store, as soon as it answers, gives what was read to `start` to
    /// make the service of it, and takes part from then on. The service follows
    /// until this replica is elected.
    ///
    /// # Errors
    ///
    /// See [`StartError`]; without an answer for 30 s it is one.
    pub async fn start(
        options: Options,
        start: impl FnOnce(Ledger) -> Service,
    ) -> Result<(Service, Self), StartError> {
        let mut link = Link::new(&options.location, PATIENCE)?;
        let forwarder = Forwarder::new(options.leader_ca.as_deref())?;
        let loaded = first(&mut link, &options).await?;
        let service = start(Ledger::load(loaded.snapshot.clone())?);
        let (standing, watching) = watch::channel(Standing {
            role: Role::Follower,
            leader: None,
        });
        let (resign, resigning) = mpsc::channel(1);
        let part = Part::new(options, service.clone(), standing, resigning);
        task::spawn(part.play(link, loaded));
        let replica = Self {
            standing: watching,
            resign,
            forwarder,
            revision: service.watch(),
        };
        Ok((service, replica))
    }

    /// Waits until this process takes no part any more: it was told to resign,
    /// or cannot go on.
    pub async fn ended(&self) {
        let mut standing = self.standing.clone();
        while standing.changed().await.is_ok() {}
    }

    /// Who decides, as far as this replica knows.
    pub fn standing(&self) -> Standing {
        self.standing.borrow().clone()
    }

    /// Sends a write to the leader as it is; gives the leader's answer once this
    /// replica has the write too, or why there is none. Then the write may have been done: the caller tries again
    /// with the same idempotency key.
    ///
    /// # Errors
    ///
    /// If no leader is known or it does not answer, or if the request was
    /// forwarded here by another replica.
    pub async fn forward(
        &self,
        method: Method,
        path_and_query: &str,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Result<Forwarded, String> {
        let leader = match self.standing() {
            Standing {
                role: Role::Follower,
                leader: Some(leader),
            } => leader,
            Standing { role, .. } => {
                return Err(match role {
                    Role::Leader => "this replica was elected just now".into(),
                    Role::Follower => "no leader is known".into(),
                });
            }
        };
        let answer = self
            .forwarder
            .forward(&leader, method, path_and_query, headers, body)
            .await?;
        if let Some(written) = answer.revision {
            let mut revision = self.revision.clone();
            let seen = revision.wait_for(|revision| *revision >= written);
            // In vain if this replica is cut off from etcd: the answer is no
            // less right.
            let _ = time::timeout(SEEN, seen).await;
        }
        Ok(answer)
    }

    /// Stops deciding for good, so that another replica can at once. Returns
    /// when the leader's key is given back, or cannot be.
    pub async fn resign(&self) {
        let (done, wait) = oneshot::channel();
        if self.resign.send(done).await.is_ok() {
            // An error means that the part was played to its end.
            let _ = wait.await;
        }
    }
}

/// Reads a store until it has a topology.
async fn first(link: &mut Link, options: &Options) -> Result<Loaded, StartError> {
    let keys = Keys::new(&options.location.prefix);
    let end = Instant::now() + START;
    loop {
        let error = match load(link, &keys).await {
            Ok(loaded) if loaded.snapshot.topology.is_some() => return Ok(loaded),
            Ok(loaded) => match begin(link, options, &loaded).await {
                Ok(()) => continue,
                Err(StartError::Store(error)) => error,
                Err(other) => return Err(other),
            },
            Err(error @ StoreError::Corrupt(_)) => return Err(error.into()),
            Err(error) => error,
        };
        if Instant::now() >= end {
            return Err(error.into());
        }
        tracing::warn!(%error, "the store cannot be read; trying again");
        time::sleep(PAUSE).await;
    }
}

/// Puts the topology into a new store, unless another replica is at it.
async fn begin(link: &mut Link, options: &Options, loaded: &Loaded) -> Result<(), StartError> {
    let (spec, policy) = options.initial.clone().ok_or(StartError::NoTopology)?;
    let (_, changes) = Ledger::new(spec, policy)?;
    let elected = campaign(link, options).await;
    let Some(won) = elected.map_err(|error| StoreError::Failed(error.to_string()))? else {
        return Err(StoreError::Failed("another replica begins the store".into()).into());
    };
    let mut store = store(options, &won, loaded.long.clone())?;
    let written = task::spawn_blocking(move || store.commit(&changes)).await;
    lease::revoke(link, won.term.lease).await;
    written.map_err(|error| StoreError::Uncertain(error.to_string()))??;
    Ok(())
}

async fn campaign(link: &mut Link, options: &Options) -> Result<Option<Won>, LinkError> {
    let Options {
        location,
        lease,
        advertise,
        ..
    } = options;
    lease::campaign(link, location, *lease, advertise).await
}

fn store(
    options: &Options,
    won: &Won,
    long: HashMap<String, Pointer>,
) -> Result<EtcdStore, LinkError> {
    Ok(EtcdStore::new(
        Handle::current(),
        Link::new(&options.location, PATIENCE)?,
        Keys::new(&options.location.prefix),
        won.term.clone(),
        long,
    ))
}

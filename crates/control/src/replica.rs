//! Several services over one etcd store, of which one is the leader.
//!
//! Each replica holds the whole ledger. The leader holds the leader's key by a lease, decides and
//! commits. Followers watch the store, apply each transaction as a whole, answer reads (slightly
//! behind the leader), and forward writes to the leader ([`Replica::forward`]).
//! [`Replica::leadership`] returns this replica's role and the leader.
//!
//! Safety does not depend on clocks. A leader that lost its lease cannot write, because its
//! transactions require its own key (see [`EtcdStore`]); the clock only stops its refusals in time.
//! A leader that steps down discards uncommitted decisions and reloads the store, like a follower
//! whose watch breaks.

mod follow;
mod forward;
mod fresh;
mod lease;
mod role;
mod way;

pub use forward::{FORWARDED, LeaderAnswer, REVISION};
pub use way::PROOF_LIFE;

use crate::ledger::{Ledger, LoadError};
use crate::service::Service;
use crate::store::etcd::{EtcdStore, Keys, Layout, Link, LinkError, Location, StoreContent, load};
use crate::store::{Store, StoreError};
use axum::body::Bytes;
use axum::http::{HeaderMap, Method};
use forward::Forwarder;
use fresh::{Freshness, Progress};
use lease::ElectedTerm;
use role::RoleLoop;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tailbound_api::Role;
use tailbound_placement::{Policy, Spec};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::{task, time};
use way::LeaderProof;

/// Time limit for the first read of the store.
const START: Duration = Duration::from_secs(30);
/// First pause between two attempts to reach etcd.
const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// Time limit for a call to etcd, except for calls about the lease.
const CALL_TIMEOUT: Duration = Duration::from_secs(2);
/// Time limit for this replica to apply a forwarded write before the caller receives the answer.
const SEEN: Duration = Duration::from_secs(1);

/// The configuration of a replica.
#[derive(Debug, Clone)]
pub struct Options {
    /// The store.
    pub location: Location,
    /// The URL at which the other replicas reach this one.
    pub advertise: String,
    /// Time without a leader after a leader died without resigning. The minimum is one second; etcd
    /// counts whole seconds and may round up.
    pub lease: Duration,
    /// The CA that signed the replicas' certificates, if it is not a public one.
    pub leader_ca: Option<PathBuf>,
    /// The topology and the policy of a new store.
    pub initial: Option<(Spec, Policy)>,
}

/// Reason why a replica does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The store is new and no topology was given.
    #[error("the store is new and needs a topology to begin with")]
    NoTopology,
    /// The store's content is not a ledger.
    #[error("the store: {0}")]
    Load(#[from] LoadError),
    /// The store does not answer, or is damaged.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A file cannot be read.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The initial topology is not valid.
    #[error("the topology: {0}")]
    Spec(#[from] tailbound_placement::SpecError),
    /// The CA's certificate cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Role of this replica, and the leader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leadership {
    /// The role of this replica.
    pub role: Role,
    /// The leader's URL, if there is a leader; this replica's own URL if it leads.
    pub leader: Option<String>,
}

/// A replica that has had no proof for this time that it has all of the store sends no guarantees to hosts.
pub const STALE: Duration = Duration::from_secs(5);

/// A handle on this process's role among the replicas.
#[derive(Debug, Clone)]
pub struct Replica {
    leadership: watch::Receiver<Leadership>,
    resign: mpsc::Sender<oneshot::Sender<()>>,
    forwarder: Forwarder,
    proof: watch::Receiver<LeaderProof>,
    /// The revision that this replica has applied.
    revision: watch::Receiver<u64>,
    freshness: Freshness,
}

impl Replica {
    /// Reads the store as soon as it answers, passes its ledger to `start`, which makes the
    /// service, and runs the role loop from then on. The service follows until this replica is
    /// elected.
    ///
    /// # Errors
    /// See [`StartError`]. A store that does not answer for 30 s is an error.
    pub async fn start(
        options: Options,
        start: impl FnOnce(Ledger) -> Service,
    ) -> Result<(Service, Self), StartError> {
        let mut link = Link::new(&options.location, CALL_TIMEOUT)?;
        let prover = Link::new(&options.location, CALL_TIMEOUT)?;
        let keys = Keys::new(&options.location.prefix);
        let forwarder = Forwarder::new(options.leader_ca.as_deref())?;
        let begun = Instant::now();
        let loaded = load_or_create(&mut link, &options).await?;
        let service = start(Ledger::load(loaded.snapshot.clone())?);
        let (leadership, watching) = watch::channel(Leadership {
            role: Role::Follower,
            leader: None,
        });
        let (read, reading) = watch::channel(loaded.revision());
        let progress = Progress {
            read: reading,
            decided: service.watch(),
        };
        let (resign, resigning) = mpsc::channel(1);
        let role_loop = RoleLoop::new(options, service.clone(), leadership, read, resigning);
        task::spawn(role_loop.run(link, loaded));
        let (proving, proof) = watch::channel(LeaderProof::default());
        task::spawn(way::prove(forwarder.clone(), watching.clone(), proving));
        let replica = Self {
            leadership: watching,
            proof,
            resign,
            forwarder,
            revision: service.watch(),
            freshness: Freshness::start(prover, keys, begun, progress),
        };
        Ok((service, replica))
    }

    /// Waits until the role loop has ended: the replica resigned, or cannot go on.
    pub async fn ended(&self) {
        let mut leadership = self.leadership.clone();
        while leadership.changed().await.is_ok() {}
    }

    /// Returns the leader that this replica knows.
    pub fn leadership(&self) -> Leadership {
        self.leadership.borrow().clone()
    }

    /// Checks that this replica can answer queries and pass writes on: it leads, or it follows and
    /// its requests reached the leader within [`PROOF_LIFE`].
    ///
    /// # Errors
    /// The reason why it cannot.
    pub fn check_ready(&self) -> Result<(), String> {
        if let Some(age) = self.stale_for() {
            return Err(format!(
                "this replica has had no answer of its store for {} s",
                age.as_secs()
            ));
        }
        let Leadership { role, leader } = self.leadership();
        match (role, leader) {
            (Role::Leader, _) => Ok(()),
            (Role::Follower, None) => Err("no leader is known".to_owned()),
            (Role::Follower, Some(leader)) => self.proof.borrow().check(&leader, Instant::now()),
        }
    }

    /// Returns the age of the last proof that this replica has all of the store, if at least [`STALE`].
    pub fn stale_for(&self) -> Option<Duration> {
        Some(self.age()).filter(|age| *age >= STALE)
    }

    /// Returns an upper bound on the age of what this replica has: the time since the last proof that it
    /// has all of the store. Proofs come each second.
    pub fn age(&self) -> Duration {
        self.freshness.age()
    }

    /// Waits until the last proof that this replica has all of the store is [`STALE`].
    pub async fn stale(&self) {
        self.freshness.stale(STALE).await;
    }

    /// Waits until this replica has all that was committed before the call.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn newest(&self) -> Result<(), String> {
        self.freshness.newest().await
    }

    /// Sends a write to the leader unchanged. Returns the leader's answer once this replica has
    /// applied the write too.
    ///
    /// # Errors
    /// No leader is known, it does not answer, or the request was forwarded here by another
    /// replica. The write may have been done all the same: the caller tries again with the same
    /// idempotency key.
    pub async fn forward(
        &self,
        method: Method,
        path_and_query: &str,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Result<LeaderAnswer, String> {
        let leader = match self.leadership() {
            Leadership {
                role: Role::Follower,
                leader: Some(leader),
                ..
            } => leader,
            Leadership { role, .. } => {
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
            // This fails if the replica is cut off from etcd; the answer is right all the same.
            let _ = time::timeout(SEEN, seen).await;
        }
        Ok(answer)
    }

    /// Stops deciding for good, so that another replica can lead without waiting for the lease.
    /// Returns when the leader's key is released, or cannot be.
    pub async fn resign(&self) {
        let (done, wait) = oneshot::channel();
        if self.resign.send(done).await.is_ok() {
            // An error means that the role loop has ended already.
            let _ = wait.await;
        }
    }
}

#[cfg(test)]
impl Replica {
    /// A handle without a role loop behind it, whose role and last proof the test sets.
    pub(crate) fn of(
        leadership: watch::Receiver<Leadership>,
        proved: watch::Receiver<Instant>,
    ) -> Self {
        Self {
            leadership,
            resign: mpsc::channel(1).0,
            forwarder: Forwarder::new(None).expect("there is no file to read"),
            proof: watch::channel(LeaderProof::default()).1,
            revision: watch::channel(0).1,
            freshness: Freshness::of(proved),
        }
    }
}

/// Reads the store, and creates its content if it is new.
async fn load_or_create(link: &mut Link, options: &Options) -> Result<StoreContent, StartError> {
    let keys = Keys::new(&options.location.prefix);
    let end = Instant::now() + START;
    loop {
        let error = match load(link, &keys).await {
            Ok(loaded) if loaded.snapshot.topology.is_some() => return Ok(loaded),
            Ok(loaded) => match create(link, options, &loaded).await {
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
        time::sleep(RETRY_PAUSE).await;
    }
}

/// Puts the initial topology into a new store, unless another replica is doing so.
async fn create(
    link: &mut Link,
    options: &Options,
    loaded: &StoreContent,
) -> Result<(), StartError> {
    let (spec, policy) = options.initial.clone().ok_or(StartError::NoTopology)?;
    let (_, changes) = Ledger::new(spec, policy)?;
    let elected = campaign(link, options).await;
    let Some(elected) = elected.map_err(|error| StoreError::Failed(error.to_string()))? else {
        return Err(StoreError::Failed("another replica creates the store".into()).into());
    };
    let mut store = store(options, &elected, loaded.layout.clone())?;
    let written = task::spawn_blocking(move || store.commit(&changes)).await;
    lease::revoke(link, elected.term.lease).await;
    written.map_err(|error| StoreError::Uncertain(error.to_string()))??;
    Ok(())
}

async fn campaign(link: &mut Link, options: &Options) -> Result<Option<ElectedTerm>, LinkError> {
    let Options {
        location,
        lease,
        advertise,
        ..
    } = options;
    lease::campaign(link, location, *lease, advertise).await
}

fn store(options: &Options, elected: &ElectedTerm, layout: Layout) -> Result<EtcdStore, LinkError> {
    Ok(EtcdStore::new(
        Handle::current(),
        Link::new(&options.location, CALL_TIMEOUT)?,
        Keys::new(&options.location.prefix),
        elected.term.clone(),
        layout,
    ))
}

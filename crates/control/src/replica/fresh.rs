//! Proofs that this replica has all of the store: how old its answers may be, and the newest revision.
//!
//! A watch that is silent proves nothing: its member may be cut off from the others. So a replica reads the
//! revision of the last commit through etcd's majority, each second and for queries that want the newest
//! state. All queries that wait share one such read, which begins after all of them.

use crate::store::etcd::messages::RangeRequest;
use crate::store::etcd::{Keys, Link, LinkError};
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time;

/// The interval between two proofs.
const PROOF: Duration = Duration::from_secs(1);
/// Limit on queries that wait for the newest revision; further ones wait for a place.
const QUERIES: usize = 1024;

/// A query's wait for the revision of the last commit, or for the reason why it is not known.
type Query = oneshot::Sender<Result<u64, String>>;

/// The revisions that a replica has of its store.
#[derive(Debug, Clone)]
pub(super) struct Progress {
    /// The revision of the store up to which this replica has read the watch.
    pub(super) read: watch::Receiver<u64>,
    /// The revision of the service's ledger, which a leader moves on by itself.
    pub(super) decided: watch::Receiver<u64>,
}

impl Progress {
    fn has(&self, revision: u64) -> bool {
        (*self.read.borrow()).max(*self.decided.borrow()) >= revision
    }

    /// Waits until this replica has a revision of the store.
    pub(super) async fn reach(&mut self, revision: u64) {
        while !self.has(revision) {
            let ended = tokio::select! {
                change = self.read.changed() => change.is_err(),
                change = self.decided.changed() => change.is_err(),
            };
            if ended {
                // The process ends, and nothing moves on any more.
                return std::future::pending().await;
            }
        }
    }
}

/// A handle on the proofs of a replica.
#[derive(Debug, Clone)]
pub(super) struct Freshness {
    /// The time at which the last proof began.
    proved: watch::Receiver<Instant>,
    queries: mpsc::Sender<Query>,
    progress: Progress,
}

impl Freshness {
    /// Begins to prove, from a store that was read after `begun`. Ends with the last handle.
    pub(super) fn start(link: Link, keys: Keys, begun: Instant, progress: Progress) -> Self {
        let (last, proved) = watch::channel(begun);
        let (queries, waiting) = mpsc::channel(QUERIES);
        let task = Prover {
            link,
            keys,
            waiting,
            last,
            unproved: None,
            progress: progress.clone(),
        };
        tokio::spawn(task.run());
        Self {
            proved,
            queries,
            progress,
        }
    }

    /// Returns an upper bound on the age of what this replica has now.
    pub(super) fn age(&self) -> Duration {
        self.proved.borrow().elapsed()
    }

    /// Waits until the last proof is this old.
    pub(super) async fn stale(&self, age: Duration) {
        let mut proved = self.proved.clone();
        loop {
            let due = *proved.borrow_and_update() + age;
            tokio::select! {
                () = time::sleep_until(due.into()) => return,
                changed = proved.changed() => if changed.is_err() {
                    // The process ends.
                    return std::future::pending().await;
                },
            }
        }
    }

    /// Waits until this replica has all that was committed before the call.
    ///
    /// # Errors
    /// The store does not answer.
    pub(super) async fn newest(&self) -> Result<(), String> {
        let (query, answer) = oneshot::channel();
        let sent = self.queries.send(query).await;
        sent.map_err(|_| "the service is ending")?;
        let revision = answer.await.map_err(|_| "the service is ending")??;
        self.progress.clone().reach(revision).await;
        Ok(())
    }

    /// A handle without a prover, whose last proof the test sets.
    #[cfg(test)]
    pub(super) fn of(proved: watch::Receiver<Instant>) -> Self {
        Self {
            proved,
            queries: mpsc::channel(1).0,
            progress: Progress {
                read: watch::channel(0).1,
                decided: watch::channel(0).1,
            },
        }
    }
}

/// The task that reads the revision of the last commit.
struct Prover {
    link: Link,
    keys: Keys,
    waiting: mpsc::Receiver<Query>,
    /// The begin of the last proof.
    last: watch::Sender<Instant>,
    /// The begin of a read, and its revision, which this replica has not reached yet.
    unproved: Option<(Instant, u64)>,
    progress: Progress,
}

impl Prover {
    async fn run(mut self) {
        let mut due = Instant::now();
        loop {
            let reached = async {
                match self.unproved {
                    Some((begun, revision)) => {
                        self.progress.reach(revision).await;
                        begun
                    }
                    None => std::future::pending().await,
                }
            };
            let mut queries = Vec::new();
            tokio::select! {
                begun = reached => {
                    self.unproved = None;
                    self.last.send_replace(begun);
                    continue;
                }
                count = self.waiting.recv_many(&mut queries, QUERIES) => if count == 0 { return },
                () = time::sleep_until(due.into()) => {}
            }
            let begun = Instant::now();
            due = begun + PROOF;
            let revision = self.last_commit().await;
            match &revision {
                // A revision that is not reached is kept: newer ones come as long as others commit.
                Ok(revision) => self.unproved = self.unproved.or(Some((begun, *revision))),
                Err(error) => tracing::debug!(%error, "no proof of the newest revision"),
            }
            for query in queries {
                let revision = revision.as_ref().map_err(ToString::to_string);
                // The query may have ended.
                let _ = query.send(revision.copied());
            }
        }
    }

    /// Returns the revision of the last commit that was done before the call; 0 in a new store.
    async fn last_commit(&mut self) -> Result<u64, LinkError> {
        // Without a revision the majority is asked.
        let read = RangeRequest::one(self.keys.commits());
        let answer = self
            .link
            .call(async |client| client.range(read).await)
            .await?;
        let last = answer.kvs.last().map_or(0, |commit| commit.mod_revision);
        Ok(u64::try_from(last).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_revision_is_reached_by_the_watch_or_by_own_decisions() {
        let (read, decided) = (watch::channel(3), watch::channel(0));
        let mut progress = Progress {
            read: read.1,
            decided: decided.1,
        };
        progress.reach(3).await;
        for sender in [&read.0, &decided.0] {
            let wanted = 1 + (*read.0.borrow()).max(*decided.0.borrow());
            let mut waiting = progress.clone();
            let waiting = tokio::spawn(async move { waiting.reach(wanted).await });
            tokio::task::yield_now().await;
            assert!(!waiting.is_finished());
            sender.send_replace(wanted);
            waiting.await.unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_replica_is_stale_once_its_last_proof_is_old() {
        let begun = time::Instant::now();
        let (proof, proved) = watch::channel(begun.into_std());
        let freshness = Freshness::of(proved);
        let age = Duration::from_secs(5);
        let waiting = tokio::spawn(async move { freshness.stale(age).await });
        time::advance(Duration::from_secs(4)).await;
        proof.send_replace(time::Instant::now().into_std());
        time::advance(Duration::from_secs(4)).await;
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        waiting.await.unwrap();
        assert!(begun.elapsed() >= Duration::from_secs(9));
    }
}

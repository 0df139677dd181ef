//! Elections: taking the leader's key by a lease, and how long the lease certainly holds.

use crate::store::etcd::messages::{Compare, RequestOp, TxnRequest};
use crate::store::etcd::{Deadline, Keys, Link, LinkError, Location, Term};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;
use tokio::time;

/// Pause between two attempts to keep a lease alive after a failure.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// A term as the leader, and the task that keeps its lease alive.
pub(super) struct ElectedTerm {
    /// The lease, and the revision at which the leader's key was created.
    pub(super) term: Term,
    keeper: JoinHandle<()>,
}

impl ElectedTerm {
    /// Waits until the lease is lost or may be lost.
    pub(super) async fn lost(&mut self) {
        // An error would be a panic of the task: then it is not kept either.
        let _ = (&mut self.keeper).await;
    }

    /// Ends the term for this replica: the lease is not kept alive any more.
    pub(super) fn stop(&self) {
        self.keeper.abort();
        self.term.deadline.end();
    }
}

impl Drop for ElectedTerm {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Returns how much of a lease is used, counted from the moment when it was asked for. The rest
/// covers the difference in speed between this machine's clock and etcd's, and the time to answer
/// what was decided just before the end.
fn usable(lease: Duration) -> Duration {
    lease * 4 / 5
}

/// Takes the leader's key if it is free. Returns None if another replica has it.
///
/// # Errors
///
/// etcd does not answer. The key may have been taken. Then it is released when its lease, which no
/// replica renews, ends.
pub(super) async fn campaign(
    link: &mut Link,
    location: &Location,
    lease: Duration,
    advertise: &str,
) -> Result<Option<ElectedTerm>, LinkError> {
    let keys = Keys::new(&location.prefix);
    let seconds = i64::try_from(lease.as_secs()).unwrap_or(i64::MAX);
    // etcd counts from a later moment, so its end of the lease is later too.
    let sent = Instant::now();
    let granted = link
        .call(async |client| client.grant(seconds).await)
        .await?;
    let lease = Duration::from_secs(u64::try_from(granted.ttl).unwrap_or(0));
    let id = granted.id;
    let deadline = Deadline::new(sent + usable(lease));
    let txn = TxnRequest {
        // The key is free if it was created at no revision.
        compare: vec![Compare::created(keys.leader(), 0)],
        success: vec![
            RequestOp::put_with_lease(keys.leader(), advertise, id),
            RequestOp::put(keys.commits(), Term::commit(id, 0)),
        ],
        failure: Vec::new(),
    };
    let answer = link.call(async |client| client.txn(txn).await).await?;
    let created = match answer.header {
        Some(header) if answer.succeeded => header.revision,
        _ => {
            revoke(link, id).await;
            return Ok(None);
        }
    };
    let term = Term {
        lease: id,
        created,
        deadline,
    };
    let keeper = tokio::spawn(keep(
        Link::new(location, lease / 5)?,
        id,
        lease,
        term.deadline.clone(),
    ));
    Ok(Some(ElectedTerm { term, keeper }))
}

/// Revokes a lease, so that other replicas need not wait for its end. If that fails, they wait.
pub(super) async fn revoke(link: &mut Link, id: i64) {
    if let Err(error) = link.call(async |client| client.revoke(id).await).await {
        tracing::info!(%error, "the lease was not revoked; it ends by itself");
    }
}

/// Keeps a lease alive until it is lost or may be lost.
async fn keep(mut link: Link, id: i64, lease: Duration, deadline: Deadline) {
    let mut pause = lease / 5;
    loop {
        time::sleep(pause).await;
        let sent = Instant::now();
        let answer = link.call(async |client| client.keep_alive(id).await).await;
        pause = match answer {
            Ok(true) => {
                deadline.extend(sent + usable(lease));
                lease / 5
            }
            Ok(false) => return,
            Err(error) => {
                tracing::warn!(%error, "the lease was not kept alive; trying again");
                RETRY_PAUSE
            }
        };
        if !deadline.holds() {
            return;
        }
    }
}

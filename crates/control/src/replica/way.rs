//! The proof that this replica's requests reach the leader.
//!
//! A follower queries the leader's readiness at intervals, by the path of a forwarded write: the same
//! address, connections and authorities. [`Way`] has the last proof and decides whether it counts;
//! [`prove`] is the task that sends the queries.

use super::forward::Forwarder;
use super::{Leadership, STALE};
use std::time::{Duration, Instant};
use tailbound_api::Role;
use tokio::sync::watch;
use tokio::time;

/// The time for which a proof counts: a follower that is cut off from the leader is not ready any
/// more after this time.
pub const PROOF_LIFE: Duration = STALE;
/// The interval of proofs while the leader is reachable.
const INTERVAL: Duration = Duration::from_secs(1);
/// The interval of attempts while it is unreachable.
const RETRY_INTERVAL: Duration = Duration::from_millis(250);

/// The last proof that a leader is reachable.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct LeaderProof {
    /// The leader's URL.
    leader: String,
    /// The time of the last proof; None before the first one.
    proved: Option<Instant>,
    /// The error of the last attempt; None if it was a proof.
    error: Option<String>,
}

impl LeaderProof {
    /// Notes the outcome of an attempt that began at `at`.
    pub(super) fn note(&mut self, leader: &str, outcome: Result<(), String>, at: Instant) {
        if self.leader != leader {
            *self = Self {
                leader: leader.to_owned(),
                ..Self::default()
            };
        }
        match outcome {
            Ok(()) => {
                self.proved = Some(at);
                self.error = None;
            }
            Err(error) => self.error = Some(error),
        }
    }

    /// Checks that requests reached this leader within [`PROOF_LIFE`].
    ///
    /// # Errors
    /// The reason why the leader is unreachable, or that no proof was tried yet.
    pub(super) fn check(&self, leader: &str, now: Instant) -> Result<(), String> {
        if self.leader != leader {
            return Err(format!("the path to the leader {leader} was not tried yet"));
        }
        let age = self.proved.map(|at| now.saturating_duration_since(at));
        if age.is_some_and(|age| age < PROOF_LIFE) {
            return Ok(());
        }
        Err(self
            .error
            .clone()
            .unwrap_or_else(|| format!("the leader {leader} has not answered for {PROOF_LIFE:?}")))
    }

    /// Returns the pause before the next attempt.
    const fn pause(&self) -> Duration {
        match self.error {
            None => INTERVAL,
            Some(_) => RETRY_INTERVAL,
        }
    }
}

/// Proves at intervals that the leader is reachable, until the role loop has ended.
pub(super) async fn prove(
    forwarder: Forwarder,
    mut leadership: watch::Receiver<Leadership>,
    proof: watch::Sender<LeaderProof>,
) {
    loop {
        let leader = {
            let now = leadership.borrow_and_update();
            let is_follower = now.role == Role::Follower;
            now.leader.clone().filter(|_| is_follower)
        };
        let Some(leader) = leader else {
            if leadership.changed().await.is_err() {
                return;
            }
            continue;
        };
        let begin = Instant::now();
        let outcome = forwarder.prove(&leader).await;
        let pause = {
            let had_error = proof.borrow().error.is_some();
            match &outcome {
                Err(error) if !had_error => tracing::warn!(error, "the leader is unreachable"),
                Ok(()) if had_error => tracing::info!(leader, "the leader is reachable again"),
                _ => {}
            }
            proof.send_modify(|proof| proof.note(&leader, outcome, begin));
            proof.borrow().pause()
        };
        tokio::select! {
            () = time::sleep(pause) => {}
            changed = leadership.changed() => {
                if changed.is_err() {
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    /// The last second in which a proof counts.
    const LAST: Duration = Duration::from_secs(4);

    #[test]
    fn a_proof_counts_for_its_leader_and_for_its_time() {
        let begin = Instant::now();
        let mut way = LeaderProof::default();
        assert!(
            way.check("one", begin)
                .unwrap_err()
                .contains("not tried yet")
        );
        way.note("one", Ok(()), begin);
        assert_eq!(way.check("one", begin + LAST), Ok(()));
        assert_eq!(way.pause(), INTERVAL);
        assert!(way.check("two", begin).is_err(), "it is another leader");
        // A short break is none, and a longer one has its reason.
        way.note("one", Err("refused".to_owned()), begin + SECOND);
        assert_eq!(way.check("one", begin + SECOND), Ok(()));
        assert_eq!(way.pause(), RETRY_INTERVAL);
        let late = begin + PROOF_LIFE;
        assert_eq!(way.check("one", late), Err("refused".to_owned()));
        way.note("one", Ok(()), late);
        assert_eq!(way.check("one", late), Ok(()));
        let silent = way.check("one", late + PROOF_LIFE).unwrap_err();
        assert!(silent.contains("has not answered for 5s"), "{silent}");
        // A proof of one leader is none of the next.
        way.note("two", Err("refused".to_owned()), late);
        assert_eq!(way.check("two", late), Err("refused".to_owned()));
    }
}

//! Undoes what others have changed, within limits ([`crate::strikes`]).

use super::Watcher;
use crate::agent::AgentError;
use crate::config::OnDrift;
use crate::path::live::Condition;
use crate::path::{DAEMON, PathStep, path_of};
use crate::place::keeper;
use crate::plan::Plan;
use crate::strikes::{Response, Strikes};
use std::collections::BTreeSet;
use std::path::PathBuf;
use tailbound_sys::thread::ThreadId;
use tailbound_units::Nanos;

/// The changes by others that were undone or kept.
#[derive(Debug, Default)]
pub(super) struct Drift {
    threads: Strikes<ThreadId>,
    groups: Strikes<PathBuf>,
    path: Strikes<PathKey>,
    /// The parts of the path whose CPUs were offline in the last round.
    suspended: BTreeSet<PathKey>,
}

/// A part of the host's own path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum PathKey {
    Cpus,
    Interrupt(u32),
}

/// The response to a part of the path that is not in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PathResponse {
    /// Wait until its CPUs are online.
    Wait { is_news: bool },
    /// Make it again: the kernel took it.
    Redo,
    /// Another program changed the state.
    Strike(Response),
}

impl From<&PathStep> for PathKey {
    fn from(step: &PathStep) -> Self {
        match step {
            PathStep::Partition { .. } | PathStep::Sets { .. } => Self::Cpus,
            PathStep::Interrupt { number, .. } => Self::Interrupt(*number),
        }
    }
}

impl Drift {
    pub(super) fn age(&mut self, now: Nanos) {
        self.threads.age(now);
        self.groups.age(now);
        self.path.age(now);
    }

    pub(super) fn clear(&mut self) {
        self.threads.clear();
        self.groups.clear();
        self.path.clear();
    }

    /// Returns the response to a part of the path that is not in force. The kernel's own changes
    /// are no strikes: CPUs that go offline, and what that leaves when they are online again.
    fn respond_for_path(
        &mut self,
        now: Nanos,
        key: PathKey,
        condition: Condition,
        may_undo: bool,
    ) -> PathResponse {
        let was_suspended = self.suspended.remove(&key);
        match condition {
            Condition::Suspended => {
                self.suspended.insert(key);
                PathResponse::Wait {
                    is_news: !was_suspended,
                }
            }
            Condition::Changed if !was_suspended => {
                PathResponse::Strike(self.path.respond(now, key, may_undo))
            }
            Condition::InForce | Condition::Lost | Condition::Changed => PathResponse::Redo,
        }
    }
}

impl Watcher {
    fn may_undo(&self) -> bool {
        self.config.drift == OnDrift::Reapply
    }

    /// Counts the steps that change drifted threads back, and takes out of the plan
    /// those that stay as they are; returns their threads.
    pub(super) fn take_drifted(&mut self, plan: &mut Plan) -> BTreeSet<ThreadId> {
        let may_undo = self.may_undo();
        let changes = self.agent.changes();
        let mut drifted = BTreeSet::new();
        let mut seen = Vec::new();
        let Plan { threads, reset, .. } = plan;
        threads.retain(|step| {
            let known = changes.threads.get(&step.thread);
            if known.is_none_or(|known| known.after != step.after) || reset.contains(&step.thread) {
                return true;
            }
            let response = self.drift.threads.respond(self.now, step.thread, may_undo);
            if let Response::Keep { .. } = response {
                drifted.insert(step.thread);
            }
            seen.push((step.clone(), response));
            response == Response::Undo
        });
        for (step, response) in seen {
            let Some(outcome) = outcome(response) else {
                continue;
            };
            let (name, before) = (&step.name, step.before);
            tracing::warn!(
                "{name}: another program made it {} on CPUs {}; {outcome}",
                before.scheduling,
                before.cpus
            );
            let guest = self.guest_of(step.thread);
            *self.lock().drift.entry(guest).or_default() += 1;
        }
        drifted
    }

    /// Does the same for control groups: managers of groups set weights anew, each for its
    /// reasons. Returns the groups that stay as they are.
    pub(super) fn take_drifted_groups(&mut self, plan: &mut Plan) -> BTreeSet<PathBuf> {
        let may_undo = self.may_undo();
        let changes = self.agent.changes();
        let mut drifted = BTreeSet::new();
        let mut seen = Vec::new();
        plan.groups.retain(|step| {
            let known = changes.groups.get(&step.directory);
            if known.is_none_or(|known| known.after != step.after) {
                return true;
            }
            let key = step.directory.clone();
            let response = self.drift.groups.respond(self.now, key, may_undo);
            if let Response::Keep { .. } = response {
                drifted.insert(step.directory.clone());
            }
            seen.push((step.clone(), response));
            response == Response::Undo
        });
        for (step, response) in seen {
            let Some(outcome) = outcome(response) else {
                continue;
            };
            let group = step.directory.display();
            tracing::warn!(
                "group {group}: {} made its {} {}; {outcome}",
                keeper(&group.to_string()),
                step.kind.file(),
                step.before,
            );
            let of = |guest: &&crate::guest::Guest| guest.weighed.group() == Some(&step.directory);
            let guest = self.guests.iter().find(of).map(|guest| guest.name.clone());
            let mut shared = self.lock();
            *shared.drift.entry(guest.unwrap_or_default()).or_default() += 1;
        }
        drifted
    }

    /// Keeps CPUs and interrupts for the host's own path, as the configuration demands.
    pub(super) fn keep_path(&mut self) -> Result<(), AgentError> {
        let config = self.config.path.clone().unwrap_or_default();
        let mut cpus = self.agent.changes().path.iter().filter_map(PathStep::takes);
        if cpus.any(|cpus| Some(cpus) != config.cpus) {
            let restored = self.agent.restore_path();
            self.note_restored(restored);
        }
        let daemon = path_of(&self.config.rules, &self.guests);
        let (now, may_undo) = (self.now, self.may_undo());
        let mut seen = Vec::new();
        let attended = self.agent.attend_path(&daemon, |step, condition| {
            let key = step.into();
            let response = self.drift.respond_for_path(now, key, condition, may_undo);
            seen.push((step.to_string(), response));
            matches!(
                response,
                PathResponse::Redo | PathResponse::Strike(Response::Undo)
            )
        });
        for (step, response) in seen {
            match response {
                PathResponse::Wait { is_news: true } => {
                    tracing::warn!("{step}: suspended while its CPUs are offline");
                }
                PathResponse::Wait { is_news: false } => {}
                PathResponse::Redo => tracing::info!("{step}: made again"),
                PathResponse::Strike(response) => {
                    if let Some(outcome) = outcome(response) {
                        tracing::warn!("{step}: another program changed that; {outcome}");
                        *self.lock().drift.entry(DAEMON.to_owned()).or_default() += 1;
                    }
                }
            }
        }
        attended?;
        for step in self.agent.plan_path(&config, &daemon)? {
            if self.path_refused.contains(&step) {
                continue;
            }
            match self.agent.apply_path(std::slice::from_ref(&step)) {
                Ok(()) => tracing::info!("{step}"),
                Err(error) => {
                    // Not in each round: cpusets are made and taken back for nothing.
                    self.path_refused.push(step);
                    return Err(error);
                }
            }
        }
        Ok(())
    }
}

/// Returns what is logged of a change by others; `None` for one that was reported before.
fn outcome(response: Response) -> Option<&'static str> {
    match response {
        Response::Undo => Some("changed back"),
        Response::Keep { is_news: true } => {
            Some("kept as it is (drift = \"report\", or changed back three times within an hour)")
        }
        Response::Keep { is_news: false } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CPUS: PathKey = PathKey::Cpus;

    #[test]
    fn a_cpu_that_goes_offline_and_returns_again_and_again_is_no_strike() {
        let mut drift = Drift::default();
        let mut second = 0;
        let mut respond = |key, condition| {
            second += 1;
            drift.respond_for_path(Nanos::from_secs(second), key, condition, true)
        };
        for _ in 0..10 {
            for key in [CPUS, PathKey::Interrupt(41)] {
                assert_eq!(
                    respond(key, Condition::Suspended),
                    PathResponse::Wait { is_news: true }
                );
                assert_eq!(
                    respond(key, Condition::Suspended),
                    PathResponse::Wait { is_news: false }
                );
                // An interrupt stays where the kernel moved it.
                assert_eq!(respond(key, Condition::Changed), PathResponse::Redo);
            }
        }
        for _ in 0..10 {
            assert_eq!(respond(CPUS, Condition::Lost), PathResponse::Redo);
        }
        let strikes: Vec<_> = (0..4).map(|_| respond(CPUS, Condition::Changed)).collect();
        let undo = PathResponse::Strike(Response::Undo);
        assert_eq!(strikes[..3], [undo; 3]);
        assert_eq!(
            strikes[3],
            PathResponse::Strike(Response::Keep { is_news: true })
        );
    }
}

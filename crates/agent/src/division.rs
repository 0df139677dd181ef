//! The division of a late wait among causes: pure.

use super::text::printable;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use tailbound_sys::waits::{LateWait, Run};
use tailbound_units::Nanos;

/// Maximum number of other threads named for a late wait: those that ran longest.
pub const NAMED: usize = 4;

/// Reason why a thread had no CPU: the activity of its CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// Other threads ran.
    Others,
    /// The thread's own reservation was used up.
    Reservation,
    /// A CPU quota held up its control group.
    Quota,
    /// Interrupts, where the kernel counts their time.
    Interrupts,
    /// The hypervisor ran another VM, if it reports that.
    Stolen,
    /// The CPU did nothing: it was just waking up, or the thread stood in another CPU's queue.
    Idle,
    /// The use of the CPU is no longer known: more threads ran since than the program remembers.
    Unknown,
}

impl Cause {
    /// Every cause.
    pub const ALL: [Self; 7] = [
        Self::Others,
        Self::Reservation,
        Self::Quota,
        Self::Interrupts,
        Self::Stolen,
        Self::Idle,
        Self::Unknown,
    ];

    /// Its stable name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Others => "others",
            Self::Reservation => "reservation",
            Self::Quota => "quota",
            Self::Interrupts => "interrupts",
            Self::Stolen => "stolen",
            Self::Idle => "idle",
            Self::Unknown => "unknown",
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A late wait, divided: its parts sum up to it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Division {
    /// Time of each cause; causes without time are absent.
    pub causes: BTreeMap<Cause, Nanos>,
    /// The others that ran longest, by name, the longest first: at most [`NAMED`].
    pub others: Vec<(String, Nanos)>,
}

impl Division {
    fn give(&mut self, cause: Cause, time: u64) {
        if time > 0 {
            self.causes.entry(cause).or_default().0 += time;
        }
    }
}

/// Divides a late wait. `known` names threads that are better known than by what they call
/// themselves.
pub fn divide(wait: &LateWait, known: impl Fn(u32) -> Option<String>) -> Division {
    let mut division = Division::default();
    let (from, until) = (wait.from.0, wait.until.0.max(wait.from.0));
    // What holds the thread itself up does so from the beginning; who runs meanwhile is not to
    // blame.
    let reservation = wait.reservation.0.min(until - from);
    let quota = wait.quota.0.min(until - from - reservation);
    division.give(Cause::Reservation, reservation);
    division.give(Cause::Quota, quota);
    let mut at = from + reservation + quota;
    let mut others = BTreeMap::<String, u64>::new();
    for run in &wait.runs {
        let begin = run.from.0.clamp(at, until);
        let end = run.until.0.clamp(begin, until);
        division.give(Cause::Unknown, begin - at);
        at = end;
        let (stolen, interrupted) = taken(run, end - begin);
        division.give(Cause::Stolen, stolen);
        division.give(Cause::Interrupts, interrupted);
        let rest = end - begin - stolen - interrupted;
        if run.tid == 0 {
            division.give(Cause::Idle, rest);
        } else if rest > 0 {
            division.give(Cause::Others, rest);
            let name = known(run.tid).unwrap_or_else(|| printable(&run.name));
            *others.entry(name).or_default() += rest;
        }
    }
    division.give(Cause::Unknown, until - at);
    let mut others: Vec<_> = others
        .into_iter()
        .map(|(name, time)| (name, Nanos(time)))
        .collect();
    others.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    others.truncate(NAMED);
    division.others = others;
    division
}

/// Steal and interrupt time of the part of a run that is `time` long: the same share as of the
/// whole run.
fn taken(run: &Run, time: u64) -> (u64, u64) {
    let whole = run.until.0.saturating_sub(run.from.0).max(1);
    let part = |of: Nanos| {
        let part = u128::from(of.0) * u128::from(time) / u128::from(whole);
        u64::try_from(part).unwrap_or(u64::MAX).min(time)
    };
    let stolen = part(run.stolen);
    (stolen, part(run.interrupted).min(time - stolen))
}

/// The threads that ran instead, by name, over many waits.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Culprits(BTreeMap<String, Nanos>);

impl Culprits {
    /// Maximum number of names: a guest that starts threads with ever new names fills no memory.
    const NAMES: usize = 64;

    /// Counts the others of a wait.
    pub fn add(&mut self, others: &[(String, Nanos)]) {
        for (name, time) in others {
            if let Some(sum) = self.0.get_mut(name) {
                sum.0 += time.0;
                continue;
            }
            if self.0.len() == Self::NAMES {
                let least = self.0.iter().min_by_key(|(_, time)| **time);
                let Some((least, _)) = least.map(|(name, time)| (name.clone(), *time)) else {
                    continue;
                };
                self.0.remove(&least);
            }
            self.0.insert(name.clone(), *time);
        }
    }

    /// The names that ran longest, the longest first: at most [`NAMED`].
    pub fn longest(&self) -> Vec<(&str, Nanos)> {
        let mut all: Vec<_> = self.0.iter().map(|(name, time)| (&**name, *time)).collect();
        all.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(b.0)));
        all.truncate(NAMED);
        all
    }
}

#[cfg(test)]
mod tests;

//! From what is wanted and what is there to what has to be done. Pure: it makes
//! no system call, so a plan for any machine can be made on any other.

use super::admission::{self, Domain, Limits};
use super::class::{Class, Offer, target};
use super::refusal::Refusal;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use tailbound_sys::cgroup::WeightKind;
use tailbound_sys::cpuset::Cpus;
use tailbound_sys::thread::{Scheduling, ThreadId};
use tailbound_units::Nanos;

/// Everything about a thread that a class changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadState {
    /// How it is scheduled.
    pub scheduling: Scheduling,
    /// Where it may run.
    pub cpus: Cpus,
}

/// What is wanted of one thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wish {
    /// The thread.
    pub thread: ThreadId,
    /// What people call it, such as `web1 vCPU 0`.
    pub name: String,
    /// Its class.
    pub class: Class,
    /// Whether its CPU mask may be widened where a deadline demands it.
    pub widen: bool,
    /// A CPU to bring it to. A thread with a deadline may run anywhere in its root
    /// domain; it wakes where it ran last unless another deadline is there.
    pub home: Option<u32>,
    /// The control group that is its guest's own; it takes the weight then.
    pub group: Option<PathBuf>,
}

/// What was seen of one thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// How it is; the slice is zero where it is the kernel's own.
    pub state: ThreadState,
    /// Where it runs, or ran last.
    pub processor: u32,
    /// What its cpuset leaves it.
    pub allowed: Cpus,
    /// Whether we may change another user's thread, or this one is ours.
    pub ours: bool,
    /// Whether its nice value counts only within its session: autogroups are on,
    /// and it is in no control group that has a weight.
    pub autogrouped: bool,
}

/// What was seen of a control group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupSeen {
    /// Which file has its weight.
    pub kind: WeightKind,
    /// Its weight.
    pub weight: u64,
}

/// What was seen of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// Its root domains.
    pub domains: Vec<Domain>,
    /// What the administrator allows to reservations.
    pub limits: Limits,
    /// Whether a thread can have a time slice of its own (Linux 6.12).
    pub slices: bool,
    /// Whether this process may raise anybody (`CAP_SYS_NICE`, in the initial
    /// user namespace).
    pub privileged: bool,
}

/// All that was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observed {
    /// The threads that a wish is about; one that is missing has ended.
    pub threads: BTreeMap<ThreadId, Seen>,
    /// The groups that a wish names.
    pub groups: BTreeMap<PathBuf, GroupSeen>,
    /// The machine.
    pub machine: Machine,
}

/// What happens to one thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadStep {
    /// The thread.
    pub thread: ThreadId,
    /// What people call it.
    pub name: String,
    /// How it is.
    pub before: ThreadState,
    /// How it is to be.
    pub after: ThreadState,
    /// A CPU to bring it to on the way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub home: Option<u32>,
    /// The control group that is its guest's own; when the last of its threads is
    /// restored, so is its weight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<PathBuf>,
}

/// What happens to one control group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupStep {
    /// Its directory.
    pub directory: PathBuf,
    /// Which file has its weight.
    pub kind: WeightKind,
    /// Its weight.
    pub before: u64,
    /// What it is to be.
    pub after: u64,
}

/// What has to be done. Passive: printing it changes nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// Control groups, which come first.
    pub groups: Vec<GroupStep>,
    /// Threads.
    pub threads: Vec<ThreadStep>,
    /// How many threads are as they should be.
    pub unchanged: usize,
    /// Threads that ended before the plan was made.
    pub gone: Vec<String>,
    /// What will not be as asked for, though nothing is wrong.
    pub notes: Vec<String>,
}

/// One system call on a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Move {
    /// Gives the bandwidth of its reservation back; the next move leaves
    /// `SCHED_DEADLINE`.
    Release(Scheduling),
    /// Says where it may run.
    Affinity(Cpus),
    /// Says how it is scheduled.
    Schedule(Scheduling),
}

impl ThreadStep {
    /// The same step backwards.
    #[must_use]
    pub fn undo(&self) -> Self {
        Self {
            before: self.after,
            after: self.before,
            home: None,
            ..self.clone()
        }
    }

    /// The system calls, in an order that the kernel takes: a mask changes only
    /// while there is no deadline, and a deadline comes only to a wide mask.
    pub fn moves(&self) -> Vec<Move> {
        let (before, after) = (self.before.scheduling, self.after.scheduling);
        let moves_cpus = self.before.cpus != self.after.cpus || self.home.is_some();
        let leaves = before.is_deadline() && (!after.is_deadline() || moves_cpus);
        let mut moves = Vec::new();
        if leaves {
            moves.push(Move::Release(before));
            let next = if after.is_deadline() {
                Scheduling {
                    flags: after.flags,
                    ..Scheduling::PLAIN
                }
            } else {
                after
            };
            moves.push(Move::Schedule(next));
        }
        if let Some(home) = self.home {
            moves.push(Move::Affinity(Cpus::one(home)));
        }
        if moves_cpus {
            moves.push(Move::Affinity(self.after.cpus));
        }
        if after.is_deadline() || (!leaves && before != after) {
            moves.push(Move::Schedule(after));
        }
        moves
    }
}

impl Plan {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty() && self.threads.is_empty()
    }
}

/// Works out the steps from what is there to what is wanted. `originals` is how
/// threads were before we first touched them: what [`Class::Normal`] goes back
/// to.
///
/// # Errors
/// Everything that stands in the way, each with its remedy. Nothing may be
/// applied then.
pub fn plan(
    wishes: &[Wish],
    observed: &Observed,
    originals: &BTreeMap<ThreadId, ThreadState>,
) -> Result<Plan, Vec<Refusal>> {
    let mut planner = Planner {
        observed,
        plan: Plan::default(),
        refusals: Vec::new(),
    };
    for wish in wishes {
        planner.thread(wish, originals.get(&wish.thread));
    }
    let Planner {
        mut plan,
        mut refusals,
        ..
    } = planner;
    plan.groups = groups(wishes, observed);
    refusals.extend(admission::admit(&plan.threads, observed));
    plan.notes.dedup();
    if refusals.is_empty() {
        Ok(plan)
    } else {
        Err(refusals)
    }
}

struct Planner<'o> {
    observed: &'o Observed,
    plan: Plan,
    refusals: Vec<Refusal>,
}

impl Planner<'_> {
    fn thread(&mut self, wish: &Wish, original: Option<&ThreadState>) {
        let Some(seen) = self.observed.threads.get(&wish.thread) else {
            self.plan.gone.push(wish.name.clone());
            return;
        };
        let machine = &self.observed.machine;
        if let Class::Aperiodic(aperiodic) = wish.class
            && !machine.slices
        {
            self.note(format!(
                "this kernel has no time slices of a thread's own (Linux >= 6.12): of {} only the \
                 weight is applied",
                Class::Aperiodic(aperiodic)
            ));
        }
        if let Class::Aperiodic(aperiodic) = wish.class
            && aperiodic.weight > 1
            && wish.group.is_none()
            && seen.autogrouped
        {
            self.note(
                "autogroups are on, and a nice value counts only within its session: the weight \
                 has no effect beside other sessions; give the guest a control group of its own, \
                 or set kernel.sched_autogroup_enabled = 0"
                    .to_owned(),
            );
        }
        let before = seen.state;
        let original = original.copied().unwrap_or(before);
        let mut after = original;
        let offer = Offer {
            slices: machine.slices,
            nice: wish.group.is_none(),
            privileged: machine.privileged,
        };
        if let Some(scheduling) = target(&wish.class, &original.scheduling, offer) {
            after.scheduling = scheduling;
        }
        if let Some(refusal) = self.affinity(wish, seen, &mut after) {
            self.refusals.push(refusal);
            return;
        }
        if same(&before, &after) {
            self.plan.unchanged += 1;
            return;
        }
        if let Some(refusal) = self.privilege(wish, seen, &after) {
            self.refusals.push(refusal);
            return;
        }
        self.plan.threads.push(ThreadStep {
            thread: wish.thread,
            name: wish.name.clone(),
            before,
            after,
            home: wish.home,
            group: wish.group.clone(),
        });
    }

    fn note(&mut self, note: String) {
        if !self.plan.notes.contains(&note) {
            self.plan.notes.push(note);
        }
    }

    /// Widens the mask to the root domain where a deadline demands it.
    fn affinity(&mut self, wish: &Wish, seen: &Seen, after: &mut ThreadState) -> Option<Refusal> {
        if !after.scheduling.is_deadline() {
            return None;
        }
        let domain = self.observed.machine.domain(seen.processor);
        let span = domain.map_or(seen.allowed, |domain| domain.cpus);
        let name = wish.name.clone();
        if let Some(home) = wish.home
            && !span.contains(home)
        {
            return Some(Refusal::Home { name, home, span });
        }
        if !seen.allowed.covers(&span) {
            return Some(Refusal::Cpuset {
                name,
                allowed: seen.allowed,
                span,
            });
        }
        if after.cpus.covers(&span) {
            return None;
        }
        if !wish.widen {
            return Some(Refusal::Affinity {
                name,
                cpus: after.cpus,
                span,
            });
        }
        after.cpus = after.cpus.or(&span);
        None
    }

    fn privilege(&self, wish: &Wish, seen: &Seen, after: &ThreadState) -> Option<Refusal> {
        let (is, to) = (seen.state.scheduling, after.scheduling);
        let raises = !to.is_share() || !is.is_share() || to.nice < is.nice;
        // To clear the flag takes the privilege, too.
        let frees = is.flags & !to.flags & Scheduling::RESET_ON_FORK != 0;
        if self.observed.machine.privileged || (seen.ours && !raises && !frees) {
            return None;
        }
        Some(Refusal::Privilege {
            name: wish.name.clone(),
            class: wish.class,
            ours: seen.ours,
        })
    }
}

/// The largest weight that a class of its threads wants for each group.
fn groups(wishes: &[Wish], observed: &Observed) -> Vec<GroupStep> {
    let mut wanted: BTreeMap<&Path, u64> = BTreeMap::new();
    for wish in wishes {
        if let (Some(group), Class::Aperiodic(aperiodic)) = (&wish.group, &wish.class)
            && let Some(seen) = observed.groups.get(group)
            && observed.threads.contains_key(&wish.thread)
        {
            let weight = wanted.entry(group).or_default();
            *weight = aperiodic.group_weight(seen.kind).max(*weight);
        }
    }
    let step = |(directory, after): (&Path, u64)| {
        let seen = observed.groups.get(directory)?;
        (seen.weight < after).then(|| GroupStep {
            directory: directory.to_owned(),
            kind: seen.kind,
            before: seen.weight,
            after,
        })
    };
    wanted.into_iter().filter_map(step).collect()
}

/// Whether `seen` is what `wanted` asks for. A slice of zero is the kernel's own;
/// what was seen has it as zero, too.
pub fn same(seen: &ThreadState, wanted: &ThreadState) -> bool {
    seen.cpus == wanted.cpus && same_scheduling(&seen.scheduling, &wanted.scheduling)
}

/// [`same`], of the scheduling alone.
pub fn same_scheduling(seen: &Scheduling, wanted: &Scheduling) -> bool {
    let comparable = |state: &Scheduling| Scheduling {
        // Where the policy has none, older kernels report what was last set.
        nice: if state.is_share() { state.nice } else { 0 },
        deadline: if state.is_deadline() {
            state.deadline
        } else {
            Nanos::ZERO
        },
        period: if state.is_deadline() {
            state.period
        } else {
            Nanos::ZERO
        },
        ..*state
    };
    comparable(seen) == comparable(wanted)
}

impl Machine {
    /// The root domain that a CPU belongs to.
    pub fn domain(&self, cpu: u32) -> Option<&Domain> {
        self.domains.iter().find(|domain| domain.cpus.contains(cpu))
    }
}

impl fmt::Display for ThreadStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            thread,
            name,
            before,
            after,
            home,
            ..
        } = self;
        write!(f, "thread {thread} ({name}): ")?;
        let mut separator = "";
        if !same_scheduling(&before.scheduling, &after.scheduling) {
            write!(f, "{} -> {}", before.scheduling, after.scheduling)?;
            separator = ", ";
        }
        if before.cpus != after.cpus {
            write!(f, "{separator}CPUs {} -> {}", before.cpus, after.cpus)?;
        }
        match home {
            Some(home) => write!(f, ", at home on CPU {home}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for GroupStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            directory,
            kind,
            before,
            after,
        } = self;
        write!(
            f,
            "group {}: {} {before} -> {after}",
            directory.display(),
            kind.file()
        )
    }
}

impl fmt::Display for Plan {
    /// One line a step, then what is left as it is.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for step in &self.groups {
            writeln!(f, "{step}")?;
        }
        for step in &self.threads {
            writeln!(f, "{step}")?;
        }
        for name in &self.gone {
            writeln!(f, "gone: {name}")?;
        }
        for note in &self.notes {
            writeln!(f, "note: {note}")?;
        }
        writeln!(
            f,
            "{} to change, {} as they should be",
            self.threads.len() + self.groups.len(),
            self.unchanged
        )
    }
}

#[cfg(test)]
mod tests;

//! Works out the steps from what was observed to what is desired. Pure: it makes no
//! system call, so a plan for any machine can be made on any other.

use super::admission;
use super::class::{Aperiodic, Class, Periodic, Support, target};
use super::desired::{Affinity, Desired, Excess};
use super::guest::WeightBearer;
use super::guidance::Advice;
use super::observed::{Observed, ObservedThread, ThreadState, as_far_as};
use super::plan_error::PlanError;
use super::step::{GroupStep, ThreadStep, same, same_scheduling};
use super::text::printable;
use super::worth;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use tailbound_sys::cgroup::Quota;
use tailbound_sys::cpuset::Cpus;
use tailbound_sys::thread::{Scheduling, ThreadId};
use tailbound_units::Nanos;

/// The steps of a plan. A plan is data: printing it changes nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// Steps of control groups, which come first.
    pub groups: Vec<GroupStep>,
    /// Steps of threads.
    pub threads: Vec<ThreadStep>,
    /// Number of threads in their desired state.
    pub unchanged: usize,
    /// Threads that exited before the plan was made.
    pub exited: Vec<String>,
    /// Deviations from the desired state that are no errors.
    pub notes: Vec<String>,
    /// The threads of which the kernel has set the CPU mask anew with that of their cpuset, as it
    /// does whenever the cpuset changes.
    #[serde(skip)]
    pub reset: BTreeSet<ThreadId>,
}

impl Plan {
    /// Returns true if there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.steps() == 0
    }

    /// Returns how many steps there are.
    pub fn steps(&self) -> usize {
        self.groups.len() + self.threads.len()
    }

    /// Returns a line for each step, each thread that exited and each note.
    pub fn listing(&self) -> String {
        let groups = self.groups.iter().map(ToString::to_string);
        let threads = self.threads.iter().map(ToString::to_string);
        let exited = self.exited.iter().map(|name| format!("exited: {name}"));
        let notes = self.notes.iter().map(|note| format!("note: {note}"));
        let lines = groups.chain(threads).chain(exited).chain(notes);
        lines.map(|line| line + "\n").collect()
    }
}

/// Returns the steps from what was observed to what is desired. `originals` has the
/// states of threads before the agent first changed them, to which
/// [`Class::Normal`] goes back.
///
/// # Errors
/// Everything that stands in the way, each with its remedy; nothing may be applied.
pub fn plan(
    desired: &[Desired],
    observed: &Observed,
    originals: &BTreeMap<ThreadId, ThreadState>,
) -> Result<Plan, Vec<PlanError>> {
    let mut planner = Planner {
        observed,
        plan: Plan::default(),
        errors: Vec::new(),
    };
    for wanted in desired {
        planner.thread(wanted, originals.get(&wanted.thread));
    }
    planner.note_ticks(desired);
    let Planner {
        mut plan,
        mut errors,
        ..
    } = planner;
    plan.groups = groups(desired, observed);
    errors.extend(admission::admit(&plan.threads, observed));
    plan.notes.extend(worth::notes(&plan.threads, observed));
    plan.notes
        .extend(worth::holds(desired, &plan.threads, observed));
    plan.notes.dedup();
    if errors.is_empty() {
        Ok(plan)
    } else {
        Err(errors)
    }
}

/// A plan in the making.
struct Planner<'o> {
    observed: &'o Observed,
    plan: Plan,
    errors: Vec<PlanError>,
}

impl Planner<'_> {
    /// Adds what has to be done to one thread.
    fn thread(&mut self, wanted: &Desired, original: Option<&ThreadState>) {
        let Some(seen) = self.observed.threads.get(&wanted.thread) else {
            self.plan.exited.push(wanted.name.clone());
            return;
        };
        self.notes(wanted, seen);
        if let (WeightBearer::Nothing { group, others }, Class::Aperiodic(aperiodic)) =
            (&wanted.weighed, wanted.class)
            && aperiodic.weight > 1
        {
            self.errors.push(PlanError::Weight {
                name: wanted.name.clone(),
                group: group.clone(),
                others: others.clone(),
            });
            return;
        }
        let before = seen.state;
        match self.target(wanted, seen, original.copied().unwrap_or(before)) {
            Ok(after) if same(&before, &after) => self.plan.unchanged += 1,
            Ok(after) => {
                if before.cpus == seen.allowed
                    && same_scheduling(&before.scheduling, &after.scheduling)
                {
                    self.plan.reset.insert(wanted.thread);
                }
                self.plan.threads.push(ThreadStep {
                    thread: wanted.thread,
                    name: wanted.name.clone(),
                    before,
                    after,
                    home: wanted.home,
                    group: wanted.weighed.group().cloned(),
                });
            }
            Err(error) => self.errors.push(*error),
        }
    }

    /// Returns the state that a thread gets; `original` is what it had before the
    /// agent first changed it.
    fn target(
        &self,
        wanted: &Desired,
        seen: &ObservedThread,
        original: ThreadState,
    ) -> Result<ThreadState, Box<PlanError>> {
        let support = Support {
            slices: self.observed.machine.slices,
            nice: wanted.weighed == WeightBearer::Threads,
            privileged: self.observed.machine.privileged,
        };
        let mut after = original;
        let class = match &seen.no_real_time {
            // The nearest that is left.
            Some(_) => Class::Aperiodic(Aperiodic::default()),
            None => wanted.class,
        };
        if let Some(scheduling) = target(&class, &original.scheduling, support) {
            after.scheduling = scheduling;
        }
        if after.scheduling.is_deadline() {
            after.cpus = self.widened(wanted, seen, after.cpus)?;
            if let Class::Periodic(periodic) = wanted.class {
                after.scheduling.flags &= !Scheduling::RECLAIM;
                after.scheduling.flags |= self.excess(wanted, periodic)?;
            }
        }
        after.cpus = as_far_as(after.cpus, seen.allowed);
        if !same(&seen.state, &after) {
            self.check_privilege(wanted, seen, &after)?;
        }
        Ok(after)
    }

    /// Returns the flag by which a thread has more than its reservation, if it is to, and others
    /// do not wait longer for it than is accepted.
    fn excess(&self, wanted: &Desired, periodic: Periodic) -> Result<u64, Box<PlanError>> {
        let Excess::Reclaim { longest } = wanted.excess else {
            return Ok(0);
        };
        let price = worth::excess(periodic, &self.observed.machine.limits);
        if price.is_some_and(|price| price <= longest) {
            return Ok(Scheduling::RECLAIM);
        }
        Err(Box::new(PlanError::Excess {
            name: wanted.name.clone(),
            longest: price,
            accepted: longest,
        }))
    }

    /// Adds a note that short slices may have little effect, if no thread has other classes.
    fn note_ticks(&mut self, desired: &[Desired]) {
        let machine = &self.observed.machine;
        let any = |kind: fn(&Class) -> bool| desired.iter().any(|wanted| kind(&wanted.class));
        if machine.slices
            && machine.guidance().advice() == Advice::Periodic
            && any(|class| matches!(class, Class::Aperiodic(_)))
            && !any(|class| matches!(class, Class::Periodic(_)))
        {
            self.note(format!(
                "ticks end time slices here, every {}: {}; use a reservation (periodic), or timers \
                 (HRTICK, the default from Linux 7.0 on)",
                machine.limits.tick,
                machine.guidance()
            ));
        }
    }

    /// Adds notes about the parts of its desired state that a thread will lack.
    fn notes(&mut self, wanted: &Desired, seen: &ObservedThread) {
        if let Some(group) = &seen.no_real_time {
            self.note(format!(
                "{}: the control group {} has no real-time budget (RT_GROUP_SCHED), so the \
                    thread gets a short slice instead of a real-time class; set \
                    cpu.rt_runtime_us of that group and its parents (cgroup v1), or boot with \
                    rt_group_sched=0",
                wanted.name,
                printable(&group.display().to_string()),
            ));
        }
        let Class::Aperiodic(aperiodic) = wanted.class else {
            return;
        };
        if !self.observed.machine.slices {
            self.note(format!(
                "this kernel has no time slices of a thread's own (Linux >= 6.12): of {} only the \
                 weight is applied",
                wanted.class
            ));
        }
        if let Some((group, Quota { runtime, period })) = &seen.quota
            && let cpus = u64::from(self.observed.machine.cpus().max(1))
            && let stretch = period.saturating_sub(Nanos(runtime.0 / cpus))
            && stretch > Nanos::ZERO
        {
            self.note(format!(
                "a CPU quota of {runtime} in {period} at {} can throttle all threads in it for \
                    {stretch} at a time, regardless of their share; raise the quota, or use \
                    reservations for vCPUs (periodic), to which quotas do not apply",
                printable(&group.display().to_string()),
            ));
        }
        if aperiodic.weight > 1 && wanted.weighed == WeightBearer::Threads && seen.autogrouped {
            self.note(
                "autogroups are enabled, and a nice value applies only within its session: the \
                    weight has no effect against other sessions; move the guest to its own \
                    control group, or set kernel.sched_autogroup_enabled = 0"
                    .to_owned(),
            );
        }
    }

    fn note(&mut self, note: String) {
        if !self.plan.notes.contains(&note) {
            self.plan.notes.push(note);
        }
    }

    /// Returns the mask `cpus`, widened to the root domain as a deadline demands.
    fn widened(
        &self,
        wanted: &Desired,
        seen: &ObservedThread,
        cpus: Cpus,
    ) -> Result<Cpus, Box<PlanError>> {
        let domain = self.observed.machine.domain(seen.processor);
        let domain = domain.map_or(seen.allowed, |domain| domain.cpus);
        let name = wanted.name.clone();
        if let Some(home) = wanted.home
            && !domain.contains(home)
        {
            return Err(Box::new(PlanError::Home { name, home, domain }));
        }
        if !seen.allowed.covers(&domain) {
            let allowed = seen.allowed;
            return Err(Box::new(PlanError::Cpuset {
                name,
                allowed,
                domain,
            }));
        }
        if !cpus.covers(&domain) && wanted.affinity == Affinity::Keep {
            return Err(Box::new(PlanError::Affinity { name, cpus, domain }));
        }
        Ok(cpus.or(&domain))
    }

    fn check_privilege(
        &self,
        wanted: &Desired,
        seen: &ObservedThread,
        after: &ThreadState,
    ) -> Result<(), Box<PlanError>> {
        let (is, to) = (seen.state.scheduling, after.scheduling);
        let raises = !to.is_share() || !is.is_share() || to.nice < is.nice;
        // To clear the flag takes the privilege, too.
        let frees = is.flags & !to.flags & Scheduling::RESET_ON_FORK != 0;
        if self.observed.machine.privileged || (seen.ours && !raises && !frees) {
            return Ok(());
        }
        Err(Box::new(PlanError::Privilege {
            name: wanted.name.clone(),
            class: wanted.class,
            ours: seen.ours,
        }))
    }
}

/// Returns the steps that set each group's weight to the largest weight of its threads' classes.
fn groups(desired: &[Desired], observed: &Observed) -> Vec<GroupStep> {
    let mut weights: BTreeMap<&Path, u64> = BTreeMap::new();
    for wanted in desired {
        if let (Some(group), Class::Aperiodic(aperiodic)) = (wanted.weighed.group(), &wanted.class)
            && let Some(seen) = observed.groups.get(group)
            && observed.threads.contains_key(&wanted.thread)
        {
            let weight = weights.entry(group).or_default();
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
    weights.into_iter().filter_map(step).collect()
}

impl fmt::Display for Plan {
    /// Writes one line for each step, then the unchanged threads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.listing())?;
        writeln!(
            f,
            "{} to change, {} as they should be",
            self.steps(),
            self.unchanged
        )
    }
}

#[cfg(test)]
mod tests;

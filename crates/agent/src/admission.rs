//! Whether reservations fit, before the kernel is asked: it says no more than
//! EBUSY.
//!
//! The rule is the kernel's own (`Documentation/scheduler/sched-deadline.rst`,
//! section 5): in each root domain the sum of runtime / period must stay within
//! the number of CPUs times `sched_rt_runtime_us` / `sched_rt_period_us`. Since
//! Linux 6.12 the fair server of each CPU, 50 ms in 1 s by default, is in that
//! sum.

use super::class::bandwidth;
use super::plan::{Observed, ThreadStep};
use super::refusal::Refusal;
use std::collections::BTreeMap;
use tailbound_sys::cpuset::Cpus;
use tailbound_sys::thread::{Scheduling, ThreadId};
use tailbound_units::Nanos;

/// One CPU, in the kernel's unit of bandwidth.
pub const CPU: u64 = 1 << 20;

/// A set of CPUs that the scheduler sees as one: a deadline is admitted to all
/// of it and to no part of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Domain {
    /// Its CPUs.
    pub cpus: Cpus,
    /// The reservations in it, by thread: runtime / period in units of 2^-20.
    pub booked: BTreeMap<ThreadId, u64>,
}

/// What the administrator allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The share of each CPU for real time, in units of 2^-20; `None`: all, and
    /// nothing is checked (`sched_rt_runtime_us` is -1).
    pub share: Option<u64>,
    /// What the fair server of each CPU books, in units of 2^-20.
    pub fair_server: u64,
    /// `sched_deadline_period_min_us` and `_max_us`.
    pub periods: (Nanos, Nanos),
}

/// What is wrong with the reservations in `steps`: periods that the kernel does
/// not take, and domains that would be overbooked.
pub(super) fn admit(steps: &[ThreadStep], observed: &Observed) -> Vec<Refusal> {
    let machine = &observed.machine;
    let limits = &machine.limits;
    let mut refusals = Vec::new();
    // By domain: what is asked for, and by whom.
    let mut asked: BTreeMap<usize, Vec<&ThreadStep>> = BTreeMap::new();
    for step in steps {
        let wanted = step.after.scheduling;
        if !wanted.is_deadline() {
            continue;
        }
        let (shortest, longest) = limits.periods;
        if wanted.period < shortest || wanted.period > longest {
            refusals.push(Refusal::Period {
                name: step.name.clone(),
                period: wanted.period,
                shortest,
                longest,
            });
        }
        let at = observed.threads[&step.thread].processor;
        let domain = machine.domains.iter().position(|d| d.cpus.contains(at));
        asked.entry(domain.unwrap_or(0)).or_default().push(step);
    }
    let Some(share) = limits.share else {
        return refusals;
    };
    for (index, steps) in asked {
        let Some(domain) = machine.domains.get(index) else {
            continue;
        };
        let cpus = u64::from(domain.cpus.count());
        let room = cpus * share.saturating_sub(limits.fair_server);
        let mut others = domain.booked.clone();
        for step in &steps {
            others.remove(&step.thread);
        }
        let others: u64 = others.values().sum();
        let wanted: u64 = steps.iter().map(|step| of(&step.after.scheduling)).sum();
        if others + wanted <= room {
            continue;
        }
        let left = room.saturating_sub(others);
        refusals.push(Refusal::Admission {
            names: steps.iter().map(|step| step.name.clone()).collect(),
            span: domain.cpus,
            wanted,
            others,
            room,
            nearest: nearest(&steps, left),
        });
    }
    refusals
}

/// What a reservation books.
pub(super) fn of(scheduling: &Scheduling) -> u64 {
    if scheduling.is_deadline() {
        bandwidth(scheduling.runtime, scheduling.period)
    } else {
        0
    }
}

/// The largest runtime, in whole microseconds, with which all of `steps` that
/// ask for the same would pass; `None` where they differ, or nothing passes.
fn nearest(steps: &[&ThreadStep], left: u64) -> Option<(Nanos, Nanos)> {
    let first = steps.first()?.after.scheduling;
    if steps.iter().any(|step| step.after.scheduling != first) {
        return None;
    }
    let each = left / steps.len() as u64;
    let nanos = (u128::from(each) * u128::from(first.period.0)) >> 20;
    let micros = u64::try_from(nanos).ok()? / 1000;
    (micros >= 2).then_some((Nanos::from_micros(micros), first.period))
}

//! Checks whether reservations fit before the kernel refuses them with EBUSY and no reason.
//!
//! The rule is the kernel's own (`Documentation/scheduler/sched-deadline.rst`,
//! section 5): in each root domain the sum of runtime / period must stay within
//! the number of CPUs times `sched_rt_runtime_us` / `sched_rt_period_us`. Since
//! Linux 6.12 the fair server of each CPU, 50 ms in 1 s by default, is in that
//! sum.

use super::class::{CPU, Periodic, reserved};
use super::observed::Observed;
use super::plan_error::{Nearest, PlanError};
use super::step::ThreadStep;
use std::collections::BTreeMap;
use tailbound_units::Nanos;

/// Returns what is wrong with the reservations in `steps`: periods that the kernel
/// does not take, and domains that would be overbooked.
pub(super) fn admit(steps: &[ThreadStep], observed: &Observed) -> Vec<PlanError> {
    let machine = &observed.machine;
    let limits = &machine.limits;
    let mut errors = Vec::new();
    // By domain: what is asked for, and by whom.
    let mut by_domain: BTreeMap<usize, Vec<&ThreadStep>> = BTreeMap::new();
    for step in steps {
        let wanted = step.after.scheduling;
        if !wanted.is_deadline() {
            continue;
        }
        if !limits.periods.contains(&wanted.period) {
            errors.push(PlanError::Period {
                name: step.name.clone(),
                period: wanted.period,
                shortest: *limits.periods.start(),
                longest: *limits.periods.end(),
            });
        }
        let at = observed.threads[&step.thread].processor;
        let domain = machine.domains.iter().position(|d| d.cpus.contains(at));
        by_domain.entry(domain.unwrap_or(0)).or_default().push(step);
    }
    let Some(share) = limits.share else {
        return errors;
    };
    for (index, steps) in by_domain {
        let Some(domain) = machine.domains.get(index) else {
            continue;
        };
        let cpus = u64::from(domain.cpus.count());
        let capacity = cpus * share.saturating_sub(limits.fair_server);
        let mut others = domain.booked.clone();
        for step in &steps {
            others.remove(&step.thread);
        }
        let others: u64 = others.values().map(Periodic::bandwidth).sum();
        let wanted: u64 = steps
            .iter()
            .map(|step| reserved(&step.after.scheduling))
            .sum();
        if others + wanted <= capacity {
            continue;
        }
        let left = capacity.saturating_sub(others);
        errors.push(PlanError::Admission {
            names: steps.iter().map(|step| step.name.clone()).collect(),
            domain: domain.cpus,
            wanted,
            others,
            capacity,
            nearest: nearest(&steps, left),
        });
    }
    errors
}

/// Returns the largest reservation, of whole microseconds, that would be admitted if all of `steps`
/// request it; `None` if their requests differ, or if no reservation fits.
fn nearest(steps: &[&ThreadStep], left: u64) -> Option<Nearest> {
    let first = steps.first()?.after.scheduling;
    if steps.iter().any(|step| step.after.scheduling != first) {
        return None;
    }
    let each = left / steps.len() as u64;
    let nanos = (u128::from(each) * u128::from(first.period.0)) / u128::from(CPU);
    let micros = u64::try_from(nanos).ok()? / 1000;
    (micros >= 2).then_some(Nearest {
        runtime: Nanos::from_micros(micros),
        period: first.period,
    })
}

//! The value of reservations: the longest time for which each leaves its thread without a CPU, and
//! whether a proof exists. Admission by the kernel proves nothing: see
//! [`tailbound_hypervisor::reservation`].

use super::class::{CPU, Class, Periodic};
use super::desired::Desired;
use super::observed::{Domain, Limits, Observed};
use super::step::ThreadStep;
use super::text::printable;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use tailbound_hypervisor::reservation::{Deadline, Disturbance, Pool, Service, Unschedulable};
use tailbound_sys::thread::Scheduling;
use tailbound_units::Nanos;

/// The command that makes the kernel stop threads by a timer.
const TIMERS: &str = "`echo HRTICK_DL > /sys/kernel/debug/sched/features`";

/// Returns a note for each kind of reservation of `steps` in a root domain.
pub(super) fn notes(steps: &[ThreadStep], observed: &Observed) -> Vec<String> {
    let machine = &observed.machine;
    let of = |domain: &Domain| of_domain(domain, steps, observed, &machine.limits);
    machine.domains.iter().flat_map(of).collect()
}

/// Returns a note for each thread of the host's own path: for how long at a stretch reservations,
/// which go before it, may keep it from all CPUs that it may run on.
pub(super) fn holds(desired: &[Desired], steps: &[ThreadStep], observed: &Observed) -> Vec<String> {
    let real_time = |wanted: &&Desired| wanted.class == Class::RealTime;
    let hold = |wanted: &Desired| {
        let seen = observed.threads.get(&wanted.thread)?;
        let domain = observed.machine.domain(seen.processor)?;
        let (all, reclaims) = reservations(domain, steps, observed);
        let cpus = domain.cpus.and(&seen.state.cpus);
        let pool = pool(&all, domain.cpus.count(), observed.machine.limits.overrun);
        let longest = match () {
            () if all.is_empty() => return None,
            () if reclaims => None,
            () => pool
                .services(&all)
                .ok()
                .and_then(|_| pool.longest_hold(cpus.count(), &all)),
        };
        let name = printable(&wanted.name);
        match longest {
            Some(Nanos::ZERO) => None,
            Some(longest) => Some(format!(
                "{name}: reservations go before it, and may keep it from CPUs {cpus} for {longest} at a \
                 stretch"
            )),
            None => Some(format!(
                "{name}: reservations go before it, and nothing proves for how long they may keep it \
                 from CPUs {cpus}"
            )),
        }
    };
    desired.iter().filter(real_time).filter_map(hold).collect()
}

/// Returns the notes for reservations beside one that has more, which may be theirs.
fn beyond(label: &str, steps: &[&ThreadStep], domain: &Domain, limits: &Limits) -> Vec<String> {
    let mut notes = Vec::new();
    let wanted = steps.iter().map(|step| &step.after.scheduling);
    let mut reclaim = wanted.filter(|wanted| wanted.flags & Scheduling::RECLAIM != 0);
    let price = reclaim
        .next()
        .map(|wanted| excess(Periodic::from(wanted), limits));
    if let Some(longest) = price.flatten() {
        notes.push(format!(
            "{label}: with spare CPU time it may run for {longest} at a time, while all threads \
                without a reservation wait, except for the fair server's share"
        ));
    }
    notes.push(format!(
        "{label}: the longest wait for a CPU of {} has no bound, since a thread there uses more \
            than its reservation",
        domain.cpus
    ));
    notes
}

/// Returns the longest run at a stretch of a thread that also uses the unused time of other
/// reservations; `None` if it is unbounded.
pub(super) fn excess(periodic: Periodic, limits: &Limits) -> Option<Nanos> {
    let share = (u128::from(limits.share?) * 1000).div_ceil(CPU.into());
    let share = u64::try_from(share).ok()?;
    let longest = deadline(periodic).longest_run(share, limits.overrun)?;
    Some(Nanos(longest.0.div_ceil(1000).saturating_mul(1000)))
}

fn of_domain(
    domain: &Domain,
    steps: &[ThreadStep],
    observed: &Observed,
    limits: &Limits,
) -> Vec<String> {
    let (all, reclaims) = reservations(domain, steps, observed);
    // By reservation: who gets it.
    let mut new: BTreeMap<_, Vec<&ThreadStep>> = BTreeMap::new();
    for step in reservation_steps(domain, steps, observed) {
        let Periodic {
            runtime,
            deadline,
            period,
        } = Periodic::from(&step.after.scheduling);
        let kind = new.entry((period, deadline, runtime)).or_default();
        kind.push(step);
    }
    let cpus = domain.cpus.count();
    let note = |(_, steps): (_, Vec<&ThreadStep>)| {
        let reservation = deadline(Periodic::from(&steps.first()?.after.scheduling));
        let worth = |overrun| worth(reservation, &all, cpus, overrun);
        let label = match &steps[..] {
            [one] => printable(&one.name),
            [first, others @ ..] => format!("{} and {} more", printable(&first.name), others.len()),
            [] => return None,
        };
        if reclaims {
            return Some(beyond(&label, &steps, domain, limits));
        }
        let mut note = match worth(limits.overrun) {
            Ok(longest) if limits.overrun == Nanos::ZERO => format!(
                "{label}: at worst {longest} without a CPU, and what interrupts and steal take; {}",
                match worth(limits.tick) {
                    Ok(first) => format!("once, after a first runtime that a tick ends, {first}"),
                    Err(_) => "nothing proves it after a first runtime that a tick ends".to_owned(),
                }
            ),
            Ok(longest) => format!(
                "{label}: at worst {longest} without a CPU, and what interrupts and steal take"
            ),
            Err(why) => format!(
                "{label}: the longest wait for a CPU of {} has no bound: {why}",
                domain.cpus
            ),
        };
        if limits.overrun > Nanos::ZERO
            && let Ok(longest) = worth(Nanos::ZERO)
        {
            // Writing to a String does not fail.
            let _ = write!(
                note,
                "; the kernel ends runtimes at ticks, every {}; with timers ({TIMERS}) it is \
                 {longest} from the second runtime on",
                limits.overrun
            );
        }
        Some(vec![note])
    };
    new.into_iter().filter_map(note).flatten().collect()
}

/// Returns the steps with a reservation in `domain`.
fn reservation_steps<'s>(
    domain: &Domain,
    steps: &'s [ThreadStep],
    observed: &Observed,
) -> impl Iterator<Item = &'s ThreadStep> {
    steps.iter().filter(|step| {
        let at = observed.threads[&step.thread].processor;
        step.after.scheduling.is_deadline() && domain.cpus.contains(at)
    })
}

/// Returns all reservations in `domain` after `steps`, and whether one of them has more.
fn reservations(
    domain: &Domain,
    steps: &[ThreadStep],
    observed: &Observed,
) -> (Vec<Deadline>, bool) {
    let mut all = domain.booked.clone();
    let mut reclaims = !domain.reclaiming.is_empty();
    for step in reservation_steps(domain, steps, observed) {
        all.insert(step.thread, Periodic::from(&step.after.scheduling));
        reclaims |= step.after.scheduling.flags & Scheduling::RECLAIM != 0;
    }
    (all.values().map(|one| deadline(*one)).collect(), reclaims)
}

/// Returns a pool of CPUs that has these reservations and no others.
fn pool(all: &[Deadline], cpus: u32, overrun: Nanos) -> Pool {
    let densities = all.iter().map(Deadline::density);
    Pool {
        cpus,
        threads: u32::try_from(all.len()).unwrap_or(u32::MAX),
        largest: densities.clone().max().unwrap_or(0),
        reservable: densities.fold(0, u64::saturating_add),
        disturbance: Disturbance {
            overrun,
            ..Disturbance::default()
        },
    }
}

/// Returns the longest time without a CPU, to a microsecond, of one of `all` reservations.
fn worth(
    one: Deadline,
    all: &[Deadline],
    cpus: u32,
    overrun: Nanos,
) -> Result<Nanos, Unschedulable> {
    let pool = pool(all, cpus, overrun);
    pool.services(all)?;
    let longest = pool
        .service(one)
        .map(|service: Service| service.blackout())?;
    Ok(Nanos(longest.0.div_ceil(1000).saturating_mul(1000)))
}

pub(super) fn deadline(periodic: Periodic) -> Deadline {
    let Periodic {
        runtime,
        deadline,
        period,
    } = periodic;
    Deadline {
        runtime,
        deadline,
        period,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::plan;
    use crate::testing::{Fake, desired, machine, periodic, reservation};
    use crate::{Desired, Excess};

    fn notes_of(overrun: Nanos, wanted: &[(u64, u64)], others: u32) -> Vec<String> {
        let mut machine = machine();
        machine.limits.overrun = overrun;
        let mut observed = Fake::new(1..=8).observe(machine);
        for tid in 5..5 + others {
            let booked = &mut observed.machine.domains[0].booked;
            booked.insert(crate::testing::id(tid), reservation(2000, 4000));
        }
        let wanted: Vec<_> = (1..)
            .zip(wanted)
            .map(|(tid, (runtime, period))| desired(tid, periodic(*runtime, *period)))
            .collect();
        plan(&wanted, &observed, &BTreeMap::new()).unwrap().notes
    }

    /// Returns the notes of a plan, or the reason of its refusal, for 1 ms in 4 ms with the unused
    /// time of others.
    fn reclaiming(accepted: u64, timers: bool, share: Option<u64>) -> Result<Vec<String>, String> {
        let mut machine = machine();
        machine.limits.share = share.map(|percent| CPU * percent / 100);
        if timers {
            machine.limits.overrun = Nanos::ZERO;
        }
        let observed = Fake::new(1..=2).observe(machine);
        let longest = Nanos::from_millis(accepted);
        let with = Desired {
            excess: Excess::Reclaim { longest },
            ..desired(1, periodic(1000, 4000))
        };
        let without = desired(2, periodic(500, 4000));
        let plan = plan(&[with, without], &observed, &BTreeMap::new());
        let plan = plan.map_err(|errors| errors[0].to_string())?;
        let flags = |at: usize| plan.threads[at].after.scheduling.flags & Scheduling::RECLAIM;
        assert_eq!((flags(0), flags(1)), (Scheduling::RECLAIM, 0));
        Ok(plan.notes)
    }

    #[test]
    fn reclaiming_notes_its_cost_and_must_fit_longest_excess() {
        let notes = reclaiming(160, false, Some(95)).unwrap();
        assert!(
            notes.iter().any(|note| note.starts_with(
                "vm vcpu 1: with spare CPU time it may run for 160ms at a time, while all"
            )),
            "{notes:?}"
        );
        for who in ["vm vcpu 1", "vm vcpu 2"] {
            let nothing = format!("{who}: the longest wait for a CPU");
            assert!(
                notes.iter().any(|note| note.starts_with(&nothing)),
                "{notes:?}"
            );
        }
        assert!(reclaiming(76, true, Some(95)).is_ok());
        let refused = reclaiming(159, false, Some(95)).unwrap_err();
        assert!(
            refused.starts_with("vm vcpu 1: with spare CPU time it may run for 160ms at a time")
                && refused.contains("accepts 159ms; raise longest_excess"),
            "{refused}"
        );
        let endless = reclaiming(1000, true, None).unwrap_err();
        assert!(
            endless.contains("it may run for ever at a time"),
            "{endless}"
        );
    }

    #[test]
    fn a_plan_reports_the_longest_wait_of_its_reservations() {
        let ticks = Nanos::from_millis(4);
        assert_eq!(
            notes_of(Nanos::ZERO, &[(1000, 4000), (1000, 4000)], 0),
            [
                "vm vcpu 1 and 1 more: at worst 6ms without a CPU, and what interrupts and steal take; \
                 once, after a first runtime that a tick ends, 35.455ms"
            ]
        );
        // Alone it overruns nobody's runtime but its own.
        assert_eq!(
            notes_of(ticks, &[(1000, 4000)], 0),
            [format!(
                "vm vcpu 1: at worst 34ms without a CPU, and what interrupts and steal take; the \
                 kernel ends runtimes at ticks, every 4ms; with timers ({TIMERS}) it is 6ms from \
                 the second runtime on"
            )]
        );
        // Linux 6.18 with timers leaves one such thread without a CPU for up to 11.9 ms at first.
        let alone = notes_of(Nanos::ZERO, &[(1000, 4000)], 0);
        assert!(alone[0].ends_with("once, after a first runtime that a tick ends, 34ms"));
        // 16 ms in all of 2.6 CPUs that are left: more than a period leaves.
        let late = notes_of(ticks, &[(1000, 4000)], 4);
        assert!(late[0].contains("has no bound"), "{late:?}");
        assert!(late[0].contains("it is 6ms"), "{late:?}");
        // Which the kernel takes: 3.25 of 3.6.
        let dense = notes_of(Nanos::ZERO, &[(3000, 4000), (2000, 4000)], 4);
        assert_eq!(dense.len(), 2);
        let late = notes_of(Nanos::ZERO, &[(1000, 4000)], 4);
        assert!(late[0].contains("at worst 6ms"), "{late:?}");
        assert!(late[0].ends_with("nothing proves it after a first runtime that a tick ends"));
        assert!(dense[0].contains("too much for 4 CPUs"), "{dense:?}");
    }
}

//! For how long reservations keep all others from their CPUs, by the model of the kernel.

use super::*;
use crate::testing::Script;
use std::collections::BTreeMap;

/// Returns the longest stretch in which all CPUs are busy, including a stretch that is unfinished
/// at the end.
fn longest_hold(script: &Script<SchedDeadline>, cpus: i32, end: Nanos) -> Nanos {
    // One that hands its CPU over at once ends no stretch.
    let mut changes: BTreeMap<Nanos, i32> = BTreeMap::new();
    for event in &script.log {
        match *event {
            Event::Started { at, .. } => *changes.entry(at).or_default() += 1,
            Event::Stopped { at, .. } => *changes.entry(at).or_default() -= 1,
            Event::Done { .. } => {}
        }
    }
    let (mut running, mut since, mut longest) = (0, None, Nanos::ZERO);
    for (at, change) in changes {
        running += change;
        if running == cpus {
            since = since.or(Some(at));
        } else if let Some(begin) = since.take() {
            longest = longest.max(at.saturating_sub(begin));
        }
    }
    since.map_or(longest, |begin| longest.max(end.saturating_sub(begin)))
}

fn script(cpus: u32, all: &[Deadline], enforcement: Enforcement) -> Script<SchedDeadline> {
    let host = host(cpus, all.len() as u32);
    let scheduler = SchedDeadline::new(&host, all, enforcement).expect("reservations");
    Script::new(&host, scheduler)
}

#[test]
fn the_longest_hold_counts_spare_time_and_borrowed_runtime() {
    let quarter = micros(1000, 4000, 4000);
    let alone = pool(1, &[quarter], Disturbance::default());
    assert_eq!(
        alone.longest_hold(1, &[quarter]),
        Some(Nanos::from_micros(2667))
    );
    // Two CPUs are never both one thread's.
    assert_eq!(alone.longest_hold(2, &[quarter]), Some(Nanos::ZERO));
    // Ticks look late, twice.
    let ticks = pool(1, &[quarter], overruns(4000));
    assert_eq!(
        ticks.longest_hold(1, &[quarter]),
        Some(Nanos::from_micros(13_334))
    );
    // A whole CPU's worth never ends.
    let whole = [micros(2000, 4000, 4000); 2];
    let full = pool(1, &whole, Disturbance::default());
    assert_eq!(full.longest_hold(1, &whole), None);
}

/// One whose deadline is its period: it may begin another before that is over.
fn implicit() -> impl Strategy<Value = Deadline> {
    reservation().prop_map(|one| Deadline {
        period: one.deadline,
        ..one
    })
}

proptest! {
    #[test]
    fn reservations_hold_all_cpus_no_longer_than_the_bound(
        cpus in 1_u32..4,
        all in prop::collection::vec(prop_oneof![reservation(), implicit()], 1..7),
        tick in prop_oneof![Just(None), (0.1_f64..4.0).prop_map(Some)],
        hogs in any::<u8>(),
        wakes in prop::collection::vec((0.0_f64..400.0, 0_usize..7, 0.1_f64..6.0), 0..200),
    ) {
        let overrun = tick.map_or(Nanos::ZERO, ms);
        let enforcement = tick.map_or(Enforcement::Timer, |tick| Enforcement::Tick {
            every: ms(tick),
            at: ms(tick / 3.0),
        });
        let disturbance = Disturbance { overrun, ..Disturbance::default() };
        // As many of them as can be promised together.
        let fits = |count: &usize| pool(cpus, &all[..*count], disturbance).services(&all[..*count]).is_ok();
        let count = (1..=all.len()).rev().find(fits);
        prop_assume!(count.is_some());
        let all = &all[..count.unwrap()];
        let said = pool(cpus, all, disturbance).longest_hold(cpus, all);
        prop_assume!(said.is_some());
        let said = said.unwrap();
        let mut script = script(cpus, all, enforcement);
        for vcpu in 0..all.len() {
            if hogs & (1 << vcpu) != 0 {
                script.hog(0.0, vcpu as u32);
            }
        }
        for (at, who, work) in &wakes {
            let who = who % all.len();
            if hogs & (1 << who) == 0 {
                script.wake(*at, who as u32, *work);
            }
        }
        script.run(500.0);
        let seen = longest_hold(&script, cpus.cast_signed(), ms(500.0));
        prop_assert!(seen <= said, "{seen} > {said}: {all:?}");
    }
}

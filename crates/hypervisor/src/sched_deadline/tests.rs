use super::*;
use crate::Event;
use crate::testing::{Script, host, ms};
use proptest::prelude::*;

fn given(runtime: f64, deadline: f64, period: f64) -> Deadline {
    Deadline {
        runtime: ms(runtime),
        deadline: ms(deadline),
        period: ms(period),
    }
}

/// HZ = 250, with the first tick at `at` milliseconds.
fn ticks(at: f64) -> Enforcement {
    Enforcement::Tick {
        every: ms(4.0),
        at: ms(at),
    }
}

fn script(pcpus: u32, given: &[Deadline], enforcement: Enforcement) -> Script<SchedDeadline> {
    let host = host(pcpus, given.len() as u32);
    let scheduler = SchedDeadline::new(&host, given, enforcement).expect("reservations");
    Script::new(&host, scheduler)
}

/// Returns the runs of `vcpu`, in milliseconds.
fn runs(script: &Script<SchedDeadline>, vcpu: u32) -> Vec<(f64, f64)> {
    let mut runs = Vec::new();
    let mut since = Nanos::ZERO;
    for event in &script.log {
        match *event {
            Event::Started { vcpu: who, at, .. } if who.0 == vcpu => since = at,
            Event::Stopped { vcpu: who, at, .. } if who.0 == vcpu => {
                runs.push((since.as_millis_f64(), at.as_millis_f64()));
            }
            _ => {}
        }
    }
    runs
}

fn is(one: f64, other: f64) -> bool {
    (one - other).abs() < 1e-6
}

#[test]
fn a_timer_throttles_a_vcpu_at_its_runtime_on_an_idle_cpu() {
    let mut script = script(1, &[given(1.0, 4.0, 4.0)], Enforcement::Timer);
    script.hog(0.0, 0).run(11.0);
    assert_eq!(runs(&script, 0), [(0.0, 1.0), (4.0, 5.0), (8.0, 9.0)]);
}

#[test]
fn a_tick_throttles_late_and_the_overrun_costs_later_periods() {
    // 4 ms until the tick, of which 3 are paid with three periods' runtimes; the next one is
    // there at 4 ms, with a deadline at 16 ms.
    let mut script = script(1, &[given(1.0, 4.0, 4.0)], ticks(3.5));
    script.hog(0.0, 0).run(40.0);
    let runs = runs(&script, 0);
    assert_eq!(runs[0], (0.0, 3.5));
    // 2.5 ms too long: three periods more.
    assert_eq!(runs[1], (4.0, 7.5));
    assert!(script.machine.scheduler().deadline(VcpuId(0)) > ms(16.0));
    assert!(is(runs[2].0, 16.0));
}

#[test]
fn an_overrun_past_the_period_end_is_replenished_at_the_tick() {
    // The tick comes at 3.9 ms, and the period ended at 3: it has 0.1 ms by then, and runs on.
    let mut script = script(1, &[given(0.5, 3.0, 3.0)], ticks(3.9));
    script.hog(0.0, 0).run(30.0);
    let runs = runs(&script, 0);
    assert_eq!(runs[0], (0.0, 7.9), "over two ticks");
    // 3.4 ms too long took seven periods, until 24 ms.
    assert!(is(runs[1].0, 24.0));
}

#[test]
fn a_wake_above_its_bandwidth_starts_a_new_period() {
    let mut script = script(1, &[given(2.0, 10.0, 10.0)], Enforcement::Timer);
    // 1 ms is left at 9 ms for 1 ms: five times its share. So it has 2 ms by 19 ms.
    script.wake(0.0, 0, 1.0).wake(9.0, 0, 3.0).run(30.0);
    assert_eq!(runs(&script, 0), [(0.0, 1.0), (9.0, 11.0), (19.0, 20.0)]);
}

#[test]
fn a_wake_within_its_bandwidth_keeps_the_deadline() {
    let mut script = script(1, &[given(2.0, 10.0, 10.0)], Enforcement::Timer);
    // 0.5 ms is left at 3 ms for 7 ms.
    script.wake(0.0, 0, 1.5).wake(3.0, 0, 2.0).run(30.0);
    assert_eq!(runs(&script, 0), [(0.0, 1.5), (3.0, 3.5), (10.0, 11.5)]);
}

#[test]
fn a_wake_before_a_constrained_deadline_gets_its_density() {
    // 4 ms by 8 ms, every 20 ms. At 4 ms it has 4 ms left for 4 ms: its share is 2 ms.
    let mut script = script(1, &[given(4.0, 8.0, 20.0)], Enforcement::Timer);
    script.wake(0.0, 0, 0.001).wake(4.0, 0, 6.0).run(40.0);
    let runs = runs(&script, 0);
    assert!((runs[1].1 - 6.0).abs() < 0.001, "{runs:?}");
    assert!(is(runs[2].0, 20.0), "the next period");
}

#[test]
fn a_wake_after_a_constrained_deadline_waits_for_the_period() {
    let mut script = script(1, &[given(4.0, 8.0, 20.0)], Enforcement::Timer);
    script.wake(0.0, 0, 1.0).wake(9.0, 0, 1.0).run(40.0);
    assert_eq!(runs(&script, 0), [(0.0, 1.0), (20.0, 21.0)]);
}

#[test]
fn the_earliest_deadlines_run_on_all_cpus() {
    let all = [
        given(50.0, 100.0, 100.0),
        given(50.0, 200.0, 200.0),
        given(1.0, 10.0, 10.0),
    ];
    let mut script = script(2, &all, Enforcement::Timer);
    script.hog(0.0, 0).hog(0.0, 1).wake(5.0, 2, 1.0).run(8.0);
    assert_eq!(runs(&script, 2), [(5.0, 6.0)]);
    assert_eq!(runs(&script, 1), [(0.0, 5.0)], "its deadline is the latest");
    assert_eq!(runs(&script, 0), []);
}

#[test]
fn deadline_reservations_that_linux_refuses_are_refused() {
    let host = host(1, 1);
    for (wrong, why) in [
        (given(3.0, 2.0, 4.0), SchedDeadlineError::Reservation(0)),
        (given(1.0, 5.0, 4.0), SchedDeadlineError::Reservation(0)),
        (given(0.001, 5.0, 5.0), SchedDeadlineError::Reservation(0)),
    ] {
        let refused = SchedDeadline::new(&host, &[wrong], Enforcement::Timer);
        assert_eq!(refused.err(), Some(why));
    }
    let refused = SchedDeadline::new(&host, &[], Enforcement::Timer);
    let (reservations, vcpus) = (0, 1);
    let why = SchedDeadlineError::Count {
        reservations,
        vcpus,
    };
    assert_eq!(refused.err(), Some(why));
}

/// Runs and the gaps after them, in milliseconds, of a thread that never sleeps: measured with
/// the clock on Linux 6.18 (HZ = 250, `HRTICK_DL` off) on a machine of two CPUs, in one piece each.
const QUARTER: &[(f64, f64)] = &[
    (3.276, 8.726),
    (3.273, 8.729),
    (3.271, 8.725),
    (3.275, 12.734),
    (3.266, 8.727),
    (3.273, 8.736),
    (3.264, 12.732),
    (3.268, 8.747),
    (3.253, 8.734),
    (3.266, 8.736),
    (3.264, 12.732),
    (3.268, 8.734),
    (3.266, 8.731),
    (3.269, 12.733),
    (3.266, 8.728),
    (3.272, 8.737),
    (3.264, 8.735),
    (3.265, 12.742),
    (3.259, 8.732),
    (3.267, 8.74),
    (3.26, 12.736),
];
const SIXTH: &[(f64, f64)] = &[
    (4.138, 7.857),
    (0.144, 23.859),
    (8.141, 18.86),
    (1.139, 22.861),
    (1.139, 4.852),
    (3.148, 5.859),
    (2.142, 15.858),
    (0.141, 11.86),
    (8.141, 18.86),
    (1.139, 22.861),
    (1.139, 4.851),
    (3.149, 5.887),
    (2.113, 15.861),
    (0.139, 11.864),
    (8.136, 18.858),
    (1.142, 22.858),
    (1.142, 4.852),
    (3.148, 5.857),
    (2.143, 15.862),
    (0.138, 11.861),
    (8.139, 18.854),
    (1.145, 22.859),
    (1.141, 4.854),
    (3.146, 2.857),
];
const EARLY: &[(f64, f64)] = &[
    (2.275, 5.724),
    (2.275, 5.722),
    (2.279, 5.721),
    (2.282, 9.723),
    (2.274, 5.721),
    (2.279, 5.722),
    (2.278, 9.723),
    (2.276, 5.727),
    (2.273, 5.726),
    (2.273, 5.726),
    (2.276, 9.726),
    (2.273, 5.729),
    (2.272, 5.726),
    (2.273, 9.727),
    (2.274, 5.728),
    (2.27, 5.729),
    (2.273, 9.725),
    (2.274, 5.728),
    (2.27, 5.729),
    (2.273, 9.729),
    (2.27, 5.727),
];

/// Returns whether each five measured values in a row are also five in a row of the model, for some
/// phase of its ticks. The remaining runtime decides the next values, and rounding to the clock's
/// microseconds accumulates in it: the measured row as a whole therefore differs from the model's.
fn has(given: Deadline, measured: &[(f64, f64)]) -> bool {
    let rows: Vec<Vec<_>> = (0..200)
        .map(|at| {
            let mut script = script(1, &[given], ticks(0.02 * f64::from(at)));
            script.hog(0.0, 0).run(1500.0);
            let all = runs(&script, 0);
            let pairs = all.windows(2);
            pairs
                .map(|two| (two[0].1 - two[0].0, two[1].0 - two[0].1))
                .collect()
        })
        .collect();
    let is_near = |(one, other): (&(f64, f64), &(f64, f64))| {
        (one.0 - other.0).abs() < 0.06 && (one.1 - other.1).abs() < 0.06
    };
    measured.windows(5).all(|five| {
        let mut all = rows.iter().flat_map(|row| row.windows(5));
        all.any(|some| some.iter().zip(five).all(is_near))
    })
}

#[test]
fn a_thread_that_never_sleeps_runs_and_waits_as_under_the_kernel() {
    assert!(has(given(1.0, 4.0, 4.0), QUARTER));
    assert!(has(given(0.5, 3.0, 3.0), SIXTH));
    assert!(has(given(1.0, 2.0, 4.0), EARLY));
    // Another reservation has others.
    assert!(!has(given(1.1, 4.0, 4.0), QUARTER));
    assert!(!has(given(0.5, 3.0, 3.0), EARLY));
}

/// The longest run and gap, whenever the ticks are.
fn longest(given: Deadline) -> (f64, f64) {
    let of = |at: u32| {
        let mut script = script(1, &[given], ticks(0.02 * f64::from(at) + 0.01));
        script.hog(0.0, 0).run(1500.0);
        let all = runs(&script, 0);
        let run = all.iter().map(|run| run.1 - run.0).fold(0.0, f64::max);
        let gaps = all.windows(2).map(|two| two[1].0 - two[0].1);
        (run, gaps.fold(0.0, f64::max))
    };
    let all = (0..200).map(of);
    all.fold((0.0, 0.0), |a, b| (f64::max(a.0, b.0), f64::max(a.1, b.1)))
}

#[test]
fn ticks_make_gaps_of_many_periods() {
    // Of an enforcement at once all would be 3, 2.5 and 3 ms, and at worst 6, 5 and 4.
    for (given, run, gap) in [
        (given(1.0, 4.0, 4.0), 8.99, 15.99),
        (given(0.5, 3.0, 3.0), 8.49, 23.99),
        (given(1.0, 2.0, 4.0), 8.99, 15.99),
    ] {
        let longest = longest(given);
        assert!((longest.0 - run).abs() < 0.05, "{given:?} {longest:?}");
        assert!((longest.1 - gap).abs() < 0.05, "{given:?} {longest:?}");
    }
}

/// Returns the share of a pCPU for a vCPU that never sleeps and is alone, and its longest
/// uninterrupted run under all phases of the ticks. During that run no thread without a reservation
/// runs.
fn taken(
    given: Deadline,
    reclaims: Option<u64>,
    enforcement: fn(f64) -> Enforcement,
) -> (f64, f64) {
    let of = |at: u32| {
        let host = host(1, 1);
        let enforcement = enforcement(0.1 * f64::from(at));
        let mut scheduler = SchedDeadline::new(&host, &[given], enforcement).expect("one");
        if let Some(share) = reclaims {
            scheduler = scheduler.reclaiming(VcpuId(0), share);
        }
        let mut script = Script::new(&host, scheduler);
        script.hog(0.0, 0).run(2000.0);
        let all = runs(&script, 0);
        let lengths = || all.iter().map(|run| run.1 - run.0);
        let ran: f64 = lengths().sum();
        let last = all.last().expect("it ran").1;
        (ran / last, lengths().fold(0.0, f64::max))
    };
    let all = (0..40).map(of);
    all.fold((0.0, 0.0), |a, b| (f64::max(a.0, b.0), f64::max(a.1, b.1)))
}

/// Results for both sides: with reclaiming the vCPU has 95 % in place of 25, and the others wait
/// for 76 ms in place of 9 if ticks enforce the runtime, and for 3.8 ms in place of 1 with timers.
#[test]
fn a_reclaiming_vcpu_gets_95_percent_and_waits_stay_bounded() {
    let quarter = given(1.0, 4.0, 4.0);
    let timers: fn(f64) -> Enforcement = |_| Enforcement::Timer;
    for (reclaims, enforcement, overrun, share, run) in [
        (None, timers, 0.0, 0.25, 1.0),
        (Some(950), timers, 0.0, 0.95, 3.8),
        (None, ticks as fn(f64) -> Enforcement, 4.0, 0.25, 9.0),
        (Some(950), ticks, 4.0, 0.95, 76.0),
    ] {
        let found = taken(quarter, reclaims, enforcement);
        println!("{reclaims:?} {overrun}: {found:?}");
        assert!((found.0 - share).abs() < 0.02, "{found:?}");
        assert!((found.1 - run).abs() < 0.1 * run, "{found:?}");
        if let Some(share) = reclaims {
            let said = quarter.longest_run(share, ms(overrun)).expect("an end");
            assert!(found.1 <= said.as_millis_f64(), "{found:?} {said}");
        }
    }
    assert_eq!(quarter.longest_run(1000, ms(4.0)), None);
    // It begins at its deadline, and goes on through twenty periods.
    assert_eq!(quarter.longest_run(950, Nanos::ZERO), Some(ms(76.0)));
    assert_eq!(quarter.longest_run(950, ms(4.0)), Some(ms(160.0)));
}

proptest! {
    /// Other vCPUs have random reservations and sleeps.
    #[test]
    fn a_reclaiming_vcpu_runs_no_longer_than_the_bound(
        (runtime, period, share) in (0.2_f64..3.0, 4.0_f64..12.0, 500_u64..=980),
        others in prop::collection::vec((0.1_f64..1.5, 1.0_f64..2.0), 1..4),
        tick in prop_oneof![Just(None), (0.5_f64..4.0).prop_map(Some)],
        wakes in prop::collection::vec((0.0_f64..400.0, 0_usize..4, 0.1_f64..6.0), 0..200),
    ) {
        let mut all = vec![given(runtime, period, period)];
        all.extend(others.iter().map(|(run, times)| given(*run, period * times, period * times)));
        let host = host(1, all.len() as u32);
        let enforcement = tick.map_or(Enforcement::Timer, |tick| Enforcement::Tick {
            every: ms(tick),
            at: ms(tick / 3.0),
        });
        let densities: u64 = all.iter().map(Deadline::density).sum();
        prop_assume!(densities <= 1000);
        let scheduler = SchedDeadline::new(&host, &all, enforcement).expect("some");
        let mut script = Script::new(&host, scheduler.reclaiming(VcpuId(0), share));
        script.hog(0.0, 0);
        for (at, who, work) in &wakes {
            let other = 1 + who % others.len();
            script.wake(*at, other as u32, *work);
        }
        script.run(500.0);
        // Others may make it late by so much.
        let overrun = tick.map_or(Nanos::ZERO, ms);
        let late = Nanos(overrun.0 * (1 + others.len() as u64));
        let said = all[0].longest_run(share, late).expect("an end").as_millis_f64();
        for run in runs(&script, 0) {
            prop_assert!(run.1 - run.0 <= said, "{run:?} {said}");
        }
    }
}

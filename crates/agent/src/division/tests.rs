use super::*;
use proptest::prelude::*;
use tailbound_sys::thread::PolicyNumber;
use tailbound_sys::waits::Kind;

fn wait(from: u64, until: u64, runs: Vec<Run>) -> LateWait {
    LateWait {
        place: 0,
        kind: Kind::Preempted,
        from: Nanos(from),
        until: Nanos(until),
        reservation: Nanos::ZERO,
        quota: Nanos::ZERO,
        runs,
    }
}

fn run(from: u64, until: u64, tid: u32, name: &str) -> Run {
    Run {
        from: Nanos(from),
        until: Nanos(until),
        tid,
        name: name.to_owned(),
        stolen: Nanos::ZERO,
        interrupted: Nanos::ZERO,
        group: 0,
        policy: PolicyNumber::NORMAL,
    }
}

fn causes(division: &Division) -> Vec<(&'static str, u64)> {
    let causes = division.causes.iter();
    causes.map(|(cause, time)| (cause.name(), time.0)).collect()
}

#[test]
fn a_wait_is_divided_among_the_threads_that_ran_on_its_cpu() {
    let runs = vec![
        run(0, 120, 7, "before"),
        run(120, 160, 8, "hog"),
        run(160, 170, 0, "swapper/1"),
        run(170, 200, 9, "hog"),
    ];
    let known = |tid| (tid == 7).then(|| "web2 vcpu 0".to_owned());
    let division = divide(&wait(100, 200, runs), known);
    assert_eq!(causes(&division), [("others", 90), ("idle", 10)]);
    let others = [("hog".into(), Nanos(70)), ("web2 vcpu 0".into(), Nanos(20))];
    assert_eq!(division.others, others);
}

#[test]
fn throttled_time_of_a_wait_is_not_charged_to_others() {
    let runs = vec![run(90, 150, 7, "a"), run(150, 200, 8, "b")];
    let held = LateWait {
        reservation: Nanos(40),
        quota: Nanos(30),
        ..wait(100, 200, runs)
    };
    let division = divide(&held, |_| None);
    let expected = [("others", 30), ("reservation", 40), ("quota", 30)];
    assert_eq!(causes(&division), expected);
    assert_eq!(division.others, [("b".into(), Nanos(30))]);
    // More than all of it is all of it.
    let held = LateWait {
        reservation: Nanos(400),
        ..held
    };
    assert_eq!(causes(&divide(&held, |_| None)), [("reservation", 100)]);
}

#[test]
fn stolen_and_interrupt_time_is_subtracted_from_a_run() {
    let taken = Run {
        stolen: Nanos(30),
        interrupted: Nanos(10),
        ..run(50, 150, 7, "a")
    };
    // Half of it is in the wait; what was before the first run that is known is not known.
    let division = divide(&wait(100, 150, vec![taken.clone()]), |_| None);
    let expected = [("others", 30), ("interrupts", 5), ("stolen", 15)];
    assert_eq!(causes(&division), expected);
    let division = divide(&wait(20, 150, vec![taken]), |_| None);
    let expected = [
        ("others", 60),
        ("interrupts", 10),
        ("stolen", 30),
        ("unknown", 30),
    ];
    assert_eq!(causes(&division), expected);
}

#[test]
fn names_are_printable_few_and_the_longest_are_kept() {
    let runs = (0..9).map(|at| {
        run(
            at * 10,
            (at + 1) * 10,
            100 + at as u32,
            &format!("{at}\x1b"),
        )
    });
    let division = divide(&wait(5, 88, runs.collect()), |_| None);
    let names: Vec<_> = division.others.iter().map(|(name, _)| &**name).collect();
    assert_eq!(names, [r"1\u{1b}", r"2\u{1b}", r"3\u{1b}", r"4\u{1b}"]);

    let mut culprits = Culprits::default();
    culprits.add(&[("one".into(), Nanos(1_000))]);
    for at in 0..1_000 {
        culprits.add(&[(format!("thread {at}"), Nanos(at))]);
    }
    assert!(culprits.0.len() <= Culprits::NAMES);
    assert_eq!(
        culprits.longest()[..2],
        [("one", Nanos(1_000)), ("thread 999", Nanos(999))]
    );
}

fn runs() -> impl Strategy<Value = Vec<Run>> {
    let one = (1..2_000_u64, 0..4_u32, 0..3_000_u64, 0..3_000_u64);
    (0..5_000_u64, proptest::collection::vec(one, 0..20)).prop_map(|(mut at, runs)| {
        let runs = runs.into_iter().map(|(length, tid, stolen, interrupted)| {
            let from = at;
            at += length;
            Run {
                stolen: Nanos(stolen),
                interrupted: Nanos(interrupted),
                group: 0,
                policy: PolicyNumber::NORMAL,
                ..run(from, at, tid, "x")
            }
        });
        runs.collect()
    })
}

proptest! {
    #[test]
    fn the_causes_of_a_wait_sum_to_its_length(
        from in 0..10_000_u64, length in 0..20_000_u64, runs in runs(),
        reservation in 0..30_000_u64, quota in 0..30_000_u64,
    ) {
        let late = LateWait {
            reservation: Nanos(reservation),
            quota: Nanos(quota),
            ..wait(from, from + length, runs)
        };
        let division = divide(&late, |tid| Some(tid.to_string()));
        let sum: u64 = division.causes.values().map(|time| time.0).sum();
        prop_assert_eq!(sum, length);
        let named: u64 = division.others.iter().map(|(_, time)| time.0).sum();
        let others = division.causes.get(&Cause::Others).map_or(0, |time| time.0);
        prop_assert_eq!(named, others, "three threads alone, so all have names");
    }
}

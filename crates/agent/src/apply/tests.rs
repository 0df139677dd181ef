use super::super::testing::{Fake, cpus, desired, id, machine, next, periodic};
use super::super::{Aperiodic, Class};
use super::*;
use crate::desired::Desired;
use crate::guest::WeightBearer;
use crate::plan::plan;
use proptest::prelude::*;
use std::path::PathBuf;
use tailbound_units::Nanos;

struct Bench {
    kernel: Fake,
    journal: Journal,
    state: PathBuf,
    _directory: tempfile::TempDir,
}

fn bench(kernel: Fake) -> Bench {
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("run/vcpu.json");
    Bench {
        kernel,
        journal: Journal::open(&state).unwrap(),
        state,
        _directory: directory,
    }
}

impl Bench {
    fn plan(&self, desired: &[Desired]) -> Plan {
        let originals = self.journal.changes().originals();
        plan(desired, &self.kernel.observe(machine()), &originals).unwrap()
    }
    fn apply(&mut self, plan: &Plan) -> Result<ApplyResult, ApplyError> {
        apply(&mut self.kernel, &mut self.journal, plan)
    }
    fn restore(&mut self) -> Restored {
        restore(&mut self.kernel, &mut self.journal, |_| true).unwrap()
    }
}

/// Threads of every class, one pinned, one in a group of its guest's.
fn mixed() -> (Fake, Vec<Desired>) {
    let mut kernel = Fake::new(1..=5);
    kernel.threads.get_mut(&id(2)).unwrap().cpus = cpus("1");
    kernel.groups.insert("vm".into(), 100);
    let mut desired = vec![
        desired(1, periodic(500, 3000)),
        desired(2, periodic(500, 3000)),
        desired(3, Class::Aperiodic(Aperiodic::default())),
        desired(4, Class::Aperiodic(Aperiodic::default())),
        desired(5, Class::Normal),
    ];
    desired[3].weighed = WeightBearer::Group("vm".into());
    (kernel, desired)
}

#[test]
fn any_process_with_the_state_restores_applied_changes() {
    let (kernel, desired) = mixed();
    let before = kernel.clone();
    let mut bench = bench(kernel);
    let plan = bench.plan(&desired);
    assert_eq!(bench.apply(&plan).unwrap().changed, 5);
    assert_eq!(bench.kernel.groups[&PathBuf::from("vm")], 1000);
    assert!(bench.plan(&desired).is_empty(), "nothing is left to do");

    // Another process, after a crash of this one.
    drop(bench.journal);
    bench.journal = Journal::open(&bench.state).unwrap();
    let restored = bench.restore();
    assert_eq!((restored.restored, restored.drifted.len()), (5, 0));
    assert_eq!(bench.kernel.threads, before.threads);
    assert_eq!(bench.kernel.groups, before.groups);
    assert!(!bench.state.exists());
}

#[test]
fn a_crash_between_any_two_calls_can_be_restored() {
    let (kernel, desired) = mixed();
    for calls in 0.. {
        let mut bench = bench(kernel.clone());
        let plan = bench.plan(&desired);
        bench.journal.update(|changes| changes.add(&plan)).unwrap();
        let all: Vec<_> = plan
            .threads
            .iter()
            .flat_map(|step| step.calls().into_iter().map(|call| (step.thread, call)))
            .collect();
        for (thread, call) in all.iter().take(calls) {
            bench.kernel.call(*thread, call).unwrap();
        }
        bench.restore();
        assert_eq!(bench.kernel.threads, kernel.threads, "after {calls} calls");
        if calls == all.len() {
            break;
        }
    }
}

#[test]
fn each_change_starts_from_the_original_and_normal_returns_to_it() {
    let (kernel, _) = mixed();
    let original = kernel.threads.clone();
    let mut bench = bench(kernel);
    for class in [
        periodic(500, 3000),
        Class::Aperiodic(Aperiodic::default()),
        periodic(1000, 4000),
    ] {
        let plan = bench.plan(&[desired(2, class)]);
        bench.apply(&plan).unwrap();
    }
    let plan = bench.plan(&[desired(2, Class::Normal)]);
    bench.apply(&plan).unwrap();
    assert_eq!(bench.kernel.threads, original);
    assert!(!bench.state.exists(), "nothing is left to restore");
}

#[test]
fn a_thread_with_a_reused_tid_keeps_no_scheduling_class() {
    let (kernel, desired) = mixed();
    for reused in 0..16 {
        for tid in 1..=5 {
            let mut bench = bench(kernel.clone());
            let plan = bench.plan(&desired);
            (bench.kernel.ends, bench.kernel.reuses) = (Some((reused, id(tid))), true);
            let calls = bench.kernel.calls;
            bench.apply(&plan).unwrap();
            if bench.kernel.threads.contains_key(&id(tid)) {
                assert!(bench.kernel.calls - calls <= reused, "it did not end");
                continue;
            }
            let successor = next(id(tid));
            let seen = &bench.kernel.threads[&successor];
            assert_eq!(
                seen.scheduling,
                Scheduling::PLAIN,
                "call {reused}, thread {tid}"
            );
            bench.restore();
            let seen = &bench.kernel.threads[&successor];
            assert_eq!(
                seen.scheduling,
                Scheduling::PLAIN,
                "call {reused}, thread {tid}"
            );
        }
    }
}

#[test]
fn a_thread_that_ends_meanwhile_is_passed_over() {
    let (mut kernel, desired) = mixed();
    for call in 0..6 {
        kernel.ends = Some((call, id(2)));
        let mut bench = bench(kernel.clone());
        let plan = bench.plan(&desired);
        let applied = bench.apply(&plan).unwrap();
        let ended = !bench.kernel.threads.contains_key(&id(2));
        // At its own calls it is reported; before the plan gets there, too.
        assert!(ended, "call {call}");
        assert!(bench.kernel.threads[&id(1)].scheduling.is_deadline());
        assert!(applied.exited.len() <= 1);
        assert_eq!(bench.restore().restored, 4);
    }
}

#[test]
fn restore_keeps_values_that_others_changed_since() {
    let (kernel, desired) = mixed();
    let mut bench = bench(kernel);
    let plan = bench.plan(&desired);
    bench.apply(&plan).unwrap();
    let theirs = Scheduling {
        nice: 7,
        ..Scheduling::PLAIN
    };
    bench.kernel.threads.get_mut(&id(3)).unwrap().scheduling = theirs;
    bench.kernel.groups.insert("vm".into(), 300);
    let restored = bench.restore();
    assert_eq!(restored.drifted.len(), 2, "{restored:?}");
    assert_eq!(bench.kernel.threads[&id(3)].scheduling, theirs);
    assert_eq!(bench.kernel.groups[&PathBuf::from("vm")], 300);
}

#[test]
fn a_state_in_use_and_one_of_another_kind_are_refused() {
    let mut bench = bench(Fake::new([1]));
    let busy = Journal::open(&bench.state).unwrap_err();
    assert!(busy.to_string().contains("in use"), "{busy}");
    let plan = bench.plan(&[desired(1, periodic(500, 3000))]);
    bench.apply(&plan).unwrap();
    let Bench { journal, state, .. } = bench;
    drop(journal);
    std::fs::write(&state, "{\"schema\": 9}").unwrap();
    let other = Journal::open(&state).unwrap_err();
    assert!(other.to_string().contains("not a state"), "{other}");
}

#[test]
fn each_errno_is_explained() {
    let step = Call::Schedule(Scheduling {
        policy: tailbound_sys::thread::PolicyNumber::DEADLINE,
        runtime: Nanos(2000),
        deadline: Nanos(3000),
        period: Nanos(3000),
        ..Scheduling::PLAIN
    });
    for (errno, word) in [
        (Errno::PERM, "root domain"),
        (Errno::BUSY, "bandwidth"),
        (Errno::INVAL, "parameters"),
    ] {
        let text = explain(Some(&step), &errno.into());
        assert!(text.contains(word), "{text}");
    }
    let share = Call::Schedule(Scheduling::PLAIN);
    assert!(explain(Some(&share), &Errno::PERM.into()).contains("CAP_SYS_NICE"));
}

proptest! {
    /// After a failure of any call with any error, no change stays half applied.
    #[test]
    fn a_step_that_fails_undoes_those_before_it(at in 0usize..6, errno in prop::sample::select(vec![1, 16, 22])) {
        let (mut kernel, desired) = mixed();
        let before = kernel.clone();
        kernel.fails = Some((at, errno));
        let mut bench = bench(kernel);
        let plan = bench.plan(&desired);
        let error = bench.apply(&plan).unwrap_err();
        prop_assert!(error.to_string().contains("everything is as it was before"), "{}", error);
        prop_assert_eq!(&bench.kernel.threads, &before.threads);
        prop_assert_eq!(&bench.kernel.groups, &before.groups);
        prop_assert!(!bench.state.exists());
    }
}

//! The vCPU agent on real threads.

#[path = "threads/group.rs"]
mod group;
#[path = "threads/guest.rs"]
mod guest;
#[path = "threads/others.rs"]
mod others;

use group::Grouped;
use guest::FakeGuest;
use others::{Claimer, Computing, Sleeper};
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tailbound_agent::meters::{Group, MeterKey};
use tailbound_agent::watch::Watcher;
use tailbound_agent::{
    Agent, AgentConfig, AgentError, Aperiodic, Class, Desired, Excess, Periodic,
};
use tailbound_sys::cpuset::{Cpus, affinity, set_affinity};
use tailbound_sys::probe::required::{Part, skipped};
use tailbound_sys::sched::{self, Deadline, Policy};
use tailbound_sys::thread::{PolicyNumber, Scheduling, ThreadId, scheduling, set_scheduling};
use tailbound_units::Nanos;

struct Bench {
    agent: Agent,
    state: PathBuf,
    _directory: tempfile::TempDir,
}

fn bench() -> Bench {
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("vcpu.json");
    Bench {
        agent: Agent::open(&state).unwrap(),
        state,
        _directory: directory,
    }
}

const SMALL: Periodic = Periodic {
    runtime: Nanos::from_micros(200),
    deadline: Nanos::from_millis(10),
    period: Nanos::from_millis(20),
};

/// The machine's bandwidth is one for all tests.
static BANDWIDTH: Mutex<()> = Mutex::new(());

/// Deadlines, for one test at a time; `None`, with a message, if they are unavailable.
fn deadlines() -> Option<MutexGuard<'static, ()>> {
    let guard = BANDWIDTH.lock().unwrap_or_else(PoisonError::into_inner);
    let wanted = Policy::Deadline(Deadline::from(SMALL));
    match sched::probe(wanted) {
        Ok(()) => Some(guard),
        Err(error) => {
            skipped(Part::SchedDeadline, error);
            None
        }
    }
}

#[test]
fn a_reservation_is_applied_read_back_and_restored() {
    let Some(_bandwidth) = deadlines() else {
        return;
    };
    let mut bench = bench();
    let sleeper = Sleeper::start();
    let one = Cpus::one(affinity(0).unwrap().iter().next().unwrap());
    set_affinity(sleeper.id.tid, &one).unwrap();
    let nice = Scheduling {
        nice: 3,
        ..Scheduling::PLAIN
    };
    set_scheduling(sleeper.id.tid, &nice).unwrap();
    let before = sleeper.scheduling();

    let plan = bench
        .agent
        .plan(&[sleeper.desired(Class::Periodic(SMALL))])
        .unwrap();
    assert_eq!(sleeper.scheduling(), before, "a plan changes nothing");
    assert!(!bench.state.exists());
    assert_eq!(bench.agent.apply(&plan).unwrap().changed, 1);
    let seen = sleeper.scheduling();
    assert_eq!(seen.policy, PolicyNumber::DEADLINE);
    assert_eq!((seen.runtime, seen.period), (SMALL.runtime, SMALL.period));
    assert!(bench.state.exists());
    let again = bench
        .agent
        .plan(&[sleeper.desired(Class::Periodic(SMALL))])
        .unwrap();
    assert!(again.is_empty(), "{again}");

    let restored = bench.agent.restore().unwrap();
    assert_eq!(
        (restored.restored, restored.drifted.len()),
        (1, 0),
        "{restored:?}"
    );
    assert_eq!(sleeper.scheduling(), before);
    assert_eq!(affinity(sleeper.id.tid).unwrap(), one);
    assert!(!bench.state.exists());
}

#[test]
fn reclaiming_is_applied_and_restored() {
    let Some(_bandwidth) = deadlines() else {
        return;
    };
    let mut bench = bench();
    let sleeper = Sleeper::start();
    let before = sleeper.scheduling();
    let with = |longest| Desired {
        excess: Excess::Reclaim {
            longest: Nanos::from_secs(longest),
        },
        ..sleeper.desired(Class::Periodic(SMALL))
    };
    let plan = bench.agent.plan(&[with(3600)]).unwrap();
    let price = "it may run for";
    assert!(plan.notes.iter().any(|note| note.contains(price)), "{plan}");
    assert_eq!(bench.agent.apply(&plan).unwrap().changed, 1);
    let seen = sleeper.scheduling();
    assert_eq!(seen.flags & Scheduling::RECLAIM, Scheduling::RECLAIM);
    assert!(bench.agent.plan(&[with(3600)]).unwrap().is_empty());
    assert!(bench.agent.plan(&[with(0)]).is_err());
    // Without it, it is taken away.
    let without = sleeper.desired(Class::Periodic(SMALL));
    let plan = bench.agent.plan(&[without]).unwrap();
    assert_eq!(bench.agent.apply(&plan).unwrap().changed, 1);
    assert_eq!(sleeper.scheduling().flags & Scheduling::RECLAIM, 0);
    bench.agent.restore().unwrap();
    assert_eq!(sleeper.scheduling(), before);
}

#[test]
fn the_aperiodic_class_uses_custom_slices_if_available() {
    let mut bench = bench();
    let sleeper = Sleeper::start();
    let class = Class::Aperiodic(Aperiodic {
        weight: 1,
        ..Aperiodic::default()
    });
    let plan = bench.agent.plan(&[sleeper.desired(class)]).unwrap();
    bench.agent.apply(&plan).unwrap();
    let odd = Nanos::from_micros(300);
    if sched::probe_slice(odd).is_ok_and(|seen| seen == odd) {
        assert_eq!(sleeper.scheduling().runtime, Aperiodic::default().slice);
        // This test itself may run under a quota, and on a kernel whose ticks end slices.
        let known = ["a CPU quota of ", "ticks end time slices here"];
        let other = |note: &&String| !known.iter().any(|it| note.starts_with(it));
        assert_eq!(plan.notes.iter().find(other), None);
    } else {
        skipped(
            Part::CustomSlice,
            "this kernel has no time slices of a thread's own",
        );
        assert_eq!(plan.notes.len(), 1);
    }
    assert_eq!(bench.agent.restore().unwrap().restored, 1);
}

#[test]
fn apply_reports_exited_threads_and_changes_the_others() {
    let mut bench = bench();
    let (mut dying, staying) = (Sleeper::start(), Sleeper::start());
    let class = Class::Aperiodic(Aperiodic {
        weight: 1,
        ..Aperiodic::default()
    });
    let desired = [dying.desired(class), staying.desired(class)];
    let plan = bench.agent.plan(&desired).unwrap();
    dying.stop();
    let applied = bench.agent.apply(&plan).unwrap();
    assert_eq!((applied.changed, applied.exited.len()), (1, 1));
    let restored = bench.agent.restore().unwrap();
    assert_eq!((restored.restored, restored.exited), (1, 1));
}

#[test]
fn a_number_that_is_used_again_is_not_touched() {
    let mut bench = bench();
    let sleeper = Sleeper::start();
    let before = sleeper.scheduling();
    let former = ThreadId {
        start: sleeper.id.start - 1,
        ..sleeper.id
    };
    let class = Class::Aperiodic(Aperiodic {
        weight: 1,
        ..Aperiodic::default()
    });
    // The one that was seen has ended; another has its number now.
    let mut plan = bench.agent.plan(&[sleeper.desired(class)]).unwrap();
    plan.threads[0].thread = former;
    let applied = bench.agent.apply(&plan).unwrap();
    assert_eq!((applied.changed, applied.exited.len()), (0, 1));
    assert_eq!(bench.agent.restore().unwrap().exited, 1);
    assert_eq!(sleeper.scheduling(), before);
}

/// The thread had used up its reservation when it was restored, as a computing thread nearly always
/// has.
#[test]
fn a_thread_that_is_put_back_and_reserved_for_again_goes_on() {
    let Some(_bandwidth) = deadlines() else {
        return;
    };
    let mut bench = bench();
    let computing = Computing::start();
    let thread = tailbound_agent::thread(computing.0.id()).unwrap();
    let desired = [Desired::new(thread, Class::Periodic(SMALL))];
    for _ in 0..3 {
        let plan = bench.agent.plan(&desired).unwrap();
        assert_eq!(bench.agent.apply(&plan).unwrap().changed, 1);
        assert!(computing.goes_on(), "it has a reservation");
        assert_eq!(bench.agent.restore().unwrap().restored, 1);
        // What it has exceeded its runtime by, up to a tick and what the hypervisor took, is worked
        // off at a hundredth of a CPU. Before that the kernel may still forget it.
        std::thread::sleep(Duration::from_secs(3));
    }
}

#[test]
fn more_than_the_machine_has_is_refused_by_us_and_by_the_kernel_alike() {
    let Some(_bandwidth) = deadlines() else {
        return;
    };
    let mut bench = bench();
    let count = affinity(0).unwrap().count();
    let sleepers: Vec<_> = (0..=count).map(|_| Sleeper::start()).collect();
    let all = Class::Periodic(Periodic {
        runtime: Nanos::from_millis(95),
        deadline: Nanos::from_millis(100),
        period: Nanos::from_millis(100),
    });
    let desired: Vec<_> = sleepers
        .iter()
        .map(|sleeper| sleeper.desired(all))
        .collect();
    let refused = bench.agent.plan(&desired).unwrap_err();
    assert!(matches!(refused, AgentError::Plan(_)), "{refused}");
    assert!(refused.to_string().contains("would pass"), "{refused}");
    assert!(!bench.state.exists());

    // A machine without limits would have made this plan; this one's kernel says
    // no at some thread, and then none of them keeps anything.
    let one = [sleepers[0].desired(all)];
    let mut plan = match bench.agent.plan(&one) {
        Ok(plan) => plan,
        Err(error) => {
            let why = format!("others have reservations here: {error}");
            return skipped(Part::SchedDeadline, why);
        }
    };
    let step = plan.threads[0].clone();
    plan.threads = sleepers
        .iter()
        .map(|sleeper| tailbound_agent::step::ThreadStep {
            thread: sleeper.id,
            ..step.clone()
        })
        .collect();
    let error = bench.agent.apply(&plan).unwrap_err().to_string();
    assert!(error.contains("EBUSY"), "{error}");
    assert!(error.contains("everything is as it was before"), "{error}");
    for sleeper in &sleepers {
        assert_eq!(sleeper.scheduling().policy, PolicyNumber::NORMAL);
    }
    assert!(!bench.state.exists());
    // What was booked meanwhile is free again.
    let again = bench.agent.plan(&one).unwrap();
    bench.agent.apply(&again).unwrap();
    bench.agent.restore().unwrap();
}

#[test]
fn a_missing_privilege_is_reported_before_any_change() {
    if rustix::process::geteuid().is_root() {
        as_ordinary_user("a_missing_privilege_is_reported_before_any_change");
        return;
    }
    let mut bench = bench();
    let sleeper = Sleeper::start();
    for class in [
        Class::Periodic(SMALL),
        Class::Aperiodic(Aperiodic::default()),
    ] {
        let refused = bench.agent.plan(&[sleeper.desired(class)]).unwrap_err();
        assert!(refused.to_string().contains("CAP_SYS_NICE"), "{refused}");
    }
    assert!(!bench.state.exists());
}

/// Runs one test of this file again as an unprivileged user.
fn as_ordinary_user(name: &str) {
    let run = Command::new("setpriv")
        .args([
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
            "--inh-caps=-all",
        ])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env("TMPDIR", "/tmp")
        .output();
    match run {
        Ok(output) if output.status.success() => {}
        Ok(output) if output.status.code() == Some(101) => {
            panic!(
                "{}",
                String::from_utf8_lossy(&[output.stdout, output.stderr].concat())
            );
        }
        Ok(output) => skipped(
            Part::OrdinaryUser,
            String::from_utf8_lossy(&output.stderr).trim(),
        ),
        Err(error) => {
            let why = format!("setpriv (util-linux) is missing: {error}");
            skipped(Part::OrdinaryUser, why);
        }
    }
}

fn vcpu_of(guest: &str, thread: &str) -> MeterKey {
    MeterKey {
        guest: guest.to_owned(),
        group: Group::Vcpu,
        thread: thread.to_owned(),
    }
}

fn config(bench: &Bench, rules: &str) -> AgentConfig {
    AgentConfig {
        state: bench.state.with_file_name("watch.json"),
        ..AgentConfig::parse(rules).unwrap()
    }
}

/// Not a test of its own: the process of the fake guests.
#[test]
fn fake_guest_process() {
    guest::fake_process();
}

#[test]
fn a_vcpu_that_is_plugged_in_gets_the_class_and_drift_is_changed_back() {
    let Some(_bandwidth) = deadlines() else {
        return;
    };
    let bench = bench();
    let mut guest = FakeGuest::start(2);
    let mut watcher = Watcher::open(config(&bench, &guest.rule())).unwrap();
    watcher.round();
    assert_eq!(guest.policies(), [PolicyNumber::DEADLINE; 2]);
    guest.plug();
    watcher.round();
    assert_eq!(guest.policies(), [PolicyNumber::DEADLINE; 3]);

    let theirs = Scheduling {
        nice: 9,
        ..Scheduling::PLAIN
    };
    let tid = guest.vcpus()[0];
    // Three times it is changed back, then it is theirs.
    for times in 1..=4 {
        set_scheduling(tid, &theirs).unwrap();
        watcher.round();
        let seen = scheduling(tid).unwrap();
        assert_eq!(seen.is_deadline(), times <= 3, "{times}: {seen}");
    }
    watcher.sample();
    watcher.sample();
    let snapshot = watcher.shared().lock().unwrap().clone();
    assert_eq!(snapshot.drift["fake"], 4);
    let meter = |thread: &str| &snapshot.meters[&vcpu_of("fake", thread)];
    assert!(meter("vcpu 1").in_force && meter("vcpu 2").in_force);
    assert_eq!(meter("vcpu 1").class, "periodic");

    // It ends, and another one is started; the first is forgotten.
    let ended = guest.rule();
    drop(guest);
    let guest = FakeGuest::start(1);
    watcher.reconfigure(config(&bench, &format!("{}{ended}", guest.rule())));
    watcher.round();
    assert_eq!(guest.policies(), [PolicyNumber::DEADLINE]);
    // Without a rule it is as it was.
    watcher.reconfigure(config(&bench, ""));
    watcher.round();
    assert_eq!(guest.policies(), [PolicyNumber::NORMAL]);
    assert_eq!(
        watcher.restore().unwrap(),
        tailbound_agent::Restored::default()
    );
}

#[test]
fn the_fourth_change_within_an_hour_stays_until_the_first_is_an_hour_old() {
    let Some(_bandwidth) = deadlines() else {
        return;
    };
    let bench = bench();
    let guest = FakeGuest::start(1);
    let tid = guest.vcpus()[0];
    let mut watcher = Watcher::open(config(&bench, &guest.rule())).unwrap();
    let mut round = |second| {
        watcher.round_at(Nanos::from_secs(second));
        scheduling(tid).unwrap().is_deadline()
    };
    let theirs = Scheduling {
        nice: 9,
        ..Scheduling::PLAIN
    };
    assert!(round(0));
    for (second, is_undone) in [
        (10, true),
        (20, true),
        (30, true),
        (40, false),
        (3_609, false),
        (3_610, true),
        // Once a week.
        (700_000, true),
        (1_400_000, true),
        (2_100_000, true),
        (2_800_000, true),
    ] {
        set_scheduling(tid, &theirs).unwrap();
        assert_eq!(round(second), is_undone, "second {second}");
    }
    watcher.restore().unwrap();
}

#[test]
fn a_guests_extra_threads_get_no_more_than_the_rules_budget() {
    let Some(_bandwidth) = deadlines() else {
        return;
    };
    let bench = bench();
    let mut guest = FakeGuest::start(1);
    let rule = format!("{}max_threads = 2\n", guest.rule());
    let mut watcher = Watcher::open(config(&bench, &rule)).unwrap();
    watcher.round();
    for _ in 0..6 {
        guest.plug();
    }
    watcher.round();
    watcher.round();
    let reserved = guest
        .policies()
        .iter()
        .filter(|p| **p == PolicyNumber::DEADLINE)
        .count();
    assert_eq!(reserved, 2);
    assert_eq!(
        guest.policies()[0],
        PolicyNumber::DEADLINE,
        "who had it keeps it"
    );
    let errors = watcher.shared().lock().unwrap().errors.clone();
    assert_eq!(errors["fake"], 2, "once a round");
    assert_eq!(watcher.restore().unwrap().restored, 2);
}

#[test]
fn a_process_of_another_user_gets_no_class_by_calling_itself_a_guest() {
    let own = rustix::process::geteuid().as_raw();
    let bench = bench();
    let (mine, theirs) = ("identity-mine", "identity-theirs");
    // Root can start somebody else's; anybody can be somebody else to a rule.
    let (other, rule) = if own == 0 {
        (65534, String::new())
    } else {
        (own, format!("uid = {}\n", own + 1))
    };
    let (first, second) = (Claimer::start(mine, own), Claimer::start(theirs, other));
    let class = "helpers = { kind = \"aperiodic\", weight = 1 }\n\
        class = { kind = \"aperiodic\", weight = 1 }\n";
    let rules = format!(
        "[[guest]]\nname = \"{mine}\"\n{class}[[guest]]\nname = \"{theirs}\"\n{rule}{class}"
    );
    let mut watcher = Watcher::open(config(&bench, &rules)).unwrap();
    watcher.round();
    let picked = |claimer: &Claimer| {
        let guests = watcher.guests().iter();
        let mut found = guests.filter(|guest| guest.pid == claimer.0.id());
        found.next().map(|guest| guest.rule)
    };
    assert_eq!(picked(&first), Some(Some(0)));
    assert_eq!(picked(&second), Some(None));
    // Nor does he get a place in the metrics.
    watcher.sample();
    let shared = watcher.shared();
    let metered = |name: &str| {
        shared
            .lock()
            .unwrap()
            .meters
            .keys()
            .any(|key| key.guest == name)
    };
    assert!(metered(mine) && !metered(theirs));
    let seen = |claimer: &Claimer| scheduling(claimer.0.id()).unwrap();
    assert_eq!(seen(&second), scheduling(std::process::id()).unwrap());
    if seen(&first) == seen(&second) {
        skipped(
            Part::CustomSlice,
            "this kernel has no time slices of a thread's own",
        );
    }
    watcher.restore().unwrap();
}

#[test]
fn a_guest_in_groups_of_its_own_gets_the_weight_at_the_outermost() {
    for inner in ["", "inner"] {
        let bench = bench();
        let Some(grouped) = Grouped::start(inner) else {
            return;
        };
        let before = grouped.weight();
        let guest = grouped.process.as_ref().unwrap();
        let nice = || scheduling(guest.vcpus()[0]).unwrap().nice;
        let nice_before = nice();
        let mut watcher = Watcher::open(config(&bench, &grouped.rule())).unwrap();
        watcher.round();
        assert_eq!(grouped.weight(), 10 * before, "{inner}");
        assert_eq!(nice(), nice_before);
        watcher.reconfigure(config(&bench, ""));
        watcher.round();
        assert_eq!(grouped.weight(), before);
        watcher.restore().unwrap();
    }
}

#[test]
fn a_changed_weight_is_reset_three_times() {
    let bench = bench();
    let Some(grouped) = Grouped::start("") else {
        return;
    };
    let before = grouped.weight();
    let mut watcher = Watcher::open(config(&bench, &grouped.rule())).unwrap();
    watcher.round();
    let theirs = before / 2;
    for times in 1..=4 {
        std::fs::write(grouped.file(), theirs.to_string()).unwrap();
        for _ in 0..2 {
            watcher.round();
            let expected = if times <= 3 { 10 * before } else { theirs };
            assert_eq!(grouped.weight(), expected, "{times}");
        }
    }
    let shared = watcher.shared();
    assert_eq!(shared.lock().unwrap().drift["grouped"], 4);
    let meters = shared.lock().unwrap().meters.clone();
    assert!(!meters[&vcpu_of("grouped", "vcpu 0")].in_force);
    // Theirs stays theirs.
    watcher.restore().unwrap();
    assert_eq!(grouped.weight(), theirs);
}

#[test]
fn a_weight_moves_to_the_inner_group_when_others_join() {
    let bench = bench();
    let Some(grouped) = Grouped::start("inner") else {
        return;
    };
    let before = grouped.weight();
    let mut watcher = Watcher::open(config(&bench, &grouped.rule())).unwrap();
    watcher.round();
    assert_eq!(grouped.weight(), 10 * before);
    let sibling = grouped.directory.join("sibling");
    std::fs::create_dir(&sibling).unwrap();
    let other = FakeGuest::start(0);
    std::fs::write(sibling.join("cgroup.procs"), other.process.id().to_string()).unwrap();
    watcher.round();
    let inner = grouped.inner.join(grouped.file().file_name().unwrap());
    let weight = |file: &PathBuf| std::fs::read_to_string(file).unwrap().trim().to_owned();
    assert_eq!(grouped.weight(), before);
    assert_eq!(weight(&inner), (10 * before).to_string());
    watcher.restore().unwrap();
    assert_eq!(weight(&inner), before.to_string());
    drop(other);
    let _ = std::fs::remove_dir(&sibling);
}

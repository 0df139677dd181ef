//! A thread that the kernel does not run in its reservation, on this machine's kernel.

use std::process::{Child, Command};
use std::time::{Duration, Instant};
use tailbound_agent::AgentConfig;
use tailbound_agent::watch::Watcher;
use tailbound_sys::probe::required::{Part, skipped};
use tailbound_sys::root::Root;
use tailbound_sys::sched::{self, Deadline, Policy};
use tailbound_sys::thread::{NOTHING, PolicyNumber, Scheduling, Tasks, scheduling, set_scheduling};
use tailbound_units::Nanos;

const RESERVATION: Scheduling = Scheduling {
    policy: PolicyNumber::DEADLINE,
    runtime: Nanos::from_millis(1),
    deadline: Nanos::from_millis(10),
    period: Nanos::from_millis(10),
    ..Scheduling::PLAIN
};

/// Time limit of each wait.
const STEP_TIMEOUT: Duration = Duration::from_mins(1);

/// A process that never sleeps.
struct Spinner(Child);

impl Spinner {
    fn start() -> Self {
        let spin = ["-c", "while :; do :; done"];
        Self(Command::new("sh").args(spin).spawn().unwrap())
    }

    fn run(&self) -> Nanos {
        let pid = self.0.id();
        let tasks = Tasks::open(&Root::default(), pid).unwrap();
        tasks.schedstat(pid).unwrap().unwrap().run
    }

    /// Returns true if it does not run for a second.
    fn stands(&self) -> bool {
        let before = self.run();
        std::thread::sleep(Duration::from_secs(1));
        self.run() == before
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        // One that stands still does not end, either.
        let _ = set_scheduling(self.0.id(), &Scheduling::PLAIN);
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn can_reserve() -> bool {
    let wanted = Policy::Deadline(Deadline {
        runtime: RESERVATION.runtime,
        deadline: RESERVATION.deadline,
        period: RESERVATION.period,
    });
    let probed = sched::probe(wanted);
    if let Err(error) = &probed {
        skipped(Part::SchedDeadline, error);
    }
    probed.is_ok()
}

fn watcher(directory: &std::path::Path, guest: &Spinner) -> Watcher {
    let rule = format!(
        "[[guest]]\npid = {}\nlabel = \"spins\"\nclass = {{ kind = \"periodic\", runtime = \"1ms\", \
         deadline = \"10ms\", period = \"10ms\" }}\n",
        guest.0.id()
    );
    Watcher::open(AgentConfig {
        state: directory.join("state.json"),
        bpf: false,
        ..AgentConfig::parse(&rule).unwrap()
    })
    .unwrap()
}

fn stood(watcher: &Watcher) -> u64 {
    let shared = watcher.shared();
    let snapshot = shared.lock().unwrap();
    snapshot.standstills.get("spins").copied().unwrap_or(0)
}

#[test]
fn a_guest_that_always_uses_its_reservation_is_no_standstill() {
    if !can_reserve() {
        return;
    }
    let (directory, guest) = (tempfile::tempdir().unwrap(), Spinner::start());
    let mut watcher = watcher(directory.path(), &guest);
    for _ in 0..40 {
        watcher.round();
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(scheduling(guest.0.id()).unwrap().is_deadline());
    assert_eq!(stood(&watcher), 0);
    watcher.restore().unwrap();
}

/// A watcher, and a guest that gets a reservation while it is in debt in a tiny one: Linux 6.18 no
/// longer runs it.
fn in_debt(directory: &std::path::Path) -> (Spinner, Watcher) {
    let guest = Spinner::start();
    let mut watcher = watcher(directory, &guest);
    watcher.round();
    for theirs in [&NOTHING, &Scheduling::PLAIN] {
        set_scheduling(guest.0.id(), theirs).unwrap();
        std::thread::sleep(Duration::from_millis(50));
    }
    watcher.round();
    assert!(scheduling(guest.0.id()).unwrap().is_deadline());
    (guest, watcher)
}

#[test]
fn a_guest_at_standstill_runs_again_without_its_class() {
    if !can_reserve() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let (guest, mut watcher) = in_debt(directory.path());
    let is_standing = guest.stands();
    println!("this kernel lets it stand still: {is_standing}");
    let begin = Instant::now();
    while is_standing && stood(&watcher) == 0 {
        assert!(begin.elapsed() < STEP_TIMEOUT, "it was not seen");
        watcher.round();
        std::thread::sleep(Duration::from_millis(100));
    }
    while guest.stands() {
        assert!(begin.elapsed() < STEP_TIMEOUT, "it stands still");
    }
    if is_standing {
        let policy = scheduling(guest.0.id()).unwrap().policy;
        assert_eq!(policy, PolicyNumber::NORMAL);
        watcher.round();
        let shared = watcher.shared();
        let snapshot = shared.lock().unwrap().clone();
        assert!(snapshot.meters.values().all(|meter| !meter.in_force));
        assert_eq!(snapshot.errors.get("spins"), None);
    }
    watcher.restore().unwrap();
}

#[test]
#[ignore = "some minutes"]
fn a_recovered_guest_runs_in_its_reservation_again() {
    if !can_reserve() {
        return;
    }
    let (directory, guest) = (tempfile::tempdir().unwrap(), Spinner::start());
    let pid = guest.0.id();
    let mut watcher = watcher(directory.path(), &guest);
    watcher.round();
    // Given again at once while it is in debt in its own reservation: lost now and then.
    let given = scheduling(pid).unwrap();
    let lost = (1..=200).find(|_| {
        set_scheduling(pid, &Scheduling::PLAIN).unwrap();
        set_scheduling(pid, &given).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        let before = guest.run();
        std::thread::sleep(Duration::from_millis(100));
        guest.run() == before && guest.stands()
    });
    println!("lost at try {lost:?} of 200");
    if lost.is_none() {
        watcher.restore().unwrap();
        return;
    }
    let begin = Instant::now();
    let mut good = 0;
    // Ten seconds in which it runs in it.
    while good < 10 {
        assert!(
            begin.elapsed() < Duration::from_mins(3),
            "it is lost for good"
        );
        watcher.round();
        let is_reserved = scheduling(pid).unwrap().is_deadline();
        let runs = !guest.stands();
        good = if is_reserved && runs { good + 1 } else { 0 };
    }
    let (stood, seconds) = (stood(&watcher), begin.elapsed().as_secs());
    println!("it stood still {stood} times, and runs in its reservation after {seconds} s");
    watcher.restore().unwrap();
}

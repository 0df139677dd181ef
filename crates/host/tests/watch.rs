//! `tailbound vcpu watch` as a process: the state after it is killed, and after it ends on request.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tailbound_agent::{Agent, ConfigSource, Periodic};
use tailbound_host::watch_vcpus;
use tailbound_sys::probe::required::{Part, skipped};
use tailbound_sys::sched::{self, Deadline, Policy};
use tailbound_sys::thread::{PolicyNumber, scheduling};
use tailbound_units::Nanos;

const SMALL: Periodic = Periodic {
    runtime: Nanos::from_micros(200),
    deadline: Nanos::from_millis(10),
    period: Nanos::from_millis(20),
};

/// Deadline bandwidth is shared by all tests.
static BANDWIDTH: Mutex<()> = Mutex::new(());

/// Locks deadline scheduling for one test; `None`, with a line of output, if it is unavailable.
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

/// Two processes that sleep.
struct Guests([Child; 2]);

impl Guests {
    fn start() -> Self {
        Self([(); 2].map(|()| Command::new("sleep").arg("600").spawn().unwrap()))
    }

    fn policies(&self) -> [PolicyNumber; 2] {
        let policy = |guest: &Child| scheduling(guest.id()).unwrap().policy;
        self.0.each_ref().map(policy)
    }

    fn rules(&self) -> String {
        let rule = |guest: &Child| {
            format!(
                "[[guest]]\npid = {}\nclass = {{ kind = \"periodic\", runtime = \"200us\", \
                 deadline = \"10ms\", period = \"20ms\" }}\n",
                guest.id()
            )
        };
        self.0.each_ref().map(rule).concat()
    }
}

impl Drop for Guests {
    fn drop(&mut self) {
        for guest in &mut self.0 {
            let _ = guest.kill();
            let _ = guest.wait();
        }
    }
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let patience = Instant::now() + Duration::from_secs(20);
    while !done() {
        assert!(Instant::now() < patience, "{what} did not come");
        std::thread::sleep(Duration::from_millis(5));
    }
}

const WATCHER: &str = "TAILBOUND_TEST_WATCHER";

/// Not a test of its own: the process of the watchers below.
#[test]
fn watcher_process() {
    let Some(file) = std::env::var_os(WATCHER) else {
        return;
    };
    let source = ConfigSource::File(file.into());
    watch_vcpus(&source, None).unwrap();
}

fn state(directory: &Path) -> PathBuf {
    directory.join("w.json")
}

fn watcher(directory: &Path, rules: &str) -> Child {
    let file = directory.join("vcpu.toml");
    let state = format!(
        "state = \"{}\"\nevery = \"20ms\"\n",
        state(directory).display()
    );
    std::fs::write(&file, state + rules).unwrap();
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "watcher_process"])
        .env(WATCHER, file)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn settings_left_by_a_killed_watcher_are_restored() {
    let Some(_bandwidth) = deadlines() else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let guests = Guests::start();
    let state = state(directory.path());
    for by_hand in [true, false] {
        let mut process = watcher(directory.path(), &guests.rules());
        until("the class", || {
            guests.policies() == [PolicyNumber::DEADLINE; 2]
        });
        let busy = Agent::open(&state).unwrap_err();
        assert!(busy.to_string().contains("in use"), "{busy}");
        process.kill().unwrap();
        process.wait().unwrap();
        assert_eq!(guests.policies(), [PolicyNumber::DEADLINE; 2]);
        if by_hand {
            let restored = Agent::open(&state).unwrap().restore().unwrap();
            assert_eq!(restored.restored, 2, "{restored:?}");
        } else {
            let mut process = watcher(directory.path(), "");
            until("the restoration", || {
                guests.policies() == [PolicyNumber::NORMAL; 2]
            });
            terminate(&mut process);
        }
        assert_eq!(guests.policies(), [PolicyNumber::NORMAL; 2]);
    }
}

#[test]
fn a_watcher_that_is_asked_to_end_restores_everything() {
    let Some(_bandwidth) = deadlines() else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let guests = Guests::start();
    let mut process = watcher(directory.path(), &guests.rules());
    until("the class", || {
        guests.policies() == [PolicyNumber::DEADLINE; 2]
    });
    terminate(&mut process);
    assert_eq!(guests.policies(), [PolicyNumber::NORMAL; 2]);
    assert!(!state(directory.path()).exists());
}

fn terminate(process: &mut Child) {
    let pid = rustix::process::Pid::from_child(process);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(process.wait().unwrap().success());
}

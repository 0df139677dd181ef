//! The vCPU agent on real threads.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use tailbound_host::vcpu::plan::Wish;
use tailbound_host::vcpu::{self, Agent, Class, Periodic};
use tailbound_sys::cpuset::{Cpus, affinity, set_affinity};
use tailbound_sys::sched::{self, Deadline, Policy};
use tailbound_sys::thread::{PolicyNumber, Scheduling, ThreadId, scheduling, set_scheduling};
use tailbound_units::Nanos;

/// A thread that sleeps until it is dropped.
struct Sleeper {
    id: ThreadId,
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Sleeper {
    fn start() -> Self {
        let (tell, hear) = channel();
        let (end, wait): (Sender<()>, Receiver<()>) = channel();
        let thread = std::thread::spawn(move || {
            let tid = rustix::thread::gettid().as_raw_nonzero().get();
            tell.send(tid.cast_unsigned()).unwrap();
            let _ = wait.recv();
        });
        Self {
            id: vcpu::thread(hear.recv().unwrap()).unwrap(),
            end: Some(end),
            thread: Some(thread),
        }
    }
    fn stop(&mut self) {
        self.end = None;
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
    fn scheduling(&self) -> Scheduling {
        scheduling(self.id.tid).unwrap()
    }
    fn wish(&self, class: Class) -> Wish {
        vcpu::wish(self.id, class)
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        self.stop();
    }
}

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

/// Whether deadlines can be had here; says so where not.
fn deadlines() -> bool {
    let wanted = Policy::Deadline(Deadline::from(SMALL));
    match sched::probe(wanted) {
        Ok(()) => true,
        Err(error) => {
            println!("skipped: SCHED_DEADLINE is not available here: {error}");
            false
        }
    }
}

#[test]
fn a_reservation_is_applied_read_back_and_restored() {
    if !deadlines() {
        return;
    }
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
        .plan(&[sleeper.wish(Class::Periodic(SMALL))])
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
        .plan(&[sleeper.wish(Class::Periodic(SMALL))])
        .unwrap();
    assert!(again.is_empty(), "{again}");

    let restored = bench.agent.restore().unwrap();
    assert_eq!(
        (restored.restored, restored.left.len()),
        (1, 0),
        "{restored:?}"
    );
    assert_eq!(sleeper.scheduling(), before);
    assert_eq!(affinity(sleeper.id.tid).unwrap(), one);
    assert!(!bench.state.exists());
}

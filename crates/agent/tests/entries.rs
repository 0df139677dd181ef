//! The agent beside a process whose threads only call themselves vCPUs: they enter no guest.

use std::io::Write as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tailbound_agent::AgentConfig;
use tailbound_agent::guest::Role;
use tailbound_agent::watch::Watcher;
use tailbound_sys::probe::required::{Part, skipped};
use tailbound_sys::root::Root;
use tailbound_sys::thread::{Tasks, scheduling};
use tailbound_sys::waits::Tracer;

const IMPOSTOR: &str = "TAILBOUND_TEST_IMPOSTOR";

/// Not a test of its own: a process with one thread that is named as a vCPU's is.
#[test]
fn impostor_process() {
    let Ok(name) = std::env::var(IMPOSTOR) else {
        return;
    };
    let thread = std::thread::Builder::new().name(name);
    let sleeps = || {
        let _ = std::io::stdin().read_line(&mut String::new());
    };
    thread.spawn(sleeps).unwrap().join().unwrap();
}

struct Impostor(Child);

impl Impostor {
    fn start(name: &str) -> Self {
        let process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "impostor_process"])
            .env(IMPOSTOR, name)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let impostor = Self(process);
        let patience = Instant::now() + Duration::from_secs(20);
        while impostor.thread(name).is_none() {
            assert!(Instant::now() < patience, "the thread did not come");
            std::thread::sleep(Duration::from_millis(5));
        }
        impostor
    }

    fn thread(&self, name: &str) -> Option<u32> {
        let tasks = Tasks::open(&Root::default(), self.0.id()).unwrap();
        let named = |tid: &u32| tasks.stat(*tid).unwrap().is_some_and(|it| it.name == name);
        tasks.list().unwrap().into_iter().find(named)
    }

    fn config(&self, state: &std::path::Path, bpf: bool) -> AgentConfig {
        let rules = format!(
            "bpf = {bpf}\n[[guest]]\npid = {}\nlabel = \"fake\"\nlevel = \"high\"\n",
            self.0.id()
        );
        AgentConfig {
            state: state.to_owned(),
            ..AgentConfig::parse(&rules).unwrap()
        }
    }
}

impl Drop for Impostor {
    fn drop(&mut self) {
        if let Some(mut input) = self.0.stdin.take() {
            let _ = input.write_all(b"\n");
        }
        let _ = self.0.wait();
    }
}

/// Returns true if the kernel can report guest entries here.
fn asked() -> bool {
    match Tracer::try_load() {
        Ok(mut tracer) => tracer.note_entries().is_ok(),
        Err(error) => {
            skipped(Part::BpfWaits, error);
            false
        }
    }
}

/// After these looks its class, and what it is known as.
fn after(watcher: &mut Watcher, looks: u32, tid: u32) -> (bool, Role) {
    for _ in 0..looks {
        watcher.round();
    }
    let mut threads = watcher.guests().iter().flat_map(|guest| &guest.threads);
    let thread = threads.find(|thread| thread.id.tid == tid).unwrap();
    (scheduling(tid).unwrap().nice < 0, thread.role)
}

#[test]
fn a_thread_gets_the_vcpu_class_by_kvm_entry_not_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("vcpu.json");
    // Without KVM nothing is entered, and the name counts.
    let emulated = Impostor::start("CPU 0/TCG");
    let tid = emulated.thread("CPU 0/TCG").unwrap();
    let mut watcher = Watcher::open(emulated.config(&state, true)).unwrap();
    if after(&mut watcher, 1, tid) != (true, Role::Vcpu(0)) {
        assert!(!rustix::process::geteuid().is_root());
        return skipped(Part::CpuWeight, "a higher priority takes CAP_SYS_NICE");
    }
    let impostor = Impostor::start("CPU 0/KVM");
    let tid = impostor.thread("CPU 0/KVM").unwrap();
    watcher.reconfigure(impostor.config(&state, true));
    if asked() {
        assert_eq!(after(&mut watcher, 3, tid), (false, Role::Claim(0)));
    }
    // Where nobody can ask, its rule's budget is all that there is.
    watcher.reconfigure(impostor.config(&state, false));
    assert_eq!(after(&mut watcher, 1, tid), (true, Role::Vcpu(0)));
    // It keeps that where the kernel can be asked again, as a guest that sleeps does.
    watcher.reconfigure(impostor.config(&state, true));
    assert_eq!(after(&mut watcher, 2, tid), (true, Role::Vcpu(0)));
    watcher.restore().unwrap();
}

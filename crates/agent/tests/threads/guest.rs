//! Processes that look like QEMU's.

use std::io::Write as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tailbound_sys::root::Root;
use tailbound_sys::thread::{PolicyNumber, Tasks, scheduling};

/// A process whose threads are named as QEMU's are; it starts one more for each
/// line it reads.
pub(crate) struct FakeGuest {
    pub(crate) process: Child,
}

const FAKE: &str = "TAILBOUND_TEST_FAKE_GUEST";

/// Runs the process of a fake guest if the environment has [`FAKE`].
pub(crate) fn fake_process() {
    if std::env::var_os(FAKE).is_none() {
        return;
    }
    for (number, line) in (0..).zip(std::io::stdin().lines()) {
        if line.is_err() {
            return;
        }
        let builder = std::thread::Builder::new().name(format!("CPU {number}/TCG"));
        builder
            .spawn(|| {
                loop {
                    std::thread::park();
                }
            })
            .unwrap();
    }
}

impl FakeGuest {
    pub(crate) fn start(vcpus: usize) -> Self {
        let process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "fake_guest_process"])
            .env(FAKE, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let mut guest = Self { process };
        for _ in 0..vcpus {
            guest.plug();
        }
        guest
    }
    /// One more vCPU.
    pub(crate) fn plug(&mut self) {
        let before = self.vcpus().len();
        let input = self.process.stdin.as_mut().unwrap();
        input.write_all(b"\n").unwrap();
        until("the thread", || self.vcpus().len() > before);
    }
    pub(crate) fn vcpus(&self) -> Vec<u32> {
        let tasks = Tasks::open(&Root::default(), self.process.id()).unwrap();
        let mut found = Vec::new();
        for tid in tasks.list().unwrap() {
            let stat = tasks.stat(tid).unwrap();
            found.extend(
                stat.filter(|stat| stat.name.starts_with("CPU "))
                    .map(|_| tid),
            );
        }
        found
    }
    pub(crate) fn policies(&self) -> Vec<PolicyNumber> {
        let policy = |tid: u32| scheduling(tid).unwrap().policy;
        self.vcpus().into_iter().map(policy).collect()
    }
    pub(crate) fn rule(&self) -> String {
        format!(
            "[[guest]]\npid = {}\nlabel = \"fake\"\nhelpers = {{ kind = \"normal\" }}\nclass = {{ kind = \
             \"periodic\", runtime = \"200us\", deadline = \"10ms\", period = \"20ms\" }}\n",
            self.process.id()
        )
    }
}

impl Drop for FakeGuest {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let patience = Instant::now() + Duration::from_secs(20);
    while !done() {
        assert!(Instant::now() < patience, "{what} did not come");
        std::thread::sleep(Duration::from_millis(5));
    }
}

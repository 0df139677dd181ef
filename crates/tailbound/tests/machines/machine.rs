//! A virtual machine that tests start and control.

// Each test file uses its own part of this.
#![allow(dead_code)]

pub(crate) use crate::support::process::Process;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tailbound_lab::guest::{Task, Work};
use tailbound_lab::vm::{self, Boot, Card, Kernel, Machines};
use tailbound_sys::probe::required::{Part, skipped};
use tailbound_sys::process::find_program;
use tailbound_units::Nanos;

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_tailbound");
/// Time limit for any step by emulation on a busy computer.
const VM_TIMEOUT: Duration = Duration::from_mins(1);

pub(crate) fn until<T>(what: &str, mut come: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + VM_TIMEOUT;
    loop {
        if let Some(value) = come() {
            return value;
        }
        assert!(Instant::now() < end, "{what} did not come");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A machine that takes orders.
pub(crate) struct Machine {
    pub(crate) process: Process,
    name: &'static str,
    directory: PathBuf,
    orders: usize,
}

impl Machine {
    pub(crate) fn start(
        machines: &Machines,
        name: &'static str,
        mac: &str,
        directory: &Path,
    ) -> Self {
        Self::start_with(machines, name, mac, directory, &[])
    }

    /// The same, with more of a command line.
    pub(crate) fn start_with(
        machines: &Machines,
        name: &'static str,
        mac: &str,
        directory: &Path,
        more: &[&str],
    ) -> Self {
        let socket = directory.join(format!("{name}.card"));
        let card = Card {
            socket: &socket,
            mac,
        };
        let mut arguments = machines.arguments(name, directory, Some(&card));
        arguments.extend(more.iter().map(|&word| word.to_owned()));
        Self::run_by(&arguments, name, directory)
    }

    /// One whose card is QEMU's own, before a TAP of the machine's name.
    pub(crate) fn with_tap(
        machines: &Machines,
        name: &'static str,
        mac: &str,
        directory: &Path,
    ) -> Self {
        let mut arguments = machines.arguments(name, directory, None);
        let card = format!(
            "-netdev tap,id=net,ifname={name},script=no,downscript=no,vhost=off \
             -device virtio-net-pci,netdev=net,mac={mac},romfile="
        );
        arguments.extend(card.split(' ').map(str::to_owned));
        Self::run_by(&arguments, name, directory)
    }

    fn run_by(arguments: &[String], name: &'static str, directory: &Path) -> Self {
        let log = File::create(directory.join(format!("{name}.log"))).unwrap();
        let process = Command::new("qemu-system-x86_64")
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn();
        Self {
            process: Process(process.unwrap()),
            name,
            directory: directory.to_owned(),
            orders: 0,
        }
    }

    pub(crate) fn boot(&self, links: &str) {
        let boot = until("a machine's sockets", || {
            Boot::begin(&self.directory, self.name).ok()
        });
        let error = boot.finish(links, VM_TIMEOUT).unwrap_or_else(|error| {
            let log = fs::read_to_string(self.directory.join(format!("{}.log", self.name)));
            panic!(
                "{}: {error}; it said: {}",
                self.name,
                log.unwrap_or_default()
            );
        });
        assert!(error < Nanos::from_millis(50), "its clock: {error}");
    }

    /// Panics with the output of the VM if it has ended.
    pub(crate) fn must_run(&mut self) {
        if let Some(ended) = self.process.0.try_wait().unwrap() {
            let log = fs::read_to_string(self.directory.join(format!("{}.log", self.name)));
            panic!(
                "{} {ended}; it said: {}",
                self.name,
                log.unwrap_or_default()
            );
        }
    }

    /// The command that stands for a program inside.
    fn command(&mut self, arguments: &[&str]) -> Command {
        self.orders += 1;
        let socket = vm::channel(&self.directory, self.name, self.orders);
        let mut command = Command::new(PROGRAM);
        command.args(["lab", "machine", "do"]).arg(socket);
        command.args(arguments).stdin(Stdio::null());
        command
    }

    /// Runs a program inside and returns its output.
    pub(crate) fn run(&mut self, words: &str) -> String {
        let words: Vec<&str> = std::iter::once("--").chain(words.split(' ')).collect();
        let output = self.command(&words).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {text}{errors}");
        text
    }

    /// Starts a program that keeps running, and waits until it prints `ready`.
    pub(crate) fn serve(&mut self, words: &str, ready: &str) -> Process {
        let words: Vec<&str> = std::iter::once("--").chain(words.split(' ')).collect();
        let child = self.command(&words).stdout(Stdio::piped()).spawn();
        wait_for(child.unwrap(), ready)
    }

    /// Starts one of the lab's tasks, and waits until it is prepared.
    pub(crate) fn task(&mut self, work: Work) -> (Process, PathBuf) {
        let file = |what| {
            self.directory
                .join(format!("{}{}.{what}", self.name, self.orders))
        };
        let (path, outcome) = (file("task"), file("outcome"));
        let task = Task {
            work,
            warmup: Nanos::from_millis(500),
            duration: Nanos::from_secs(1),
            grace: Nanos::from_secs(1),
            outcome: outcome.clone(),
        };
        fs::write(&path, serde_json::to_vec(&task).unwrap()).unwrap();
        let path = path.display().to_string();
        let mut command = self.command(&["--task", &path]);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        (wait_for(child.unwrap(), "ready"), outcome)
    }
}

fn wait_for(mut child: Child, ready: &str) -> Process {
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let process = Process(child);
    assert!(
        lines.any(|line| line.unwrap().contains(ready)),
        "it ended before it was ready"
    );
    // Somebody must read on.
    std::thread::spawn(move || lines.for_each(drop));
    process
}

pub(crate) fn kernel() -> Option<Kernel> {
    for (program, part) in [
        ("iperf3", Part::Iperf3),
        ("ping", Part::Ping),
        ("ip", Part::Ip),
    ] {
        if find_program(program).is_none() {
            skipped(part, "it is not installed");
            return None;
        }
    }
    // Where scripts/guest-kernel leaves one.
    let left = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/guest-kernel");
    let found = Kernel::find(Some(left.as_path()).filter(|kernel| kernel.exists()));
    found.map_err(|why| skipped(Part::GuestKernel, why)).ok()
}

//! Real machines on a real daemon: QEMU with a distribution's kernel, whose cards are spoken to
//! by vhost-user. No privilege is needed.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tailbound_lab::guest::{Task, Work};
use tailbound_lab::vm::{self, Boot, Card, Kernel, Machines};
use tailbound_sys::probe::required::{Part, skipped};
use tailbound_sys::process::find_program;
use tailbound_units::{Bytes, Nanos};

const PROGRAM: &str = env!("CARGO_BIN_EXE_tailbound");
/// How long anything may take by emulation, on a machine that does much besides.
const PATIENCE: Duration = Duration::from_mins(1);

struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn until<T>(what: &str, mut come: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = come() {
            return value;
        }
        assert!(Instant::now() < end, "{what} did not come");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A machine that takes orders.
struct Machine {
    _process: Process,
    name: &'static str,
    directory: PathBuf,
    orders: usize,
}

impl Machine {
    fn start(machines: &Machines, name: &'static str, mac: &str, directory: &Path) -> Self {
        let socket = directory.join(format!("{name}.card"));
        let card = Card {
            socket: &socket,
            mac,
        };
        let log = File::create(directory.join(format!("{name}.log"))).unwrap();
        let process = Command::new("qemu-system-x86_64")
            .args(machines.arguments(name, directory, Some(&card)))
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn();
        Self {
            _process: Process(process.unwrap()),
            name,
            directory: directory.to_owned(),
            orders: 0,
        }
    }

    fn boot(&self, links: &str) {
        let boot = until("a machine's sockets", || {
            Boot::begin(&self.directory, self.name).ok()
        });
        let error = boot.finish(links, PATIENCE).unwrap_or_else(|error| {
            let log = fs::read_to_string(self.directory.join(format!("{}.log", self.name)));
            panic!(
                "{}: {error}; it said: {}",
                self.name,
                log.unwrap_or_default()
            );
        });
        assert!(error < Nanos::from_millis(50), "its clock: {error}");
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

    /// What a program inside says.
    fn run(&mut self, words: &str) -> String {
        let words: Vec<&str> = std::iter::once("--").chain(words.split(' ')).collect();
        let output = self.command(&words).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {text}{errors}");
        text
    }

    /// Starts one that goes on, and waits until it says so.
    fn serve(&mut self, words: &str, ready: &str) -> Process {
        let words: Vec<&str> = std::iter::once("--").chain(words.split(' ')).collect();
        let child = self.command(&words).stdout(Stdio::piped()).spawn();
        wait_for(child.unwrap(), ready)
    }

    /// Starts one of the lab's tasks, and waits until it is prepared.
    fn task(&mut self, work: Work) -> (Process, PathBuf) {
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

fn kernel() -> Option<Kernel> {
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

/// Runs `iperf3` with these options for a second, and returns a number of its report.
fn iperf3(machine: &mut Machine, options: &str, number: &str) -> f64 {
    let report = machine.run(&format!("iperf3 -J -t 1 {options}"));
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    let found = report.pointer(number).and_then(serde_json::Value::as_f64);
    found.unwrap_or_else(|| panic!("no {number} in {report}"))
}

const CONFIG: &str = r#"
    [[guest]]
    name = "m1"
    mac = "02:00:00:00:00:01"
    ip = ["10.0.0.1", "fd77::1"]
    port = { kind = "vhost-user", socket = "DIRECTORY/m1.card" }

    [[guest]]
    name = "m2"
    mac = "02:00:00:00:00:02"
    ip = ["10.0.0.2", "fd77::2"]
    port = { kind = "vhost-user", socket = "DIRECTORY/m2.card" }
"#;

#[test]
fn machines_ping_and_send_tcp_udp_and_segments_over_both_protocols() {
    let Some(kernel) = kernel() else { return };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let config = path.join("host.toml");
    let text = CONFIG.replace("DIRECTORY", &path.display().to_string());
    fs::write(&config, text).unwrap();
    let _daemon = Process(
        Command::new(PROGRAM)
            .args(["host", "--config"])
            .arg(&config)
            .arg("--runtime-dir")
            .arg(path)
            .stderr(Stdio::null())
            .spawn()
            .unwrap(),
    );
    let tools = ["ip", "ping", "iperf3"];
    let machines = Machines::prepare(&kernel, Path::new(PROGRAM), &tools, path).unwrap();
    until("the cards", || path.join("m2.card").exists().then_some(()));
    let mut one = Machine::start(&machines, "m1", "02:00:00:00:00:01", path);
    let mut two = Machine::start(&machines, "m2", "02:00:00:00:00:02", path);
    for (machine, n) in [(&one, 1), (&two, 2)] {
        machine.boot(&format!(
            "link set lo up\nlink set eth0 up\naddress add 10.0.0.{n}/24 dev eth0\n\
             address add fd77::{n}/64 dev eth0 nodad\n"
        ));
    }

    for address in ["10.0.0.2", "fd77::2"] {
        let said = one.run(&format!("ping -n -c 10 -i 0.05 -W 20 {address}"));
        assert!(said.contains(" 10 received"), "{said}");
    }
    let _server = two.serve("iperf3 -s --forceflush", "listening");
    for address in ["10.0.0.2", "fd77::2"] {
        let received = "/end/sum_received/bytes";
        let tcp = iperf3(&mut one, &format!("-c {address}"), received);
        assert!(tcp > 1e6, "{tcp} B by TCP to {address}");
        // What any emulation carries: all of it arrives.
        let udp = format!("-u -b 1M -l 1200 -c {address}");
        let lost = iperf3(&mut one, &udp, "/end/sum/lost_packets");
        assert!(lost.abs() < 0.5, "{lost} datagrams lost to {address}");
    }
    segments(&mut one, &mut two);
}

/// Pairs of datagrams, which the sender's kernel leaves to be cut as late as it can.
fn segments(one: &mut Machine, two: &mut Machine) {
    let (mut sink, received) = two.task(Work::Sink { port: 7000 });
    let (mut flood, sent) = one.task(Work::Flood {
        to: "10.0.0.2:7000".parse().unwrap(),
        // As many as are sent at once fit into the receiver's socket.
        payload: Bytes(2400),
        offered: Some(100),
        segment: Some(1200),
    });
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let start = now.tv_sec * 1_000_000_000 + now.tv_nsec + 300_000_000;
    for process in [&mut sink, &mut flood] {
        let stdin = process.0.stdin.as_mut().unwrap();
        stdin.write_all(format!("{start}\n").as_bytes()).unwrap();
    }
    let [sent, arrived] = [sent, received].map(|path| {
        let text = until("an outcome", || fs::read(&path).ok());
        let outcome: serde_json::Value = serde_json::from_slice(&text).unwrap();
        outcome["amount"].as_u64().unwrap()
    });
    assert!(sent > 30, "{sent} packets of the hundred that were offered");
    // Some cross the end of the measured second.
    let expected = 2 * sent;
    assert!(
        arrived.abs_diff(expected) <= expected / 3,
        "{arrived} datagrams of {expected}"
    );
}

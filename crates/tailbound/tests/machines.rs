//! Real machines on a real daemon: QEMU with a distribution's kernel, whose cards are spoken to
//! by vhost-user. No privilege is needed.

#[path = "../../vhost/tests/support/mod.rs"]
mod card;
#[path = "machines/machine.rs"]
mod machine;
#[path = "machines/stopped.rs"]
mod stopped;
#[path = "../../host/tests/support/mod.rs"]
mod support;

use machine::{Machine, PROGRAM, Process, kernel, until};
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use tailbound_lab::guest::{Flood, Work};
use tailbound_lab::vm::{Kernel, Machines};
use tailbound_units::{Bytes, Nanos};

/// Runs `iperf3` with these options for a second, and returns a number of its report.
fn iperf3(machine: &mut Machine, options: &str, number: &str) -> f64 {
    iperf3_for(1, machine, options, [number])[0]
}

/// Runs iperf3 for a number of seconds, and returns `N` numbers of its output.
fn iperf3_for<const N: usize>(
    seconds: u32,
    machine: &mut Machine,
    options: &str,
    numbers: [&str; N],
) -> [f64; N] {
    let report = machine.run(&format!("iperf3 -J -t {seconds} {options}"));
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    numbers.map(|number| number_of(&report, number))
}

fn number_of(report: &serde_json::Value, number: &str) -> f64 {
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

    [[guest]]
    name = "driver"
    mac = "02:00:00:00:00:03"
    anti_spoofing = false
    port = { kind = "vhost-user", socket = "DIRECTORY/driver.card" }
"#;

/// A daemon with the cards of both machines, which are there.
fn daemon(directory: &Path) -> Process {
    let config = directory.join("host.toml");
    let text = CONFIG.replace("DIRECTORY", &directory.display().to_string());
    fs::write(&config, text).unwrap();
    let mut command = Command::new(PROGRAM);
    command.args(["host", "--config"]).arg(&config);
    command.arg("--runtime-dir").arg(directory);
    let daemon = Process(command.stderr(Stdio::null()).spawn().unwrap());
    let card = directory.join("driver.card");
    until("the cards", || card.exists().then_some(()));
    daemon
}

#[test]
fn machines_ping_and_send_tcp_udp_and_segments_over_both_protocols() {
    let Some(kernel) = kernel() else { return };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let _daemon = daemon(path);
    let tools = ["ip", "ping", "iperf3"];
    let machines = Machines::prepare(&kernel, Path::new(PROGRAM), &tools, path).unwrap();
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
        // However long that takes by emulation. What both sockets hold may be under way at the
        // end, so these are short.
        let report = one.run(&format!("iperf3 -J -n 2M -w 128K -c {address}"));
        let report: serde_json::Value = serde_json::from_str(&report).unwrap();
        let tcp = number_of(&report, "/end/sum_received/bytes");
        assert!(tcp > 1e6, "{tcp} B by TCP to {address}");
        // What any emulation carries: all of it arrives.
        let udp = format!("-u -b 1M -l 1200 -c {address}");
        let lost = iperf3(&mut one, &udp, "/end/sum/lost_packets");
        assert!(lost.abs() < 0.5, "{lost} datagrams lost to {address}");
    }
    segments(&mut one, &mut two);
    drop(one);
    stopped::every_frame_is_accounted_for(path, &mut two, Duration::ZERO);
}

/// Pairs of datagrams, which the sender's kernel leaves to be cut as late as it can.
fn segments(one: &mut Machine, two: &mut Machine) {
    let (mut sink, received) = two.task(Work::Sink { port: 7000 });
    let (mut flood, sent) = one.task(Work::Flood(Flood {
        to: "10.0.0.2:7000".parse().unwrap(),
        // As many as are sent at once fit into the receiver's socket.
        payload: Bytes(2400),
        offered: Some(100),
        segment: Some(1200),
    }));
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
    assert!(sent > 10, "{sent} packets of the hundred that were offered");
    // Some cross the end of the measured second.
    let expected = 2 * sent;
    assert!(
        arrived.abs_diff(expected) <= expected / 3,
        "{arrived} datagrams of {expected}"
    );
}

#[test]
#[ignore = "a machine that boots, and stands still for nine seconds"]
fn frames_for_a_vm_stopped_for_nine_seconds_are_accounted_for() {
    let Some(kernel) = kernel() else { return };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let _daemon = daemon(path);
    let machines = Machines::prepare(&kernel, Path::new(PROGRAM), &["ip"], path).unwrap();
    let mut two = Machine::start(&machines, "m2", "02:00:00:00:00:02", path);
    two.boot("link set lo up\nlink set eth0 up\n");
    stopped::every_frame_is_accounted_for(path, &mut two, Duration::from_secs(9));
}

/// The backend that forwards frames between two VMs.
#[derive(Debug, Clone, Copy)]
enum Backend {
    /// QEMU reads and writes TAPs, and a bridge is between these.
    Tap,
    /// tailbound, which has the machines' cards.
    Vhost,
}

/// Returns the CPU time of a process's threads without its vCPUs.
fn time_beside_vcpus(process: &Process) -> Nanos {
    let tasks = format!("/proc/{}/task", process.0.id());
    let threads = fs::read_dir(tasks)
        .unwrap()
        .map(|task| task.unwrap().path());
    let time = threads.filter_map(|task| {
        let name = fs::read_to_string(task.join("comm")).ok()?;
        let used = fs::read_to_string(task.join("schedstat")).ok()?;
        let (ran, _) = tailbound_sys::procfs::parse_schedstat(&used)?;
        (!name.starts_with("CPU ")).then_some(ran)
    });
    time.fold(Nanos::ZERO, |sum, ran| sum + ran)
}

/// Seconds of CPU beside the vCPUs for each frame that arrived, of a fixed offered rate; and
/// how many these were.
fn cost_of_a_frame(kernel: &Kernel, backend: Backend) -> (f64, f64) {
    const SECONDS: u32 = 6;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let machines = Machines::prepare(kernel, Path::new(PROGRAM), &["ip", "iperf3"], path).unwrap();
    let macs = ["02:00:00:00:00:01", "02:00:00:00:00:02"];
    let (daemon, start) = match backend {
        Backend::Vhost => (Some(daemon(path)), Machine::start as fn(_, _, _, _) -> _),
        Backend::Tap => (None, Machine::with_tap as fn(_, _, _, _) -> _),
    };
    let mut one: Machine = start(&machines, "m1", macs[0], path);
    let mut two: Machine = start(&machines, "m2", macs[1], path);
    for (machine, n) in [(&one, 1), (&two, 2)] {
        machine.boot(&format!(
            "link set lo up\nlink set eth0 up\naddress add 10.0.0.{n}/24 dev eth0\n"
        ));
    }
    let _server = two.serve("iperf3 -s --forceflush", "listening");
    let numbers = ["/end/sum/packets", "/end/sum/lost_packets"];
    let offered = "-u -b 20M -l 1472 -c 10.0.0.2";
    iperf3_for(1, &mut one, offered, numbers);
    let used = |machines: [&Machine; 2]| {
        let processes = machines.map(|machine| &machine.process);
        let processes = processes.into_iter().chain(&daemon).map(time_beside_vcpus);
        processes.fold(Nanos::ZERO, |sum, used| sum + used)
    };
    let before = used([&one, &two]);
    let [sent, lost] = iperf3_for(SECONDS, &mut one, offered, numbers);
    let used = used([&one, &two]) - before;
    (used.as_secs_f64() / (sent - lost), sent - lost)
}

/// Prints what a frame of 1,514 B costs this machine beside its vCPUs, through QEMU's own TAP
/// back end and a bridge, and through tailbound; in turn.
///
/// `cargo test --release -p tailbound --test machines measure_the_host_cpu_cost -- --ignored --nocapture`
#[test]
#[ignore = "measures, and judges nothing"]
fn measure_the_host_cpu_cost_of_a_frame() {
    const ROUNDS: usize = 3;
    let Some(kernel) = kernel() else { return };
    support::sandboxed("measure_the_host_cpu_cost_of_a_frame", || {
        let ip = |words: &str| {
            let words: Vec<&str> = words.split(' ').collect();
            support::command("ip", &words);
        };
        ip("link add between type bridge stp_state 0 forward_delay 0");
        for name in ["m1", "m2"] {
            ip(&format!("tuntap add dev {name} mode tap vnet_hdr"));
            ip(&format!("link set {name} master between up"));
        }
        ip("link set between up");
        let mut ratios = Vec::new();
        for _ in 0..ROUNDS {
            let costs = [Backend::Tap, Backend::Vhost].map(|backend| {
                let (cost, frames) = cost_of_a_frame(&kernel, backend);
                eprintln!(
                    "{}{backend:?}: {frames} frames, {:.1} us of CPU a frame, {:.1} s a GB",
                    support::MEASURED,
                    cost * 1e6,
                    cost * 1e9 / 1514.0,
                );
                cost
            });
            ratios.push(costs[1] / costs[0]);
        }
        ratios.sort_by(f64::total_cmp);
        eprintln!("{}of TAP's: {ratios:.2?}", support::MEASURED);
    });
}

//! Real machines on a real daemon: QEMU with a distribution's kernel, whose cards are spoken to
//! by vhost-user. No privilege is needed.

#[path = "machines/machine.rs"]
mod machine;

use machine::{Machine, PROGRAM, Process, kernel, until};
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use tailbound_lab::guest::Work;
use tailbound_lab::vm::Machines;
use tailbound_units::Bytes;

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

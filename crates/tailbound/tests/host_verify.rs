//! `tailbound host verify`, with two daemons of the program's own, one of them right or wrong.

mod host_daemon;
#[path = "../../host/tests/support/mod.rs"]
mod support;

use host_daemon::{PROGRAM, cable, start, tailbound};
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use support::process::Process;
use support::{Nic, datagram_of, sandboxed};

const MAC: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];
const GUARANTEED: &str =
    "guarantee = { bandwidth = \"50Mbit/s\", burst = \"30KB\", burst_rate = \"1Gbit/s\" }\n";

/// A daemon with one guest, of this address, and these keys besides.
fn host(directory: &Path, number: u8, mac: u8, keys: &str) -> Process {
    let config = format!("h{number}.toml");
    let name = ["a", "b"][usize::from(number) - 1];
    let text = format!(
        "[uplink]\nport = {{ kind = \"af-packet\", interface = \"up{number}\" }}\n\
         pacer = {{ link = \"1Gbit/s\" }}\n\
         [[guest]]\nname = \"{name}\"\nmac = \"02:00:00:00:00:0{mac}\"\n\
         ip = [\"10.77.0.{mac}\"]\n{keys}\
         port = {{ kind = \"af-packet\", interface = \"g{number}\" }}\n"
    );
    std::fs::write(directory.join(&config), text).unwrap();
    let runtime = format!("run{number}");
    let asked = ["--config", &config, "--runtime-dir", &runtime];
    start(directory, &asked)
}

/// The sender of the examined frames.
#[derive(Clone, Copy, PartialEq)]
enum Sends {
    /// The guest itself, by its card.
    Guest,
    /// Its host in its name, with these arguments.
    Host(&'static [&'static str]),
}

/// Returns the exit code and the report while the first host's guest sends to the second's. `keys`
/// are keys of the two hosts' configurations.
fn verify(keys: [&str; 2], receiver: u8, sends: Sends) -> (Option<i32>, String) {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let _hosts = [
        host(directory, 1, 1, keys[0]),
        host(directory, 2, receiver, keys[1]),
    ];
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut nic = Nic::open("v1", None);
            let frame = datagram_of(MAC[1], MAC[0], [10, 77, 0, 1], 7);
            // Whoever is sent to has spoken, as any machine does.
            let mut other = Nic::open("v2", None);
            let answer = datagram_of(MAC[0], MAC[1], [10, 77, 0, 2], 7);
            while !stop.load(Ordering::Relaxed) {
                if receiver == 2 {
                    other.send(&answer);
                }
                for _ in 0..10 {
                    if sends == Sends::Guest {
                        nic.send(&frame);
                    }
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let there =
            format!("{PROGRAM} host show --config h2.toml --runtime-dir run2 --output json");
        // Times are not judged here: others need the machine, too.
        let asked = "host verify a --config h1.toml --runtime-dir run1 --to b --within 10s";
        let asked: Vec<_> = asked.split(' ').collect();
        let mut more = vec!["--receiver", &there, "--duration", "2s"];
        if let Sends::Host(arguments) = sends {
            more.extend(arguments);
        }
        let mut asking = tailbound(directory, &[&asked[..], &more].concat());
        let done = asking.stdin(Stdio::null()).output();
        stop.store(true, Ordering::Relaxed);
        let done = done.unwrap();
        let said = [done.stdout, done.stderr].concat();
        without_lost_time(done.status.code(), String::from_utf8(said).unwrap())
    })
}

/// Returns the exit code and the report as if the sending host's packet loop had had a CPU whenever it
/// was due. On a busy computer without a real-time class that check is rightly broken.
fn without_lost_time(code: Option<i32>, report: String) -> (Option<i32>, String) {
    let is_broken = |line: &&str| line.contains("  broken ");
    let (loops, others): (Vec<&str>, _) = report
        .lines()
        .filter(is_broken)
        .partition(|line| line.contains("the packet loop is there when packets are due"));
    let sending = |line: &&str| line.starts_with("the sending host");
    match (loops.is_empty(), others.is_empty()) {
        (true, _) => (code, report),
        (false, true) => {
            assert_eq!(code, Some(1), "{report}");
            let holds = report.replacen("BROKEN  the sending host", "HOLDS", 1);
            (Some(0), holds)
        }
        (false, false) if others.iter().any(sending) => (code, report),
        (false, false) => (
            code,
            report.replacen("BROKEN  the sending host, ", "BROKEN  ", 1),
        ),
    }
}

#[test]
fn a_report_is_judged_without_the_loops_lost_time() {
    let loops =
        "the sending host    the packet loop is there when packets are due  broken  it stood\n";
    let arrives = "between the hosts   what left arrives  broken  2 B left, 1 B came\n";
    let holds = "the sending host    nothing is dropped  holds  none\n";
    for (code, report, without) in [
        (0, format!("HOLDS\n\n{holds}"), (0, "HOLDS\n")),
        (
            1,
            format!("BROKEN  the sending host\n\n{loops}{holds}"),
            (0, "HOLDS\n"),
        ),
        (
            1,
            format!("BROKEN  the sending host, between the hosts\n\n{loops}{arrives}"),
            (1, "BROKEN  between the hosts\n"),
        ),
    ] {
        let (found, text) = without_lost_time(Some(code), report.clone());
        assert_eq!(found, Some(without.0), "{report}");
        assert!(text.starts_with(without.1), "{report}: {text}");
    }
}

#[test]
fn the_side_that_breaks_a_guarantee_is_named() {
    sandboxed("the_side_that_breaks_a_guarantee_is_named", || {
        for (one, other) in [("up1", "up2"), ("g1", "v1"), ("g2", "v2")] {
            cable(one, other);
        }
        for (keys, receiver, code, verdict) in [
            ([GUARANTEED, ""], 2, 0, "HOLDS\n"),
            (["", ""], 2, 2, "tailbound: nothing is guaranteed to a, so"),
            // The machine that it sends to is not there.
            ([GUARANTEED, ""], 9, 1, "BROKEN  between the hosts\n"),
            // It is not given what comes for it.
            (
                [GUARANTEED, "limit = { in = { rate = \"16kbit/s\" } }\n"],
                2,
                1,
                "BROKEN  the receiving host\n",
            ),
        ] {
            let (found, said) = verify(keys, receiver, Sends::Guest);
            assert_eq!(found, Some(code), "{keys:?} {receiver}: {said}");
            assert!(said.starts_with(verdict), "{keys:?} {receiver}: {said}");
        }
        // The same where the host sends in its guest's name, once that is agreed to.
        let (send, agreed): (&[_], &[_]) = (&["--send"], &["--send", "--yes"]);
        let closed = "limit = { in = { rate = \"16kbit/s\" } }\n";
        for (keys, receiver, arguments, code, verdict) in [
            (
                [GUARANTEED, ""],
                2,
                send,
                64,
                "all that a is guaranteed, 50Mbit/s, goes to b;",
            ),
            ([GUARANTEED, ""], 2, agreed, 0, "HOLDS\n"),
            (
                [GUARANTEED, closed],
                2,
                agreed,
                1,
                "BROKEN  the receiving host\n",
            ),
            (
                ["", ""],
                2,
                agreed,
                2,
                "nothing is guaranteed to a, so there is nothing to verify",
            ),
        ] {
            let (found, said) = verify(keys, receiver, Sends::Host(arguments));
            assert_eq!(found, Some(code), "{keys:?} {arguments:?}: {said}");
            assert!(said.contains(verdict), "{keys:?} {arguments:?}: {said}");
            // How much of it was used is not judged: others need the machine, too.
            assert!(code != 0 || !said.contains("too few to tell"), "{said}");
        }
    });
}

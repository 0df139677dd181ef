//! Virtual machines' cards by vhost-user, through a real daemon: with a driver of our own
//! and with DPDK's.

#[path = "../../vhost/tests/support/mod.rs"]
mod machine;
mod support;

use machine::{Build, Machine};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use support::{Daemon, METRICS, sandboxed, until};
use tailbound_sys::probe::required::{Part, skipped};

/// Not a test of its own: the process of the daemon below.
#[test]
fn daemon_process() {
    support::daemon_process();
}

/// Guests whose sockets are in a directory.
struct Cards(tempfile::TempDir);

impl Cards {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a directory"))
    }

    fn socket(&self, number: usize) -> PathBuf {
        self.0.path().join(format!("card{number}"))
    }

    /// A configuration of `count` guests that may send in any name.
    fn config(&self, count: usize) -> String {
        let mut config = format!("metrics = {METRICS:?}\n");
        for number in 1..=count {
            let socket = self.socket(number);
            let socket = socket.display();
            write!(
                config,
                "[[guest]]\nname = \"g{number}\"\nmac = \"02:00:00:00:00:{number:02x}\"\n\
                 anti_spoofing = false\nport = {{ kind = \"vhost-user\", socket = \"{socket}\" }}\n"
            )
            .expect("text");
        }
        config
    }
}

/// A frame from one guest to another.
fn frame(from: u8, to: u8, mark: u8) -> Vec<u8> {
    let mut frame = vec![mark; 200];
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, to, 2, 0, 0, 0, 0, from, 0x88, 0xb5]);
    frame
}

#[test]
fn machines_reach_each_other_and_outlive_the_daemon() {
    let name = "machines_reach_each_other_and_outlive_the_daemon";
    sandboxed(name, || {
        let cards = Cards::new();
        let config = cards.config(2);
        let mut daemon = Daemon::start(&config);
        let build = Build {
            entries: 64,
            ..Build::default()
        };
        let mut one = Machine::start(&cards.socket(1), build);
        let mut two = Machine::start(&cards.socket(2), build);
        let mut mark = 0;
        for _ in 0..3 {
            for _ in 0..30 {
                mark += 1;
                one.send(0, [0; 10], &frame(1, 2, mark));
                let got = machine::until("a frame", || two.receive(0, true));
                assert_eq!(got.1, frame(1, 2, mark));
                two.send(0, [0; 10], &frame(2, 1, mark));
                let got = machine::until("a frame", || one.receive(0, true));
                assert_eq!(got.1, frame(2, 1, mark));
            }
            // It is killed with frames in the ring that it has not seen.
            daemon.signal(rustix::process::Signal::STOP);
            let first = mark + 1;
            for _ in 0..20 {
                mark += 1;
                one.send(0, [0; 10], &frame(1, 2, mark));
            }
            daemon.signal(rustix::process::Signal::KILL);
            drop(daemon);
            daemon = Daemon::start(&config);
            two.reconnect(&cards.socket(2));
            one.reconnect(&cards.socket(1));
            for mark in first..=mark {
                let got = machine::until("a frame", || two.receive(0, true));
                assert_eq!(got.1, frame(1, 2, mark));
            }
        }
    });
}

/// DPDK's testpmd with two cards, each of which sends to the other's station.
struct Testpmd(Child, PathBuf);

impl Testpmd {
    /// `None` where it is not installed.
    fn start(cards: &Cards, arguments: &[&str]) -> Option<Self> {
        let log = cards.0.path().join("testpmd");
        let out = std::fs::File::create(&log).expect("created");
        let device = |number: usize| {
            format!(
                "--vdev=net_virtio_user{number},path={},mac=02:00:00:00:00:{number:02x},queue_size=1024",
                cards.socket(number).display()
            )
        };
        let child = Command::new("dpdk-testpmd")
            .args([
                "--lcores=0@0,1@0",
                "--no-huge",
                "-m",
                "128",
                "--no-pci",
                "--no-telemetry",
            ])
            .arg(format!("--file-prefix=t{}", std::process::id()))
            .args([device(1), device(2)])
            .arg("--")
            .args([
                "--total-num-mbufs=8192",
                "--stats-period=1",
                "--no-mlockall",
            ])
            .args([
                "--eth-peer=0,02:00:00:00:00:02",
                "--eth-peer=1,02:00:00:00:00:01",
            ])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(out.try_clone().expect("cloned"))
            .stderr(out)
            .spawn();
        match child {
            Ok(child) => Some(Self(child, log)),
            Err(error) => {
                skipped(Part::Dpdk, error);
                None
            }
        }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(&self.1).unwrap_or_default()
    }

    /// Frames that its cards have received so far.
    fn received(&self) -> Vec<u64> {
        let log = self.log();
        let counts = log
            .lines()
            .filter_map(|line| line.trim().strip_prefix("RX-packets:"));
        let counts: Vec<u64> = counts
            .filter_map(|line| line.split_whitespace().next()?.parse().ok())
            .collect();
        counts[counts.len().saturating_sub(2)..].to_vec()
    }
}

impl Drop for Testpmd {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
        if std::thread::panicking() {
            eprintln!("testpmd said:\n{}", self.log());
        }
    }
}

#[test]
fn dpdk_sends_frames_from_card_to_card() {
    let name = "dpdk_sends_frames_from_card_to_card";
    sandboxed(name, || {
        let cards = Cards::new();
        let daemon = Daemon::start(&cards.config(2));
        for arguments in [
            &["--forward-mode=mac", "--tx-first"][..],
            &[
                "--forward-mode=mac",
                "--tx-first",
                "--tx-offloads=0x8000",
                "--rxd=256",
                "--txd=256",
            ],
        ] {
            // Checksums left to the card, and rings of another size.
            let Some(testpmd) = Testpmd::start(&cards, arguments) else {
                return;
            };
            until("frames in a circle", || {
                let received = testpmd.received();
                received.len() == 2 && received.iter().all(|count| *count > 5_000)
            });
        }
        drop(daemon);
    });
}

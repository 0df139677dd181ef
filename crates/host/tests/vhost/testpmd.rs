//! DPDK's testpmd as guests.

use crate::cards::Cards;
use crate::support::{Nic, until};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use tailbound_sys::probe::required::{Part, skipped};

/// DPDK's testpmd with two cards, each of which sends to the other's station.
pub(crate) struct Testpmd(Child, PathBuf);

impl Testpmd {
    /// Starts two cards that connect to the daemon's sockets; `None` if testpmd is not installed.
    pub(crate) fn start(cards: &Cards, arguments: &[&str]) -> Option<Self> {
        let peers = [
            "--eth-peer=0,02:00:00:00:00:02",
            "--eth-peer=1,02:00:00:00:00:01",
        ];
        let devices = [1, 2].map(|number| Self::device(cards, number));
        Self::spawn(cards, &devices, &[&peers, arguments].concat())
    }

    /// Starts one card at whose socket testpmd listens, as only such a card reconnects. It sends
    /// numbered frames to the second guest, as fast as its ring permits.
    pub(crate) fn generate(cards: &Cards) -> Option<Self> {
        let device = Self::device(cards, 1) + ",server=1";
        let arguments = [
            "--forward-mode=flowgen",
            "--flowgen-flows=100000000",
            "--port-topology=loop",
        ];
        Self::spawn(cards, &[device], &arguments)
    }

    /// Returns the number of a frame that [`Testpmd::generate`] sent between constant stations: the
    /// number is added to the destination address.
    fn number(frame: &[u8]) -> Option<u32> {
        let is_own = frame[..12] == [0, 1, 2, 3, 4, 1, 0, 1, 2, 3, 4, 0];
        let address = frame.get(30..34)?.first_chunk()?;
        is_own.then(|| u32::from_be_bytes(*address))
    }

    fn device(cards: &Cards, number: usize) -> String {
        format!(
            "--vdev=net_virtio_user{number},path={},mac=02:00:00:00:00:{number:02x},queue_size=1024",
            cards.socket(number).display()
        )
    }

    fn spawn(cards: &Cards, devices: &[String], arguments: &[&str]) -> Option<Self> {
        let log = cards.0.path().join("testpmd");
        let out = std::fs::File::create(&log).expect("created");
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
            .args(devices)
            .arg("--")
            .args([
                "--total-num-mbufs=8192",
                "--stats-period=1",
                "--no-mlockall",
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
    pub(crate) fn received(&self) -> Vec<u64> {
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

/// The numbers of frames that came.
pub(crate) struct Numbers {
    pub(crate) nic: Nic,
    pub(crate) all: BTreeSet<u32>,
}

impl Numbers {
    /// Waits for `count` more frames, and returns the first number that was sent after most of
    /// them.
    pub(crate) fn more(&mut self, count: usize) -> u32 {
        let wanted = self.all.len() + count;
        until("frames", || {
            let frames = self.nic.receive();
            let numbers = frames
                .iter()
                .filter_map(|frame| Testpmd::number(frame.bytes()));
            for number in numbers {
                assert!(self.all.insert(number), "{number} came twice");
            }
            self.all.len() >= wanted
        });
        // Those of one class may be before those of another that were sent earlier.
        let latest = self.all.iter().rev().nth(count / 2);
        latest.copied().unwrap_or_default()
    }

    /// Returns the missing numbers before the last received one.
    pub(crate) fn missing(&self) -> impl Iterator<Item = u32> {
        let pairs = self.all.iter().zip(self.all.iter().skip(1));
        pairs.flat_map(|(one, next)| one + 1..*next)
    }
}

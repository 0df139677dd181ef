//! Programs in this computer's kernel: `frames` runs them on single frames (`BPF_PROG_TEST_RUN`),
//! `interfaces` attaches them in a network namespace of its own.

mod frames;
mod interfaces;

use super::pins::Clock;
use super::*;
use crate::probe::required::{Part, skipped};
use std::process::Command;

/// Runs a command with words between spaces.
fn run(line: &str) -> bool {
    let mut words = line.split(' ');
    let command = Command::new(words.next().unwrap_or_default())
        .args(words)
        .output();
    let output = command.unwrap_or_else(|error| panic!("{line}: {error}"));
    if !output.status.success() {
        eprintln!("{line}: {}", String::from_utf8_lossy(&output.stderr));
    }
    output.status.success()
}

/// A bpffs of the test's own.
struct Bpffs(tempfile::TempDir);

impl Bpffs {
    /// `None`, and a skip, if this computer cannot run the programs.
    fn new() -> Option<Self> {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().display().to_string();
        let is_root = rustix::process::geteuid().is_root();
        if !is_root || !run(&format!("mount -t bpf none {path}")) {
            skipped(Part::BpfEdge, "`mount -t bpf` as root fails");
            return None;
        }
        Some(Self(directory))
    }

    fn pin(&self) -> PathBuf {
        self.0.path().join("edge")
    }

    /// Opens; `None`, and a skip, if the kernel refuses.
    fn open(&self, clock: Clock) -> Option<Edge> {
        if clock == Clock::OfTests {
            let pins = Pins::at(&self.pin()).expect("a bpffs");
            if let Err(error) = pins.load(clock) {
                skipped(Part::BpfEdge, error);
                return None;
            }
        }
        match Edge::open(&self.pin()) {
            Ok(edge) => Some(edge),
            Err(error) => {
                skipped(Part::BpfEdge, error);
                None
            }
        }
    }
}

impl std::ops::Drop for Bpffs {
    fn drop(&mut self) {
        run(&format!("umount {}", self.0.path().display()));
    }
}

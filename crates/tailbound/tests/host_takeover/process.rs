//! A host whose daemons are processes of their own.

use crate::support::{Guest, Kind, until};
use crate::traffic::Traffic;
use rustix::process::{Pid, Signal, kill_process};
use std::cell::Cell;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::Duration;

/// The guest's guaranteed rate in Mbit/s. The burst is more than the guest sends in a test: with a
/// full bucket the guest would never be paced.
pub(crate) const MBIT: u64 = 20;
pub(crate) const BURST: u64 = 2_000_000;

/// A daemon as a process of its own, and a guest that sends through its paced uplink.
pub(crate) struct Host {
    pub(crate) directory: tempfile::TempDir,
    pub(crate) far: Guest,
    pub(crate) guest: Guest,
    /// Number of daemons that were started.
    started: Cell<u32>,
}

impl Host {
    /// One whose guest has no guarantee and no limit.
    pub(crate) fn unpaced(kind: Kind) -> Self {
        let host = Self::of(kind);
        let config = format!(
            "[uplink]\nport = {{ kind = \"af-packet\", interface = {:?} }}\n{}",
            host.far.name,
            host.guest.section(),
        );
        fs::write(host.path("host.toml"), config).expect("written");
        host
    }

    pub(crate) fn of(kind: Kind) -> Self {
        Self {
            directory: tempfile::tempdir().expect("a directory"),
            guest: Guest::new(kind, 1),
            far: Guest::new(Kind::Veth, 2),
            started: Cell::new(0),
        }
    }

    pub(crate) fn new() -> Self {
        let host = Self::of(Kind::Veth);
        let config = format!(
            "[uplink]\nport = {{ kind = \"af-packet\", interface = {:?} }}\n\
             pacer = {{ link = \"100Mbit/s\", batch = \"1ms\", \
             work_conserving = false }}\n{}\
             guarantee = {{ bandwidth = \"{MBIT}Mbit/s\", burst = \"{BURST}B\", \
             burst_rate = \"100Mbit/s\" }}\n",
            host.far.name,
            host.guest.section(),
        );
        fs::write(host.path("host.toml"), config).expect("written");
        host
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn command(&self, more: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tailbound"));
        command
            .args(["host", "--config", "host.toml", "--runtime-dir", "run"])
            .args(more)
            .current_dir(self.directory.path());
        command
    }

    /// Starts a daemon.
    pub(crate) fn start(&self, more: &[&str]) -> Daemon {
        let log = self.path(&format!("log-{}", self.started.get()));
        self.started.set(self.started.get() + 1);
        let child = self
            .command(more)
            .stdout(Stdio::null())
            .stderr(File::create(&log).expect("created"))
            .spawn()
            .expect("it is built");
        Daemon(child, log)
    }

    /// Returns the output of a daemon that refuses to start.
    pub(crate) fn refused(&self, more: &[&str]) -> Output {
        let output = self.command(more).output().expect("it is built");
        assert_eq!(output.status.code(), Some(2));
        output
    }

    /// Waits until a daemon has the lock, and its ports.
    pub(crate) fn is_run_by(&self, daemon: &Daemon) {
        let pid = format!("{}\n", daemon.0.id());
        until("the lock", || {
            let locks = fs::read_dir(self.path("run")).into_iter().flatten();
            let mut locks = locks.filter_map(|lock| fs::read_to_string(lock.ok()?.path()).ok());
            locks.any(|text| text == pid)
        });
        until("its ports", || daemon.said(" ready "));
    }

    pub(crate) fn traffic(&self) -> Traffic {
        Traffic::start(self, Duration::from_micros(200))
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if thread::panicking() {
            for entry in fs::read_dir(self.directory.path()).into_iter().flatten() {
                let path = entry.map(|entry| entry.path()).unwrap_or_default();
                let text = fs::read_to_string(&path).unwrap_or_default();
                eprintln!("{}:\n{text}", path.display());
            }
        }
    }
}

/// A process, and where its log is.
pub(crate) struct Daemon(pub(crate) Child, pub(crate) PathBuf);

impl Daemon {
    pub(crate) fn said(&self, what: &str) -> bool {
        fs::read_to_string(&self.1).is_ok_and(|log| log.contains(what))
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).expect("it runs");
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.0.try_wait().expect("it is our child").is_some()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

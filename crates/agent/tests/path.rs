//! The host's own path on real threads and control groups.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use tailbound_agent::watch::Watcher;
use tailbound_agent::{AgentConfig, PathConfig};
use tailbound_sys::cgroup::{Mounts, parse_groups};
use tailbound_sys::probe::required::{Part, skipped};
use tailbound_sys::root::Root;
use tailbound_sys::sched::{Policy, probe};
use tailbound_sys::thread::{PolicyNumber, Scheduling, scheduling};
use tailbound_units::Nanos;

/// What stands for a daemon; it ends with the test.
struct Daemon(Child);

impl Daemon {
    fn start() -> Self {
        Self(Command::new("sleep").arg("600").spawn().unwrap())
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }

    fn scheduling(&self) -> Scheduling {
        scheduling(self.pid()).unwrap()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn watcher(directory: &Path, path: PathConfig, daemon: Option<u32>) -> Watcher {
    let config = AgentConfig {
        state: directory.join("vcpu.json"),
        path: Some(path),
        bpf: false,
        ..AgentConfig::default()
    };
    Watcher::open(config.with_path(daemon)).unwrap()
}

fn has_real_time() -> bool {
    match probe(Policy::Fifo(1)) {
        Ok(()) => true,
        Err(error) => {
            skipped(Part::SchedFifo, error);
            false
        }
    }
}

#[test]
fn the_packet_loop_goes_before_all_shares_until_the_agent_ends() {
    if !has_real_time() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let daemon = Daemon::start();
    let before = daemon.scheduling();
    let mut watcher = watcher(directory.path(), PathConfig::default(), Some(daemon.pid()));
    watcher.round();
    let given = daemon.scheduling();
    assert_eq!((given.policy, given.priority), (PolicyNumber::FIFO, 3));
    // Its other threads are plain ones.
    assert_eq!(
        given.flags & Scheduling::RESET_ON_FORK,
        Scheduling::RESET_ON_FORK
    );
    let meters = watcher.shared().lock().unwrap().meters.clone();
    let [(key, meter)] = &meters.iter().collect::<Vec<_>>()[..] else {
        panic!("{meters:?}");
    };
    assert_eq!(
        (&*key.guest, key.group.name()),
        ("tailbound-host", "packet-loop")
    );
    assert_eq!((meter.class, meter.in_force), ("real-time", true));
    assert_eq!(watcher.restore().unwrap().restored, 1);
    assert_eq!(daemon.scheduling(), before);
}

/// A control group of version 1, which has a budget of real time of its own.
struct Budgeted(PathBuf);

impl Budgeted {
    /// `None`, and says so, where the kernel has no such budgets or no group can be made.
    fn make() -> Option<Self> {
        let mounts = Mounts::read(&Root::default()).unwrap();
        let own = parse_groups(&fs::read_to_string("/proc/self/cgroup").unwrap());
        let parent = match mounts.directory(&own, "cpu") {
            Some((parent, false)) if parent.join("cpu.rt_runtime_us").exists() => parent,
            _ => {
                skipped(
                    Part::RtGroups,
                    "no control group here has a budget of real time",
                );
                return None;
            }
        };
        let directory = parent.join(format!("tailbound-path-{}", std::process::id()));
        match fs::create_dir(&directory) {
            Ok(()) => Some(Self(directory)),
            Err(error) => {
                skipped(Part::RtGroups, error);
                None
            }
        }
    }

    fn path(&self) -> String {
        let mounts = Mounts::read(&Root::default()).unwrap();
        let root = mounts.legacy("cpu").unwrap();
        format!("/{}", self.0.strip_prefix(root).unwrap().display())
    }

    fn write(&self, file: &str, text: &str) {
        fs::write(self.0.join(file), text).unwrap();
    }
}

impl Drop for Budgeted {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn a_group_without_a_budget_of_real_time_leaves_a_short_slice() {
    let Some(group) = Budgeted::make() else {
        return;
    };
    if !has_real_time() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let daemon = Daemon::start();
    group.write("cgroup.procs", &daemon.pid().to_string());
    let path = PathConfig {
        cgroup: group.path(),
    };
    let mut watcher = watcher(directory.path(), path, None);
    watcher.round();
    let given = daemon.scheduling();
    assert_eq!(given.policy, PolicyNumber::NORMAL, "{given}");
    assert_eq!(given.runtime, Nanos::from_micros(100), "{given}");
    // Who gives it a budget has the class a round later.
    group.write("cpu.rt_runtime_us", "1000");
    watcher.round();
    assert_eq!(daemon.scheduling().policy, PolicyNumber::FIFO);
    watcher.restore().unwrap();
    assert!(daemon.scheduling().is_share());
    drop(daemon);
}

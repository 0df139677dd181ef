//! The host's own path on real threads and control groups.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tailbound_agent::guest::LOOP_THREAD;
use tailbound_agent::watch::Watcher;
use tailbound_agent::{Agent, AgentConfig, PathConfig};
use tailbound_sys::cgroup::{Mounts, parse_groups};
use tailbound_sys::cpuset::{Cpus, affinity};
use tailbound_sys::probe::required::{Part, skipped};
use tailbound_sys::root::Root;
use tailbound_sys::sched::{Policy, probe};
use tailbound_sys::thread::{PolicyNumber, Scheduling, scheduling};
use tailbound_units::Nanos;

/// What stands for a daemon; it ends with the test.
struct Daemon(Child);

impl Daemon {
    /// It waits, with the name of a packet loop.
    fn start() -> Self {
        let script = "printf %s \"$0\" >/proc/$$/comm; echo named; read -r _";
        let mut child = Command::new("sh")
            .args(["-c", script, LOOP_THREAD.to_str().unwrap()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = [0; 6];
        child.stdout.take().unwrap().read_exact(&mut said).unwrap();
        assert_eq!(&said, b"named\n");
        Self(child)
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
        ..PathConfig::default()
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

/// A cpuset of version 1 with all CPUs, which stands for the root's: what is moved out of it are
/// this test's processes alone.
struct Top(PathBuf);

impl Top {
    /// `None`, and says so, where none can be made.
    fn make() -> Option<Self> {
        let mounts = Mounts::read(&Root::default()).unwrap();
        let Some(root) = mounts.legacy("cpuset") else {
            skipped(Part::LegacySets, "no cpusets of version 1");
            return None;
        };
        let top = Self(root.join(format!("tailbound-top-{}", std::process::id())));
        let read = |file: &str| fs::read_to_string(root.join(file));
        let made = || -> std::io::Result<Cpus> {
            fs::create_dir(&top.0)?;
            fs::write(top.0.join("cpuset.mems"), read("cpuset.mems")?)?;
            fs::write(top.0.join("cpuset.cpus"), read("cpuset.cpus")?)?;
            Ok(top.cpus())
        };
        match made() {
            Ok(cpus) if cpus.count() > 1 => Some(top),
            Ok(_) => {
                skipped(Part::LegacySets, "a single CPU");
                None
            }
            Err(error) => {
                skipped(Part::LegacySets, error);
                None
            }
        }
    }

    fn cpus(&self) -> Cpus {
        let text = fs::read_to_string(self.0.join("cpuset.cpus")).unwrap();
        text.parse().unwrap()
    }

    fn take(&self, process: &Daemon) {
        fs::write(self.0.join("cgroup.procs"), process.pid().to_string()).unwrap();
    }

    fn sets(&self) -> usize {
        let entries = fs::read_dir(&self.0).unwrap().flatten();
        entries.filter(|entry| entry.path().is_dir()).count()
    }
}

impl Drop for Top {
    fn drop(&mut self) {
        for set in ["tailbound-path", "tailbound-rest", ""] {
            let _ = fs::remove_dir(self.0.join(set));
        }
    }
}

/// A NIC whose interrupts can be served elsewhere, and the first of them; tried by telling one
/// what it does already.
fn nic() -> Option<(String, PathBuf)> {
    let mut nics = fs::read_dir("/sys/class/net").ok()?.flatten();
    nics.find_map(|nic| {
        let device = fs::canonicalize(nic.path().join("device")).ok()?;
        let of = [Some(device.as_path()), device.parent()]
            .into_iter()
            .flatten();
        let mut numbers = of.filter_map(|at| fs::read_dir(at.join("msi_irqs")).ok());
        let numbers = numbers.next()?.flatten();
        let number = numbers
            .filter_map(|entry| entry.file_name().into_string().ok())
            .min()?;
        let file = PathBuf::from(format!("/proc/irq/{number}/smp_affinity_list"));
        let now = fs::read_to_string(&file).ok()?;
        fs::write(&file, now.trim()).ok()?;
        Some((nic.file_name().into_string().ok()?, file))
    })
}

#[test]
fn the_path_has_cpus_of_its_own_until_the_agent_ends_or_is_killed() {
    let Some(top) = Top::make() else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let (daemon, other) = (Daemon::start(), Daemon::start());
    top.take(&daemon);
    top.take(&other);
    let all = top.cpus();
    let own = Cpus::one(all.iter().last().unwrap());
    let rest = all.without(&own);
    let nic = nic();
    let served = |file: &PathBuf| fs::read_to_string(file).unwrap().trim().to_owned();
    let before = nic.as_ref().map(|(_, file)| served(file));
    let path = PathConfig {
        cpus: Some(own),
        interrupts: nic.iter().map(|(name, _)| name.clone()).collect(),
        ..PathConfig::default()
    };
    let seen = || [&daemon, &other].map(|process| affinity(process.pid()).unwrap());
    for killed in [false, true] {
        let mut watcher = watcher(directory.path(), path.clone(), Some(daemon.pid()));
        watcher.round();
        let errors = watcher.shared().lock().unwrap().errors.clone();
        assert_eq!(seen(), [own, rest], "{errors:?}");
        if let Some((_, file)) = &nic {
            assert_eq!(served(file), own.to_string());
        }
        // Once more changes nothing.
        watcher.round();
        assert_eq!((seen(), top.sets()), ([own, rest], 2));
        if killed {
            drop(watcher);
            let mut agent = Agent::open(&directory.path().join("vcpu.json")).unwrap();
            assert_eq!(agent.restore().unwrap().failed, Vec::<String>::new());
        } else {
            assert_eq!(watcher.restore().unwrap().failed, Vec::<String>::new());
        }
        assert_eq!((seen(), top.sets()), ([all; 2], 0));
        assert_eq!(nic.as_ref().map(|(_, file)| served(file)), before);
    }
    // A set of somebody else's with that CPU is in the way, and named.
    let theirs = top.0.join("theirs");
    fs::create_dir(&theirs).unwrap();
    fs::write(theirs.join("cpuset.cpus"), own.to_string()).unwrap();
    let mut watcher = watcher(directory.path(), path, Some(daemon.pid()));
    watcher.round();
    assert_eq!(seen(), [all; 2]);
    assert_eq!(watcher.shared().lock().unwrap().errors["tailbound-host"], 1);
    watcher.restore().unwrap();
    fs::remove_dir(&theirs).unwrap();
    drop((daemon, other));
}

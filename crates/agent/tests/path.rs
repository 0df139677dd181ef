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

/// A stand-in for a daemon; it ends with the test.
struct Daemon(Child);

impl Daemon {
    /// Starts a thread that waits, with the name of a packet loop.
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
    /// `None`, with a message, if the kernel has no such budgets or no group can be created.
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
    /// `None`, with a message, if none can be created.
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

/// CPUs of its own by cgroup version 2, in the machine of `scripts/cpuset-guest`: with two CPUs,
/// and nothing else in it.
mod unified {
    use super::*;
    use std::time::{Duration, Instant};
    use tailbound_sys::cpuset::set_affinity;

    const ROOT: &str = "/sys/fs/cgroup";
    const ONLINE: &str = "/sys/devices/system/cpu/cpu1/online";

    /// The daemon in a slice of its own, and a process beside it.
    struct Host {
        slice: PathBuf,
        daemon: Daemon,
        other: Daemon,
        directory: tempfile::TempDir,
    }

    fn list(cpus: &str) -> Cpus {
        cpus.parse().unwrap()
    }

    fn read(file: &Path) -> Option<String> {
        Some(fs::read_to_string(file).ok()?.trim().to_owned())
    }

    /// Enables the controller cpuset for all groups, or disables it, as systemd does.
    fn hand_down(sign: char) {
        let file = Path::new(ROOT).join("cgroup.subtree_control");
        fs::write(file, format!("{sign}cpuset")).unwrap();
    }

    fn is_handed_down() -> bool {
        let file = Path::new(ROOT).join("cgroup.subtree_control");
        read(&file).unwrap().contains("cpuset")
    }

    impl Host {
        fn start() -> Self {
            let host = Self {
                slice: Path::new(ROOT).join("tailbound.slice"),
                daemon: Daemon::start(),
                other: Daemon::start(),
                directory: tempfile::tempdir().unwrap(),
            };
            fs::create_dir(&host.slice).unwrap();
            host.enter(&host.slice);
            host
        }

        /// Moves the daemon into a group.
        fn enter(&self, group: &Path) {
            fs::write(group.join("cgroup.procs"), self.daemon.pid().to_string()).unwrap();
        }

        fn watcher(&self) -> Watcher {
            let path = PathConfig {
                cpus: Some(list("1")),
                ..PathConfig::default()
            };
            watcher(self.directory.path(), path, Some(self.daemon.pid()))
        }

        fn state(&self) -> PathBuf {
            self.directory.path().join("vcpu.json")
        }

        fn partition(&self) -> Option<String> {
            read(&self.slice.join("cpuset.cpus.partition"))
        }

        /// CPU masks of the daemon and of the other process.
        fn masks(&self) -> [Cpus; 2] {
            [&self.daemon, &self.other].map(|process| affinity(process.pid()).unwrap())
        }

        /// True if the path has its CPU, its class and its partition.
        fn has_place(&self) -> bool {
            self.partition().as_deref() == Some("root")
                && self.masks() == [list("1"), list("0")]
                && self.daemon.scheduling().policy == PolicyNumber::FIFO
        }
    }

    impl Drop for Host {
        fn drop(&mut self) {
            self.enter(Path::new(ROOT));
            // A moment passes until the group is empty to the kernel.
            let patience = Instant::now() + Duration::from_secs(5);
            while fs::remove_dir(&self.slice).is_err() && Instant::now() < patience {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }

    /// A watcher whose rounds are a second apart.
    struct Rounds {
        watcher: Watcher,
        second: u64,
    }

    impl Rounds {
        fn next(&mut self) {
            self.watcher.round_at(Nanos::from_secs(self.second));
            self.second += 1;
        }

        fn drift(&self) -> u64 {
            let shared = self.watcher.shared();
            let drift = shared.lock().unwrap().drift.clone();
            drift.values().sum()
        }

        fn errors(&self) -> String {
            format!("{:?}", self.watcher.shared().lock().unwrap().errors)
        }
    }

    #[test]
    #[ignore = "in the machine of scripts/cpuset-guest"]
    fn a_partition_ends_with_the_agent_and_frees_all_cpu_masks() {
        for was_handed_down in [false, true] {
            hand_down(if was_handed_down { '+' } else { '-' });
            let host = Host::start();
            for killed in [false, true, false, true] {
                let what = format!("handed down before: {was_handed_down}, killed: {killed}");
                let mut rounds = Rounds {
                    watcher: host.watcher(),
                    second: 0,
                };
                rounds.next();
                assert!(host.has_place(), "{what}: {}", rounds.errors());
                let restored = if killed {
                    // A killed agent leaves its state alone.
                    drop(rounds);
                    Agent::open(&host.state()).unwrap().restore()
                } else {
                    rounds.watcher.restore()
                };
                assert_eq!(restored.unwrap().failed, Vec::<String>::new(), "{what}");
                assert_eq!(host.masks(), [list("0-1"); 2], "{what}");
                let partition = host.partition();
                assert!(partition.is_none_or(|it| it == "member"), "{what}");
                assert_eq!(is_handed_down(), was_handed_down, "{what}");
                assert!(host.daemon.scheduling().is_share(), "{what}");
                assert!(!host.state().exists(), "{what}");
            }
        }
        hand_down('-');
    }

    #[test]
    #[ignore = "in the machine of scripts/cpuset-guest"]
    fn a_cpu_that_is_offline_takes_the_paths_place_only_until_it_is_online() {
        hand_down('-');
        let host = Host::start();
        let mut rounds = Rounds {
            watcher: host.watcher(),
            second: 0,
        };
        rounds.next();
        assert!(host.has_place(), "{}", rounds.errors());
        for cycle in 0..5 {
            fs::write(ONLINE, "0").unwrap();
            for _ in 0..5 {
                rounds.next();
            }
            assert_eq!(host.masks(), [list("0"); 2], "cycle {cycle}");
            assert_eq!(rounds.errors(), "{}", "cycle {cycle}");
            fs::write(ONLINE, "1").unwrap();
            rounds.next();
            rounds.next();
            let why = format!("{:?}, {:?}", host.masks(), host.partition());
            assert!(host.has_place(), "cycle {cycle}: {why} {}", rounds.errors());
        }
        assert_eq!(rounds.drift(), 0);
        assert_eq!(
            rounds.watcher.restore().unwrap().failed,
            Vec::<String>::new()
        );
        assert_eq!(host.masks(), [list("0-1"); 2]);
    }

    #[test]
    #[ignore = "in the machine of scripts/cpuset-guest"]
    fn a_cpuset_that_systemd_takes_from_all_groups_is_made_again() {
        hand_down('+');
        let host = Host::start();
        let mut rounds = Rounds {
            watcher: host.watcher(),
            second: 0,
        };
        rounds.next();
        for _ in 0..5 {
            hand_down('-');
            // Linux 6.1 gives the other process its CPU back with the next change alone.
            assert_eq!(host.masks()[0], list("0-1"));
            rounds.next();
            assert!(host.has_place(), "{}", rounds.errors());
        }
        assert_eq!(rounds.drift(), 0);
        rounds.watcher.restore().unwrap();
        assert_eq!(host.masks(), [list("0-1"); 2]);
        hand_down('-');
    }

    /// The kernel forgets a pinned thread's mask when the thread's cpuset is changed and changed
    /// back, before Linux 6.2 for ever.
    #[test]
    #[ignore = "in the machine of scripts/cpuset-guest"]
    fn a_cpuset_that_is_changed_and_changed_back_is_no_drift_of_its_threads() {
        hand_down('+');
        let host = Host::start();
        let group = Path::new(ROOT).join("guest.slice");
        fs::create_dir(&group).unwrap();
        fs::write(group.join("cgroup.procs"), host.other.pid().to_string()).unwrap();
        let pid = host.other.pid();
        set_affinity(pid, &list("1")).unwrap();
        let rules =
            format!("[[guest]]\npid = {pid}\nclass = {{ kind = \"aperiodic\", weight = 1 }}\n");
        let config = AgentConfig {
            state: host.state(),
            bpf: false,
            ..AgentConfig::parse(&rules).unwrap()
        };
        let mut rounds = Rounds {
            watcher: Watcher::open(config).unwrap(),
            second: 0,
        };
        rounds.next();
        for _ in 0..5 {
            for (cpus, has) in [("0", "0"), ("0-1", "1")] {
                fs::write(group.join("cpuset.cpus"), cpus).unwrap();
                rounds.next();
                assert_eq!(affinity(pid).unwrap(), list(has));
                assert_eq!(rounds.errors(), "{}");
            }
        }
        assert_eq!(rounds.drift(), 0);
        rounds.watcher.restore().unwrap();
        fs::write(Path::new(ROOT).join("cgroup.procs"), pid.to_string()).unwrap();
        fs::remove_dir(&group).unwrap();
        hand_down('-');
    }
}

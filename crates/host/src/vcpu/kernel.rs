//! The machine: the only part of the agent that makes system calls on threads,
//! behind a trait so that tests can put failures where they like.

use super::admission::{CPU, Domain, Limits, of};
use super::class::{Class, bandwidth};
use super::plan::{GroupSeen, Machine, Move, Observed, Seen, ThreadState, Wish};
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io;
use std::os::linux::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use tailbound_sys::cgroup::{self, Mounts, Partition, WeightKind, parse_groups};
use tailbound_sys::cpuset::{Cpus, affinity, set_affinity};
use tailbound_sys::procfs;
use tailbound_sys::sched;
use tailbound_sys::thread::{
    Scheduling, Tasks, ThreadId, release_bandwidth, scheduling, set_scheduling,
};
use tailbound_units::Nanos;

/// What the agent does to threads and groups.
pub trait Kernel {
    /// How a thread is; `None` when it is gone, even if its number is used again.
    ///
    /// # Errors
    /// What the system answered.
    fn state(&mut self, thread: ThreadId) -> io::Result<Option<ThreadState>>;
    /// One system call on a thread.
    ///
    /// # Errors
    /// What the system answered.
    fn make(&mut self, thread: ThreadId, step: &Move) -> io::Result<()>;
    /// A group's weight; `None` when the group is gone.
    fn weight(&mut self, directory: &Path, kind: WeightKind) -> Option<u64>;
    /// Gives a group a weight.
    ///
    /// # Errors
    /// What the system answered.
    fn set_weight(&mut self, directory: &Path, kind: WeightKind, weight: u64) -> io::Result<()>;
}

/// The machine we are on.
#[derive(Debug)]
pub struct Linux {
    /// The kernel's own slice: what reads back where nobody asked for one.
    base_slice: Nanos,
    slices: bool,
    mounts: Mounts,
    tasks: HashMap<u32, Tasks>,
}

impl Linux {
    /// Learns what this kernel has.
    ///
    /// # Errors
    /// No thread can be started to try it on, or `/proc` is not there.
    pub fn new() -> io::Result<Self> {
        // Unlike every kernel's own.
        let odd = Nanos::from_micros(300);
        Ok(Self {
            base_slice: base_slice()?,
            slices: sched::probe_slice(odd).is_ok_and(|seen| seen == odd),
            mounts: Mounts::read()?,
            tasks: HashMap::new(),
        })
    }

    /// Where control groups are mounted.
    pub fn mounts(&self) -> &Mounts {
        &self.mounts
    }

    /// The threads of a process, opened once.
    fn tasks(&mut self, pid: u32) -> io::Result<Option<&Tasks>> {
        use std::collections::hash_map::Entry;
        match self.tasks.entry(pid) {
            Entry::Occupied(known) => Ok(Some(known.into_mut())),
            Entry::Vacant(place) => match Tasks::open(pid) {
                Ok(tasks) => Ok(Some(place.insert(tasks))),
                Err(error) if is_gone(&error) => Ok(None),
                Err(error) => Err(error),
            },
        }
    }

    /// Forgets the processes it has opened; do so between rounds, since their
    /// numbers are used again.
    pub fn forget(&mut self) {
        self.tasks.clear();
    }

    /// Looks at all that `wishes` are about.
    ///
    /// # Errors
    /// What the system answered; threads and groups that are gone are none.
    pub fn observe(&mut self, wishes: &[Wish]) -> io::Result<Observed> {
        let periodic = |wish: &Wish| matches!(wish.class, Class::Periodic(_));
        let any_periodic = wishes.iter().any(periodic);
        let online: Cpus = fs::read_to_string("/sys/devices/system/cpu/online")?
            .parse()
            .map_err(io::Error::other)?;
        let mut machine = Machine {
            domains: domains(online, &self.mounts.partitions()),
            limits: limits(),
            slices: self.slices,
            privileged: privileged(),
        };
        if any_periodic {
            book(&mut machine.domains)?;
        }
        let me = rustix::process::geteuid().as_raw();
        let autogroups = sysctl("sched_autogroup_enabled") == Some(1);
        let mut owners: HashMap<u32, (bool, bool)> = HashMap::new();
        let mut sets: HashMap<PathBuf, Cpus> = HashMap::new();
        let mut threads = BTreeMap::new();
        let mut groups = BTreeMap::new();
        for wish in wishes {
            let ThreadId { pid, tid, .. } = wish.thread;
            let Some((state, processor)) = self.look(wish.thread)? else {
                continue;
            };
            let allowed = if periodic(wish) {
                self.allowed(pid, tid, &mut sets).unwrap_or(online)
            } else {
                online
            };
            let (ours, autogrouped) = *owners.entry(pid).or_insert_with(|| {
                let owner = fs::metadata(format!("/proc/{pid}"));
                let ours = owner.is_ok_and(|seen| seen.st_uid() == me);
                (ours, autogroups && !self.weighed(pid))
            });
            let seen = Seen {
                state,
                processor,
                allowed,
                ours,
                autogrouped,
            };
            threads.insert(wish.thread, seen);
            if let Some(directory) = &wish.group
                && !groups.contains_key(directory)
                && let Some(seen) = group(directory)
            {
                groups.insert(directory.clone(), seen);
            }
        }
        Ok(Observed {
            threads,
            groups,
            machine,
        })
    }

    /// A thread's state, and where it ran last.
    fn look(&mut self, thread: ThreadId) -> io::Result<Option<(ThreadState, u32)>> {
        let base_slice = self.base_slice;
        let Some(tasks) = self.tasks(thread.pid)? else {
            return Ok(None);
        };
        let stat = match tasks.stat(thread.tid)? {
            Some(stat) if stat.start == thread.start && stat.state != 'Z' => stat,
            _ => return Ok(None),
        };
        let read = || -> io::Result<ThreadState> {
            Ok(ThreadState {
                scheduling: own_slice(scheduling(thread.tid)?, base_slice),
                cpus: affinity(thread.tid)?,
            })
        };
        match read() {
            Ok(state) => Ok(Some((state, stat.processor))),
            Err(error) if is_gone(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether a process is in a control group that has a weight.
    fn weighed(&self, pid: u32) -> bool {
        let Ok(text) = fs::read_to_string(format!("/proc/{pid}/cgroup")) else {
            return false;
        };
        let found = self.mounts.directory(&parse_groups(&text), "cpu");
        found.is_some_and(|(directory, _)| group(&directory).is_some() && !self.is_root(&directory))
    }

    /// Whether a directory is the root of a hierarchy.
    fn is_root(&self, directory: &Path) -> bool {
        let legacy = self.mounts.legacy.iter().map(|(_, at)| at.as_path());
        let mut roots = self.mounts.unified.as_deref().into_iter().chain(legacy);
        let same = |root: &Path| root.components().eq(directory.components());
        roots.any(same)
    }

    /// What a thread's cpuset leaves it.
    fn allowed(&self, pid: u32, tid: u32, sets: &mut HashMap<PathBuf, Cpus>) -> Option<Cpus> {
        let text = fs::read_to_string(format!("/proc/{pid}/task/{tid}/cgroup")).ok()?;
        let (directory, _) = self.mounts.directory(&parse_groups(&text), "cpuset")?;
        if let Some(known) = sets.get(&directory) {
            return Some(*known);
        }
        let cpus = cgroup::effective_cpus(&directory)?;
        sets.insert(directory, cpus);
        Some(cpus)
    }
}

impl Kernel for Linux {
    fn state(&mut self, thread: ThreadId) -> io::Result<Option<ThreadState>> {
        Ok(self.look(thread)?.map(|(state, _)| state))
    }

    fn make(&mut self, thread: ThreadId, step: &Move) -> io::Result<()> {
        let ThreadId { tid, .. } = thread;
        match step {
            Move::Release(before) => release_bandwidth(tid, before.flags),
            Move::Affinity(cpus) => set_affinity(tid, cpus),
            Move::Schedule(wanted) => set_scheduling(tid, wanted),
        }
    }

    fn weight(&mut self, directory: &Path, kind: WeightKind) -> Option<u64> {
        cgroup::weight(directory, kind)
    }

    fn set_weight(&mut self, directory: &Path, kind: WeightKind, weight: u64) -> io::Result<()> {
        cgroup::set_weight(directory, kind, weight)
    }
}

/// Whether an error says that a thread or process has ended.
pub(super) fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
        || rustix::io::Errno::from_io_error(error) == Some(rustix::io::Errno::SRCH)
}

/// A slice that nobody asked for is no slice of the thread's own.
fn own_slice(seen: Scheduling, base: Nanos) -> Scheduling {
    if seen.is_share() && seen.runtime == base {
        return Scheduling {
            runtime: Nanos::ZERO,
            ..seen
        };
    }
    seen
}

/// What reads back as the slice of a thread that has none of its own.
fn base_slice() -> io::Result<Nanos> {
    let plain = || {
        // A thread inherits its creator's slice.
        set_scheduling(
            0,
            &Scheduling {
                nice: scheduling(0)?.nice,
                ..Scheduling::PLAIN
            },
        )?;
        Ok(scheduling(0)?.runtime)
    };
    let thread = std::thread::Builder::new().spawn(plain)?;
    match thread.join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// `CAP_SYS_NICE` counts in the initial user namespace alone.
fn privileged() -> bool {
    use rustix::thread::CapabilitySet;
    let initial = fs::read_to_string("/proc/self/uid_map")
        .is_ok_and(|map| map.split_ascii_whitespace().eq(["0", "0", "4294967295"]));
    initial
        && rustix::thread::capabilities(None)
            .is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_NICE))
}

fn group(directory: &Path) -> Option<GroupSeen> {
    let kinds = [WeightKind::Weight, WeightKind::Shares];
    kinds.into_iter().find_map(|kind| {
        let weight = cgroup::weight(directory, kind)?;
        Some(GroupSeen { kind, weight })
    })
}

/// The root domains that `partitions` make of the CPUs `online`.
pub(super) fn domains(online: Cpus, partitions: &[Partition]) -> Vec<Domain> {
    let mut found: Vec<Cpus> = Vec::new();
    // CPUs without load balancing all share the kernel's default root domain.
    let mut unbalanced = Cpus::default();
    let mut rest = online;
    for partition in partitions {
        let mut cpus = partition.cpus.and(&online);
        rest = rest.without(&cpus);
        if !partition.balanced {
            unbalanced = unbalanced.or(&cpus);
            continue;
        }
        // Sets that overlap are balanced as one (version 1).
        found.retain(|other| {
            let apart = other.and(&cpus).is_empty();
            if !apart {
                cpus = cpus.or(other);
            }
            apart
        });
        found.push(cpus);
    }
    found.extend([unbalanced, rest]);
    found
        .into_iter()
        .filter(|cpus| !cpus.is_empty())
        .map(|cpus| Domain {
            cpus,
            booked: BTreeMap::new(),
        })
        .collect()
}

/// Enters every reservation on the machine into its domain.
fn book(domains: &mut [Domain]) -> io::Result<()> {
    /// A reservation of the kernel's own (frequency scaling), which is not booked.
    const SPECIAL: u64 = 0x1000_0000;
    for pid in procfs::processes()? {
        // Processes and threads may end at any time.
        let Ok(threads) = procfs::threads(pid) else {
            continue;
        };
        for tid in threads {
            let Ok(seen) = scheduling(tid) else { continue };
            if !seen.is_deadline() || seen.flags & SPECIAL != 0 {
                continue;
            }
            let stat = Tasks::open(pid).and_then(|tasks| tasks.stat(tid));
            let Ok(Some(stat)) = stat else { continue };
            let thread = ThreadId {
                pid,
                tid,
                start: stat.start,
            };
            let domain = domains
                .iter_mut()
                .find(|domain| domain.cpus.contains(stat.processor));
            if let Some(domain) = domain {
                domain.booked.insert(thread, of(&seen));
            }
        }
    }
    Ok(())
}

fn sysctl(name: &str) -> Option<i64> {
    let text = fs::read_to_string(format!("/proc/sys/kernel/{name}")).ok()?;
    text.trim().parse().ok()
}

fn limits() -> Limits {
    let micros = |name, default| {
        let value = sysctl(name).and_then(|micros| u64::try_from(micros).ok());
        Nanos::from_micros(value.unwrap_or(default))
    };
    let runtime = sysctl("sched_rt_runtime_us").unwrap_or(950_000);
    let share = u64::try_from(runtime).ok().map(|runtime| {
        let period = micros("sched_rt_period_us", 1_000_000);
        bandwidth(Nanos::from_micros(runtime), period)
    });
    Limits {
        share,
        fair_server: fair_server(),
        periods: (
            micros("sched_deadline_period_min_us", 100),
            micros("sched_deadline_period_max_us", 1 << 22),
        ),
    }
}

/// What the fair server books of each CPU: as debugfs says, otherwise what it is
/// by default.
fn fair_server() -> u64 {
    let number = |file: &str| -> Option<u64> {
        let path = format!("/sys/kernel/debug/sched/fair_server/cpu0/{file}");
        fs::read_to_string(path).ok()?.trim().parse().ok()
    };
    if let (Some(runtime), Some(period)) = (number("runtime"), number("period")) {
        return bandwidth(Nanos(runtime), Nanos(period));
    }
    let name = rustix::system::uname();
    if since(&name.release().to_string_lossy(), (6, 12)) {
        CPU / 20
    } else {
        0
    }
}

/// Whether a kernel's release is that version or later.
fn since(release: &str, version: (u32, u32)) -> bool {
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map_while(|number| number.parse::<u32>().ok());
    match (numbers.next(), numbers.next()) {
        (Some(major), Some(minor)) => (major, minor) >= version,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_is_compared_by_its_numbers() {
        assert!(since("6.12.0-rc1", (6, 12)));
        assert!(since("7.0", (6, 12)));
        assert!(!since("6.9.12-generic", (6, 12)));
        assert!(!since("", (6, 12)));
    }

    fn partition(cpus: &str, balanced: bool) -> Partition {
        Partition {
            directory: "x".into(),
            cpus: cpus.parse().unwrap(),
            balanced,
        }
    }

    #[test]
    fn partitions_leave_the_rest_as_one_domain() {
        let cases: [(&[Partition], &str); 4] = [
            (&[], "0-7"),
            (&[partition("2-3", true)], "2-3 0-1,4-7"),
            (
                &[partition("2", false), partition("4", false)],
                "2,4 0-1,3,5-7",
            ),
            (
                &[
                    partition("0-3", true),
                    partition("3-4", true),
                    partition("5-7", true),
                ],
                "0-4 5-7",
            ),
        ];
        for (partitions, expected) in cases {
            let found = domains("0-7".parse().unwrap(), partitions);
            let text: Vec<_> = found.iter().map(|domain| domain.cpus.to_string()).collect();
            assert_eq!(text.join(" "), expected);
        }
    }
}

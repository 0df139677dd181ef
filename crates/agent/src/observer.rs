//! Reads the inputs of a plan: threads, control groups, and limits of the host. Files are read
//! under a [`Root`], and all other facts come from [`SystemCalls`], so that a recorded host is read
//! as this one is.

use super::calls::{Facts, Live, SystemCalls, has_exited};
use super::class::{CPU, Class, Periodic, bandwidth};
use super::desired::Desired;
use super::guidance::KernelVersion;
use super::losses::InterruptTime;
use super::observed::{
    Domain, Limits, Observed, ObservedGroup, ObservedMachine, ObservedThread, ThreadState,
};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use tailbound_sys::cgroup::{self, Groups, Mounts, Partition, Quota, WeightKind, parse_groups};
use tailbound_sys::cpuset::Cpus;
use tailbound_sys::procfs;
use tailbound_sys::root::Root;
use tailbound_sys::thread::{Scheduling, Tasks, ThreadId};
use tailbound_units::Nanos;

/// Properties that all threads of a process share.
#[derive(Debug, Clone, Copy)]
struct ObservedProcess {
    ours: bool,
    autogrouped: bool,
}

/// Reads a machine again and again.
#[derive(Debug)]
pub struct Observer {
    root: Root,
    calls: Box<dyn SystemCalls>,
    facts: Facts,
    mounts: Mounts,
    tasks: HashMap<u32, Tasks>,
}

impl Observer {
    /// Reads this machine.
    ///
    /// # Errors
    /// No thread can be started to try on it what this kernel has, or `/proc` is
    /// not there.
    pub fn new() -> io::Result<Self> {
        Self::on(Root::default(), Facts::of_this_machine()?, Box::new(Live))
    }

    /// Reads the machine whose files are under `root`.
    ///
    /// # Errors
    /// `/proc` is not there.
    pub fn on(root: Root, facts: Facts, calls: Box<dyn SystemCalls>) -> io::Result<Self> {
        Ok(Self {
            mounts: Mounts::read(&root)?,
            root,
            calls,
            facts,
            tasks: HashMap::new(),
        })
    }

    /// Reads the machine alone, with all reservations on it.
    ///
    /// # Errors
    /// The system's error.
    pub fn machine(&self) -> io::Result<ObservedMachine> {
        let mut machine = self.machine_unbooked()?;
        self.book(&mut machine.domains)?;
        Ok(machine)
    }

    /// Returns the version of the kernel; 0.0 if its release begins with no numbers.
    fn kernel(&self) -> KernelVersion {
        let kernel = KernelVersion::of_release(&self.facts.release);
        kernel.unwrap_or(KernelVersion::new(0, 0))
    }

    fn machine_unbooked(&self) -> io::Result<ObservedMachine> {
        let kernel = self.kernel();
        Ok(ObservedMachine {
            domains: domains(self.online()?, &self.mounts.partitions()),
            limits: self.limits(),
            slices: self.facts.slices,
            slice_timers: self
                .feature("HRTICK")
                .unwrap_or_else(|| kernel >= KernelVersion::new(7, 0)),
            kernel,
            privileged: self.facts.privileged,
        })
    }

    fn online(&self) -> io::Result<Cpus> {
        let online = fs::read_to_string(self.root.path("/sys/devices/system/cpu/online"))?;
        online.parse().map_err(io::Error::other)
    }

    /// Returns how the kernel counts what interrupts take.
    #[must_use]
    pub const fn interrupt_time(&self) -> InterruptTime {
        self.facts.interrupt_time
    }

    /// Returns the text of `/proc/stat`.
    ///
    /// # Errors
    /// The system's error.
    pub fn stat(&self) -> io::Result<String> {
        fs::read_to_string(self.root.path("/proc/stat"))
    }

    /// Returns the threads of a process, opened once; `None` when it has exited.
    fn tasks(&mut self, pid: u32) -> io::Result<Option<&Tasks>> {
        use std::collections::hash_map::Entry;
        match self.tasks.entry(pid) {
            Entry::Occupied(known) => Ok(Some(known.into_mut())),
            Entry::Vacant(place) => match Tasks::open(&self.root, pid) {
                Ok(tasks) => Ok(Some(place.insert(tasks))),
                Err(error) if has_exited(&error) => Ok(None),
                Err(error) => Err(error),
            },
        }
    }

    /// Forgets the processes it has opened; do so between rounds, since their
    /// numbers are used again.
    pub fn forget(&mut self) {
        self.tasks.clear();
    }

    /// Reads all that the desired states are about.
    ///
    /// # Errors
    /// The system's error. Exited threads and removed groups are left out.
    pub fn observe(&mut self, desired: &[Desired]) -> io::Result<Observed> {
        let periodic = |wanted: &Desired| matches!(wanted.class, Class::Periodic(_));
        let real_time = |wanted: &Desired| wanted.class == Class::RealTime;
        let any = desired.iter().any(|it| periodic(it) || real_time(it));
        let online = self.online()?;
        let mut machine = self.machine_unbooked()?;
        if any {
            self.book(&mut machine.domains)?;
        }
        let autogroups = self.sysctl("sched_autogroup_enabled") == Some(1);
        let mut processes: HashMap<u32, ObservedProcess> = HashMap::new();
        let mut sets: HashMap<PathBuf, Cpus> = HashMap::new();
        let mut quotas = HashMap::new();
        let mut threads = BTreeMap::new();
        let mut groups = BTreeMap::new();
        for wanted in desired {
            let ThreadId { pid, tid, .. } = wanted.thread;
            let Some((state, processor)) = self.look(wanted.thread)? else {
                continue;
            };
            let own = self.groups(pid, tid);
            let allowed = own.as_ref().and_then(|own| self.allowed(own, &mut sets));
            let allowed = allowed.unwrap_or(online);
            let process = processes.entry(pid).or_insert_with(|| ObservedProcess {
                ours: self.owner(pid) == Some(self.facts.user),
                autogrouped: autogroups && !self.weighed(pid),
            });
            let no_real_time = real_time(wanted).then(|| self.no_real_time(pid)).flatten();
            let seen = ObservedThread {
                state,
                processor,
                no_real_time,
                allowed,
                ours: process.ours,
                autogrouped: process.autogrouped,
                quota: own.and_then(|own| self.quota(&own, &mut quotas)),
            };
            threads.insert(wanted.thread, seen);
            if let Some(directory) = wanted.weighed.group()
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

    /// Returns a thread's state and where it ran last; `None` when it has exited, even
    /// if its number is used again.
    ///
    /// # Errors
    /// The system's error.
    pub fn look(&mut self, thread: ThreadId) -> io::Result<Option<(ThreadState, u32)>> {
        let Some(tasks) = self.tasks(thread.pid)? else {
            return Ok(None);
        };
        let stat = match tasks.stat(thread.tid)? {
            Some(stat) if stat.start == thread.start && stat.state != 'Z' => stat,
            _ => return Ok(None),
        };
        let read = || -> io::Result<ThreadState> {
            Ok(ThreadState {
                scheduling: own_slice(self.calls.scheduling(thread.tid)?, self.facts.base_slice),
                cpus: self.calls.affinity(thread.tid)?,
            })
        };
        match read() {
            Ok(state) => Ok(Some((state, stat.processor))),
            Err(error) if has_exited(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the user of a process.
    fn owner(&self, pid: u32) -> Option<u32> {
        self.calls.credentials(pid)?.uid
    }

    /// Returns true if a process is in a control group with a weight.
    fn weighed(&self, pid: u32) -> bool {
        let Ok(text) = fs::read_to_string(self.root.path(format!("/proc/{pid}/cgroup"))) else {
            return false;
        };
        let found = self.mounts.directory(&parse_groups(&text), "cpu");
        found.is_some_and(|(directory, _)| group(&directory).is_some() && !self.is_root(&directory))
    }

    /// Returns the group of a process in which the kernel permits no real-time class. In version 1
    /// a group has a budget, which is zero at first; in version 2 only the root has one.
    fn no_real_time(&self, pid: u32) -> Option<PathBuf> {
        let text = fs::read_to_string(self.root.path(format!("/proc/{pid}/cgroup"))).ok()?;
        let (directory, unified) = self.mounts.directory(&parse_groups(&text), "cpu")?;
        if !self.facts.groups_real_time || self.is_root(&directory) {
            return None;
        }
        let budget = || fs::read_to_string(directory.join("cpu.rt_runtime_us"));
        (unified || budget().is_ok_and(|text| text.trim() == "0")).then_some(directory)
    }

    /// Returns true if a directory is the root of a hierarchy.
    fn is_root(&self, directory: &Path) -> bool {
        let legacy = self.mounts.legacy.iter().map(|(_, at)| at.as_path());
        let mut roots = self.mounts.unified.as_deref().into_iter().chain(legacy);
        let same = |root: &Path| root.components().eq(directory.components());
        roots.any(same)
    }

    /// Returns the control groups of a thread; `None` when it has exited.
    fn groups(&self, pid: u32, tid: u32) -> Option<Groups> {
        let path = format!("/proc/{pid}/task/{tid}/cgroup");
        let text = fs::read_to_string(self.root.path(path)).ok()?;
        Some(parse_groups(&text))
    }

    /// Returns the CPUs that a thread's cpuset leaves it.
    fn allowed(&self, groups: &Groups, sets: &mut HashMap<PathBuf, Cpus>) -> Option<Cpus> {
        let own = self.mounts.directory(groups, "cpuset");
        let directory = match own {
            Some((directory, _)) => directory,
            None => self.inherited_set(groups)?,
        };
        if let Some(known) = sets.get(&directory) {
            return Some(*known);
        }
        let cpus = cgroup::effective_cpus(&directory)?;
        sets.insert(directory, cpus);
        Some(cpus)
    }

    /// Returns the group whose cpuset counts for a thread whose own group has none (version 2).
    fn inherited_set(&self, groups: &Groups) -> Option<PathBuf> {
        let at = self.mounts.unified.as_deref()?;
        let own = at.join(groups.unified.as_deref()?.trim_start_matches('/'));
        let mut levels = own.ancestors().take_while(|level| level.starts_with(at));
        let found = levels.find(|level| level.join("cpuset.cpus.effective").exists());
        found.map(Path::to_owned)
    }

    /// Returns the tightest quota among the groups of a thread.
    fn quota(
        &self,
        groups: &Groups,
        known: &mut HashMap<PathBuf, Option<(PathBuf, Quota)>>,
    ) -> Option<(PathBuf, Quota)> {
        let levels = levels(&self.mounts, groups);
        let innermost = levels.first()?.clone();
        let tightest = known.entry(innermost).or_insert_with(|| {
            let quotas = levels
                .iter()
                .filter_map(|at| Some((at.clone(), cgroup::quota(at)?)));
            let share = |quota: &Quota| bandwidth(quota.runtime, quota.period);
            quotas.min_by_key(|(_, quota)| share(quota))
        });
        tightest.clone()
    }

    /// Enters every reservation on the machine into its domain.
    fn book(&self, domains: &mut [Domain]) -> io::Result<()> {
        /// A reservation of the kernel's own (frequency scaling), which is not booked.
        const SPECIAL: u64 = 0x1000_0000;
        for pid in procfs::processes(&self.root)? {
            // Processes and threads may end at any time.
            let Ok(tasks) = Tasks::open(&self.root, pid) else {
                continue;
            };
            for tid in tasks.list().unwrap_or_default() {
                let Ok(seen) = self.calls.scheduling(tid) else {
                    continue;
                };
                if !seen.is_deadline() || seen.flags & SPECIAL != 0 {
                    continue;
                }
                let Ok(Some(stat)) = tasks.stat(tid) else {
                    continue;
                };
                let thread = ThreadId {
                    pid,
                    tid,
                    start: stat.start,
                };
                let domain = domains
                    .iter_mut()
                    .find(|domain| domain.cpus.contains(stat.processor));
                if let Some(domain) = domain {
                    domain.booked.insert(thread, Periodic::from(&seen));
                    if seen.flags & Scheduling::RECLAIM != 0 {
                        domain.reclaiming.insert(thread);
                    }
                }
            }
        }
        Ok(())
    }

    fn sysctl(&self, name: &str) -> Option<i64> {
        let text = fs::read_to_string(self.root.path(format!("/proc/sys/kernel/{name}"))).ok()?;
        text.trim().parse().ok()
    }

    fn limits(&self) -> Limits {
        let micros = |name, default| {
            let value = self
                .sysctl(name)
                .and_then(|micros| u64::try_from(micros).ok());
            Nanos::from_micros(value.unwrap_or(default))
        };
        let runtime = self.sysctl("sched_rt_runtime_us").unwrap_or(950_000);
        let share = u64::try_from(runtime).ok().map(|runtime| {
            let period = micros("sched_rt_period_us", 1_000_000);
            bandwidth(Nanos::from_micros(runtime), period)
        });
        Limits {
            share,
            fair_server: self.fair_server(),
            periods: micros("sched_deadline_period_min_us", 100)
                ..=micros("sched_deadline_period_max_us", 1 << 22),
            overrun: if self.feature("HRTICK_DL") == Some(true) {
                Nanos::ZERO
            } else {
                self.facts.tick
            },
            tick: self.facts.tick,
        }
    }

    /// Returns whether a feature of the scheduler is on; `None` if debugfs does not show it.
    fn feature(&self, name: &str) -> Option<bool> {
        let file = self.root.path("/sys/kernel/debug/sched/features");
        let features = fs::read_to_string(file).ok()?;
        let mut features = features.split_whitespace();
        features.find_map(|one| match one.strip_prefix("NO_") {
            Some(off) if off == name => Some(false),
            _ => (one == name).then_some(true),
        })
    }

    /// Returns the fair server's reservation on each CPU: from debugfs, otherwise its default.
    fn fair_server(&self) -> u64 {
        let number = |file: &str| -> Option<u64> {
            let path = format!("/sys/kernel/debug/sched/fair_server/cpu0/{file}");
            fs::read_to_string(self.root.path(path))
                .ok()?
                .trim()
                .parse()
                .ok()
        };
        if let (Some(runtime), Some(period)) = (number("runtime"), number("period")) {
            return bandwidth(Nanos(runtime), Nanos(period));
        }
        if self.kernel() >= KernelVersion::new(6, 12) {
            CPU / 20
        } else {
            0
        }
    }
}

/// Returns the directories of the groups that a process is in for its CPU, the innermost
/// first, without the hierarchy's root.
pub(crate) fn levels(mounts: &Mounts, groups: &Groups) -> Vec<PathBuf> {
    let Some((directory, unified)) = mounts.directory(groups, "cpu") else {
        return Vec::new();
    };
    let root = if unified {
        mounts.unified.as_deref()
    } else {
        mounts.legacy("cpu")
    };
    let Some(root) = root else {
        return Vec::new();
    };
    let below = |at: &&Path| at.starts_with(root) && !at.components().eq(root.components());
    let levels = directory.ancestors().take_while(below);
    levels.map(Path::to_owned).collect()
}

/// Returns the observed scheduling without the kernel's default slice.
fn own_slice(seen: Scheduling, base: Nanos) -> Scheduling {
    if seen.is_share() && seen.runtime == base {
        return Scheduling {
            runtime: Nanos::ZERO,
            ..seen
        };
    }
    seen
}

/// Returns true if no CPU is in two of `sets`.
fn disjoint(sets: &[Cpus]) -> bool {
    let mut seen = Cpus::default();
    sets.iter().all(|cpus| {
        let apart = seen.and(cpus).is_empty();
        seen = seen.or(cpus);
        apart
    })
}

fn group(directory: &Path) -> Option<ObservedGroup> {
    let kinds = [WeightKind::Weight, WeightKind::Shares];
    kinds.into_iter().find_map(|kind| {
        let weight = cgroup::weight(directory, kind)?;
        Some(ObservedGroup { kind, weight })
    })
}

/// Returns the root domains that `partitions` make of the CPUs `online`.
fn domains(online: Cpus, partitions: &[Partition]) -> Vec<Domain> {
    let mut domains: Vec<Cpus> = Vec::new();
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
        domains.retain(|other| {
            let apart = other.and(&cpus).is_empty();
            if !apart {
                cpus = cpus.or(other);
            }
            apart
        });
        domains.push(cpus);
    }
    domains.extend([unbalanced, rest]);
    debug_assert!(
        disjoint(&domains),
        "a CPU is in one root domain: {domains:?} of {online}"
    );
    domains
        .into_iter()
        .filter(|cpus| !cpus.is_empty())
        .map(|cpus| Domain {
            cpus,
            booked: BTreeMap::new(),
            reclaiming: BTreeSet::new(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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

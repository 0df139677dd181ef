//! The guests of a host: one identity for network and CPU, read-only.
//!
//! [`Inventory::look`] finds libvirt's domains, pods, containers, plain VMMs and network namespaces
//! with processes in them. [`Identity`] is decided by what the kernel vouches for: control groups
//! that only root could have made, `/proc`, rtnetlink; and by files that only root writes. A
//! guest's own words decide nothing. Each guest has its threads, the host's interfaces of it, and
//! its own limits; [`Inventory::owner`] returns the owner of a thread that had a CPU.

mod find;
mod identity;
mod names;
mod network;
mod owners;
mod processes;
mod resolve;

use super::calls::{Live, SystemCalls};
use super::cri::PodNames;
use super::guest::GuestThread;
use super::observer::levels;
use super::scan::GroupQuota;
use super::scan::groups::Hierarchies;
use super::text::printable;
use owners::{OwnerCache, RunTime, had_started, is_real_time, suspended};
use processes::{Processes, netns};
use resolve::{Member, Resolver, slots};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tailbound_sys::cgroup::{self, Groups, Mounts, parse_groups};
use tailbound_sys::interfaces::{Interface, Limit};
use tailbound_sys::root::Root;
use tailbound_sys::thread::{Stat, Tasks, ThreadId, parse_stat};
use tailbound_sys::waits::Run;
use tailbound_units::Nanos;

pub use find::FindError;
pub use identity::{Identity, Runtime};
pub use network::{HostInterface, InterfaceKind, Kernel, Network};
pub use owners::{Owner, ThreadOwner};

/// Largest number of a guest's listed threads, unless [`Inventory::bound`] changes it.
const MAX_THREADS: usize = 64;
/// A name that was not found is looked for again after this.
const NAME_RETRY: Duration = Duration::from_secs(30);

/// A guest.
#[derive(Debug, Clone)]
pub struct Guest {
    /// Its key: stable, and no other guest's.
    pub key: Arc<str>,
    /// The name that a person types; another guest may have the same.
    pub name: String,
    /// Its identity.
    pub identity: Identity,
    /// The containers of a pod, by id, with their names where known; else empty.
    pub containers: BTreeMap<String, Option<String>>,
    /// Its processes, the oldest first.
    pub processes: Vec<ThreadId>,
    /// Its threads, at most the number that [`Inventory::bound`] set, then the busiest.
    pub threads: Vec<GuestThread>,
    /// The count of its other threads.
    pub beyond: usize,
    /// The host's interfaces of it.
    pub interfaces: Vec<HostInterface>,
    /// A process in each network namespace of its own.
    pub networks: Vec<u32>,
    /// The limits of traffic control on these.
    pub limits: Vec<Limit>,
    /// The CPU quotas of its control groups, and what each did.
    pub quotas: Vec<GroupQuota>,
    /// The directory of its control group for the CPU; `None` without one of its own.
    pub group: Option<PathBuf>,
    /// The facts about the guest that are not known, and why.
    pub notes: Vec<String>,
}

/// Returns the labels that a guest's starter gave it: those of a Docker container, in a file that only
/// root writes. None of other guests.
pub fn labels(guest: &Identity) -> BTreeMap<String, String> {
    match guest {
        Identity::Container {
            runtime: Runtime::Docker,
            id,
            ..
        } => names::docker_labels(&Root::default(), id),
        _ => BTreeMap::new(),
    }
}

/// The guests of a host, looked at again and again.
#[derive(Debug)]
pub struct Inventory {
    root: Root,
    calls: Box<dyn SystemCalls>,
    network: Box<dyn Network>,
    user: u32,
    hierarchies: Hierarchies,
    processes: Processes,
    pods: PodNames,
    cri: Option<PathBuf>,
    /// Names in state files, and when each was looked for.
    names: HashMap<String, (Option<String>, Instant)>,
    bound: usize,
    /// The CPU time of threads of guests that have too many.
    ran: HashMap<ThreadId, Nanos>,
    guests: Vec<Guest>,
    /// The guest of each process, by its number and start.
    by_process: HashMap<(u32, u64), usize>,
    /// The guest of each control group for the CPU, by the group's inode.
    by_group: HashMap<u64, Arc<str>>,
    remembered: OwnerCache,
    notes: Vec<String>,
}

impl Inventory {
    /// Reads this host.
    ///
    /// # Errors
    /// `/proc` is not there.
    pub fn new() -> io::Result<Self> {
        let user = rustix::process::geteuid().as_raw();
        Self::on(Root::default(), user, Box::new(Live), Box::new(Kernel))
    }

    /// Reads the host whose files are under `root`, as the user `user`.
    ///
    /// # Errors
    /// `/proc` is not there.
    pub fn on(
        root: Root,
        user: u32,
        calls: Box<dyn SystemCalls>,
        network: Box<dyn Network>,
    ) -> io::Result<Self> {
        Ok(Self {
            hierarchies: Hierarchies::new(Mounts::read(&root)?),
            root,
            calls,
            network,
            user,
            processes: Processes::default(),
            pods: PodNames::default(),
            cri: None,
            names: HashMap::new(),
            bound: MAX_THREADS,
            ran: HashMap::new(),
            guests: Vec::new(),
            by_process: HashMap::new(),
            by_group: HashMap::new(),
            remembered: OwnerCache::default(),
            notes: Vec::new(),
        })
    }

    /// Sets the socket of the container runtime; without one, the usual sockets are tried.
    pub fn ask_runtime(&mut self, socket: Option<PathBuf>) {
        self.cri = socket;
    }

    /// Sets how many threads of a guest are listed.
    pub fn bound(&mut self, threads: usize) {
        self.bound = threads;
    }

    /// The guests as they were last looked at, by key.
    pub fn guests(&self) -> &[Guest] {
        &self.guests
    }

    /// The facts that the last look could not find out, and why.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Looks for all guests. It reads some files of each process, and queries a container runtime
    /// for at most half a second when pods are unknown.
    ///
    /// # Errors
    /// `/proc` is not there. Processes that exit meanwhile are left out.
    pub fn look(&mut self, now: Instant) -> io::Result<()> {
        self.hierarchies.forget();
        self.notes.clear();
        let calls = &*self.calls;
        let hierarchies = &mut self.hierarchies;
        self.processes
            .look(&self.root, calls, hierarchies, self.user, now)?;
        let interfaces = self.network.interfaces();
        if let Err(error) = &interfaces {
            self.notes
                .push(format!("interfaces are not known: {error}"));
        }
        let interfaces = interfaces.unwrap_or_default();
        let here = netns(&self.root, "self");
        let slots = slots(&self.processes, here);
        let mut resolver = Resolver {
            root: &self.root,
            network: &*self.network,
            interfaces: &interfaces,
            here,
            names: &mut self.names,
            now,
            pause: NAME_RETRY,
        };
        let named = resolver.name_pods(&slots, &mut self.pods, || {
            self.calls.pods(self.cri.as_deref())
        });
        self.notes.extend(named);
        let mut built: Vec<_> = slots
            .iter()
            .filter_map(|slot| Some((resolver.guest(slot, &self.processes)?, slot)))
            .collect();
        resolve::part_shared(&mut built);
        let mut ran = HashMap::new();
        let mut guests = Vec::new();
        let mut inodes = Vec::new();
        for (mut guest, slot) in built {
            let first = slot.members.first();
            guest.quotas = quotas(&self.hierarchies, &slot.members);
            guest.group = first.and_then(|member| own_group(&self.hierarchies, member));
            if let Some(own) = &guest.group {
                let own = own_groups(&self.hierarchies, &slot.members, own);
                let inodes_of = own
                    .iter()
                    .filter_map(|group| Some(fs::metadata(group).ok()?.ino()));
                inodes.extend(inodes_of.map(|inode| (inode, Arc::clone(&guest.key))));
            }
            trim(&self.root, &mut guest, self.bound, &self.ran, &mut ran);
            guests.push(guest);
        }
        self.ran = ran;
        self.by_group = inodes.into_iter().collect();
        self.take(guests);
        self.limit(&interfaces);
        Ok(())
    }

    /// Makes these guests the current ones.
    fn take(&mut self, mut guests: Vec<Guest>) {
        // Two guests of one key would be taken for one.
        let mut key_counts: BTreeMap<Arc<str>, usize> = BTreeMap::new();
        for guest in &mut guests {
            let count = key_counts.entry(Arc::clone(&guest.key)).or_default();
            *count += 1;
            if *count > 1
                && let Some(first) = guest.processes.first()
            {
                guest.key = format!("{}@{}.{}", guest.key, first.pid, first.start).into();
            }
        }
        guests.sort_by(|a, b| a.key.cmp(&b.key));
        self.by_process.clear();
        for (index, guest) in guests.iter().enumerate() {
            let processes = guest.processes.iter().map(|it| ((it.pid, it.start), index));
            self.by_process.extend(processes);
            for thread in &guest.threads {
                let owner = Owner::Guest(Arc::clone(&guest.key));
                self.remembered.add(thread.id.tid, thread.id.start, owner);
            }
        }
        self.guests = guests;
    }

    /// Enters the limits on the interfaces of guests.
    fn limit(&mut self, interfaces: &[Interface]) {
        if interfaces.is_empty() {
            return;
        }
        match self.network.limits() {
            Ok(limits) => {
                for guest in &mut self.guests {
                    let own = |limit: &&Limit| {
                        let mut indices = guest.interfaces.iter().map(|it| it.index);
                        indices.any(|index| index == limit.index)
                    };
                    guest.limits = limits.iter().filter(own).cloned().collect();
                }
            }
            Err(error) => self
                .notes
                .push(format!("limits of traffic control are not known: {error}")),
        }
    }

    /// Returns the owner of the thread of a run. A thread that was started after the run, and has
    /// the number by now, is not taken for it; after the thread has exited its control group is
    /// known.
    pub fn owner(&mut self, run: &Run) -> ThreadOwner {
        let owner = match self.by_group.get(&run.group) {
            Some(key) => Owner::Guest(Arc::clone(key)),
            None => self.owner_by_number(run.tid, run.until).unwrap_or_else(|| {
                // A group of no guest is the host's, if all guests have one.
                let has_group = |guest: &Guest| guest.group.is_some();
                let name = printable(&run.name);
                if run.group != 0 && self.guests.iter().all(has_group) {
                    Owner::Program(name)
                } else {
                    Owner::Exited(name)
                }
            }),
        };
        ThreadOwner {
            owner,
            is_real_time: is_real_time(run.policy),
        }
    }

    /// Returns the owner of the thread that had this number at `at`; `None` if that is not known.
    fn owner_by_number(&mut self, tid: u32, at: Nanos) -> Option<Owner> {
        let at = RunTime {
            monotonic: at,
            suspended: suspended(),
        };
        let read = |file: &str| {
            let bytes = fs::read(self.root.path(format!("/proc/{tid}/{file}"))).ok()?;
            Some(String::from_utf8_lossy(&bytes).into_owned())
        };
        let seen = read("stat").and_then(|text| parse_stat(&text));
        let seen = seen.filter(|stat| had_started(stat.start, at));
        let began = seen.as_ref().map(|stat| stat.start);
        let known = self.remembered.of(tid, began, at);
        if known.is_some() {
            return known;
        }
        let seen = seen?;
        let groups = parse_groups(&read("cgroup").unwrap_or_default());
        let leader = read("status").and_then(|text| leader(&text)).unwrap_or(tid);
        let owner = self.owner_of(&seen, leader, &groups);
        self.remembered.add(tid, seen.start, owner.clone());
        Some(owner)
    }

    fn owner_of(&mut self, stat: &Stat, leader: u32, groups: &Groups) -> Owner {
        let guest = |index: usize| Owner::Guest(Arc::clone(&self.guests[index].key));
        if stat.kernel {
            let owner = stat.name.strip_prefix("vhost-");
            let owner = owner.and_then(|pid| self.guest_of(pid.parse().ok()?));
            return owner.map_or_else(|| owners::kernel(stat), guest);
        }
        if let Some(index) = self.guest_of(leader) {
            return guest(index);
        }
        // It started since the last look.
        let place = self.hierarchies.manager(&*self.calls, groups);
        if let Some((_, path)) = place {
            let holder = self.guests.iter().find(|guest| {
                let below = |group: &PathBuf| group.ends_with(path.trim_start_matches('/'));
                guest.group.as_ref().is_some_and(below)
            });
            if let Some(holder) = holder {
                return Owner::Guest(Arc::clone(&holder.key));
            }
        }
        let inside = netns(&self.root, &leader.to_string());
        if let Some(holder) = inside.and_then(|inside| self.namespace(inside)) {
            return Owner::Guest(Arc::clone(&holder.key));
        }
        let name = fs::read_to_string(self.root.path(format!("/proc/{leader}/comm")));
        let name = name.unwrap_or_else(|_| stat.name.clone());
        let group = groups.paths().find(|path| *path != "/");
        Owner::Program(owners::program(group, name.trim_end()))
    }

    /// The guest of the process that has this number now.
    fn guest_of(&self, pid: u32) -> Option<usize> {
        let bytes = fs::read(self.root.path(format!("/proc/{pid}/stat"))).ok()?;
        let stat = parse_stat(&String::from_utf8_lossy(&bytes))?;
        self.by_process.get(&(pid, stat.start)).copied()
    }

    /// The guest that is a network namespace with this inode.
    fn namespace(&self, inside: u64) -> Option<&Guest> {
        let is_it = |guest: &&Guest| matches!(guest.identity, Identity::Namespace { inode, .. } if inode == inside);
        self.guests.iter().find(is_it)
    }
}

/// The first thread of the process in the text of `/proc/TID/status`.
fn leader(status: &str) -> Option<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?;
    line.trim().parse().ok()
}

/// The CPU quotas of the groups that processes are in.
fn quotas(hierarchies: &Hierarchies, members: &[Member<'_>]) -> Vec<GroupQuota> {
    let mut quotas = BTreeMap::new();
    for member in members {
        for group in levels(hierarchies.mounts(), &member.seen.process.groups) {
            if quotas.contains_key(&group) {
                continue;
            }
            let quota = cgroup::quota(&group).map(|quota| GroupQuota {
                throttled: cgroup::throttled(&group),
                group: group.clone(),
                quota,
            });
            quotas.insert(group, quota);
        }
    }
    quotas.into_values().flatten().collect()
}

/// The directory of a guest's own group for the CPU: the one that its manager made.
fn own_group(hierarchies: &Hierarchies, member: &Member<'_>) -> Option<PathBuf> {
    let (_, path) = member.seen.process.origin.place.as_ref()?;
    let mut levels = levels(hierarchies.mounts(), &member.seen.process.groups).into_iter();
    levels.find(|level| level.ends_with(Path::new(path.trim_start_matches('/'))))
}

/// The directories of the groups for the CPU that processes are in, from `own` down.
fn own_groups(hierarchies: &Hierarchies, members: &[Member<'_>], own: &Path) -> BTreeSet<PathBuf> {
    let mut groups = BTreeSet::from([own.to_owned()]);
    for member in members {
        let levels = levels(hierarchies.mounts(), &member.seen.process.groups);
        groups.extend(levels.into_iter().filter(|level| level.starts_with(own)));
    }
    groups
}

/// Keeps the busiest threads of a guest that has more than `bound`.
fn trim(
    root: &Root,
    guest: &mut Guest,
    bound: usize,
    before: &HashMap<ThreadId, Nanos>,
    after: &mut HashMap<ThreadId, Nanos>,
) {
    guest.beyond = guest.threads.len().saturating_sub(bound);
    if guest.beyond == 0 {
        return;
    }
    let mut tasks: HashMap<u32, Option<Tasks>> = HashMap::new();
    guest.threads.sort_by_cached_key(|thread| {
        let ThreadId { pid, tid, .. } = thread.id;
        let opened = tasks
            .entry(pid)
            .or_insert_with(|| Tasks::open(root, pid).ok());
        let ran = opened
            .as_ref()
            .and_then(|tasks| tasks.schedstat(tid).ok()?)
            .map_or(Nanos::ZERO, |schedstat| schedstat.run);
        after.insert(thread.id, ran);
        let since = before.get(&thread.id).copied().unwrap_or_default();
        let helper = !thread.role.is_vcpu();
        (
            helper,
            std::cmp::Reverse(ran.saturating_sub(since)),
            thread.id,
        )
    });
    guest.threads.truncate(bound);
}

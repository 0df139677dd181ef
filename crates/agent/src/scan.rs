//! Finds the guests of a machine in `/proc`, and who started them.

pub(crate) mod groups;
mod non_guests;
mod weighed;

use super::calls::{Live, SystemCalls};
use super::cri::PodNames;
use super::entries::NAMELESS;
use super::guest::{
    Guest, GuestThread, NamedThread, Origin, Process, Role, VcpuThread, plain, recognise,
};
use super::observer::levels;
use super::place::Manager;
use super::qmp;
use super::rule::{GuestRule, Target, assign};
use super::text::printable;
use groups::{Hierarchies, Members};
use non_guests::NonGuests;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;
use tailbound_sys::cgroup::{self, Groups, Mounts, Quota, QuotaThrottling, parse_groups};
use tailbound_sys::cpuset::Cpus;
use tailbound_sys::procfs;
use tailbound_sys::root::Root;
use tailbound_sys::thread::{Stat, Tasks, ThreadId, parse_cmdline, parse_stat};
use tailbound_units::Nanos;

/// Finds guests again and again.
#[derive(Debug)]
pub struct Scanner {
    root: Root,
    calls: Box<dyn SystemCalls>,
    /// The agent's own user.
    user: u32,
    hierarchies: Hierarchies,
    /// The zero of the moments of scans.
    began: Instant,
    others: NonGuests,
    /// The starts of the processes that rules name by number, as they were first seen.
    bound: HashMap<u32, u64>,
    /// What QMP answered about a process.
    asked: HashMap<ThreadId, Vec<VcpuThread>>,
    /// Names of pods, and the socket of the container runtime.
    pods: PodNames,
    cri: Option<PathBuf>,
    /// Errors of rules in the last scan.
    refusals: Vec<String>,
}

impl Scanner {
    /// Reads this machine.
    ///
    /// # Errors
    /// `/proc` is not there.
    pub fn new() -> io::Result<Self> {
        let user = rustix::process::geteuid().as_raw();
        Self::on(Root::default(), user, Box::new(Live))
    }

    /// Reads the machine whose files are under `root`, as an agent that runs as `user`.
    ///
    /// # Errors
    /// `/proc` is not there.
    pub fn on(root: Root, user: u32, calls: Box<dyn SystemCalls>) -> io::Result<Self> {
        Ok(Self {
            hierarchies: Hierarchies::new(Mounts::read(&root)?),
            root,
            calls,
            user,
            began: Instant::now(),
            others: NonGuests::default(),
            bound: HashMap::new(),
            asked: HashMap::new(),
            pods: PodNames::default(),
            cri: None,
            refusals: Vec::new(),
        })
    }

    /// Sets the socket of the container runtime to query for names of pods; without a socket, one
    /// that is found.
    pub fn ask_runtime(&mut self, socket: Option<PathBuf>) {
        self.cri = socket;
    }

    /// Returns why the names of pods are not known.
    pub fn missing_names(&self) -> Option<&str> {
        self.pods.missing()
    }

    /// Returns the errors of rules in the last scan: rules that select no guest, though a similar
    /// guest exists.
    pub fn refusals(&self) -> &[String] {
        &self.refusals
    }

    /// Returns how many CPUs the machine has.
    ///
    /// # Errors
    /// `/sys` is not there.
    pub fn cpus(&self) -> io::Result<u32> {
        let text = fs::read_to_string(self.root.path("/sys/devices/system/cpu/online"))?;
        let online: Cpus = text.parse().map_err(io::Error::other)?;
        Ok(online.count())
    }

    /// Returns all guests: those that can be recognised, and what `rules` name, in the
    /// order of their processes, each with the rule that counts for it.
    ///
    /// # Errors
    /// `/proc` is not there. Processes that exit meanwhile are no guests.
    pub fn scan(&mut self, rules: &[GuestRule]) -> io::Result<Vec<Guest>> {
        self.scan_at(Nanos::from(self.began.elapsed()), rules)
    }

    /// Scans at `now`, which is no earlier than that of the scan before; see [`Self::scan`].
    ///
    /// # Errors
    /// `/proc` is not there.
    pub fn scan_at(&mut self, now: Nanos, rules: &[GuestRule]) -> io::Result<Vec<Guest>> {
        self.hierarchies.forget();
        self.refusals.clear();
        let mut guests = Vec::new();
        // Kernel threads named "vhost-PID", by that process.
        let mut vhosts: HashMap<u32, Vec<GuestThread>> = HashMap::new();
        let mut places: HashMap<u32, Groups> = HashMap::new();
        let named = self.named(rules);
        self.others.begin(now);
        for pid in procfs::processes(&self.root)? {
            let Some(stat) = self.first_look(pid) else {
                continue;
            };
            if stat.kernel {
                if let Some((owner, thread)) = vhost(pid, &stat) {
                    vhosts.entry(owner).or_default().push(thread);
                }
                continue;
            }
            let target = named.get(&pid);
            if target.is_none() && !self.others.expired(pid, &stat) {
                continue;
            }
            let Some(process) = self.process(pid, stat.name.clone()) else {
                continue;
            };
            let guest = recognise(&process).or_else(|| target.map(|_| plain(&process)));
            let Some(mut guest) = guest else {
                self.others.add(pid, stat);
                continue;
            };
            self.others.remove(pid);
            if let Some(target) = target {
                guest.rules.clone_from(&target.rules);
                if let Some(name) = &target.name {
                    guest.name.clone_from(name);
                }
            }
            guest.other_executable = self.other_executable(pid, rules);
            places.insert(pid, process.groups);
            guests.push(guest);
        }
        self.others.end();
        let mut guests = join(machines_alone(guests));
        self.refusals.extend(assign(rules, &mut guests));
        self.name_pods(&mut guests);
        for guest in &mut guests {
            if guest.rule.is_some_and(|index| rules[index].is_path()) {
                guest.name_packet_loop();
            }
            guest
                .threads
                .extend(vhosts.remove(&guest.pid).unwrap_or_default());
            if let (Some(_), Some(groups)) = (guest.rule, places.get(&guest.pid)) {
                self.weigh(guest, groups);
            }
            let configured_socket = guest.rule.and_then(|index| rules[index].qmp.clone());
            self.ask(guest, configured_socket);
        }
        Ok(guests)
    }

    /// Names the guests of pods by their pods' names, if the runtime knows them. Rules use the UID,
    /// which a tenant cannot choose.
    fn name_pods(&mut self, guests: &mut [Guest]) {
        let uid = |guest: &Guest| match &guest.origin.place {
            Some((Manager::Pod(uid), _)) if guest.name == printable(&format!("pod-{uid}")) => {
                Some(uid.clone())
            }
            _ => None,
        };
        let uids = guests.iter().filter_map(uid).collect();
        let (calls, cri) = (&*self.calls, self.cri.as_deref());
        self.pods.look(&uids, Instant::now(), || calls.pods(cri));
        for guest in guests {
            if let Some(name) = uid(guest).and_then(|uid| self.pods.of(&uid)) {
                name.clone_into(&mut guest.name);
            }
        }
    }

    /// Returns the processes that `rules` name themselves.
    fn named(&mut self, rules: &[GuestRule]) -> HashMap<u32, ProcessRules> {
        let mut rules_by_process = HashMap::new();
        let numbers: BTreeSet<_> = rules.iter().filter_map(|rule| rule.pid).collect();
        self.bound.retain(|pid, _| numbers.contains(pid));
        for (index, rule) in rules.iter().enumerate() {
            let (pids, name) = match rule.target() {
                None | Some(Target::Name(_) | Target::Uuid(_) | Target::Vmid(_)) => continue,
                Some(Target::Pid(pid)) => (self.bind(pid), None),
                Some(Target::Group(path)) => {
                    let members = self.hierarchies.group(&*self.calls, &path);
                    let name = path.rsplit('/').find(|name| !name.is_empty());
                    let pids = self.vouched(rule, members, &format!("the group {path}"));
                    (pids, name.map(str::to_owned))
                }
                Some(Target::Container(prefix)) => {
                    let members = self.hierarchies.container(&*self.calls, &prefix);
                    let subject = format!("the container {prefix}");
                    (self.vouched(rule, members, &subject), Some(prefix))
                }
                Some(Target::Pod(uid)) => {
                    let members = self.hierarchies.pod(&*self.calls, &uid);
                    let subject = format!("the pod {uid}");
                    (
                        self.vouched(rule, members, &subject),
                        Some(format!("pod-{uid}")),
                    )
                }
            };
            for pid in pids {
                let named = rules_by_process.entry(pid).or_insert_with(|| ProcessRules {
                    name: rule.label.clone().or_else(|| name.clone()),
                    rules: Vec::new(),
                });
                named.rules.push(index);
            }
        }
        rules_by_process
    }

    /// Returns the process of this number, if it is the one that had it first: a rule means
    /// that one, and no other that gets its number later.
    fn bind(&mut self, pid: u32) -> Vec<u32> {
        let Some(Stat { start, .. }) = self.first_look(pid) else {
            return Vec::new();
        };
        if *self.bound.entry(pid).or_insert(start) == start {
            return vec![pid];
        }
        self.refusals.push(format!(
            "the process {pid} of a rule has exited, and its number is another process's now, \
             which gets no class; name that guest otherwise, or take the rule out"
        ));
        Vec::new()
    }

    /// Returns the members that a rule may pick: of groups that a user can have made only
    /// those whose user it names.
    fn vouched(&mut self, rule: &GuestRule, members: Members, subject: &str) -> Vec<u32> {
        let Members {
            guarded,
            unguarded,
            names,
        } = members;
        if names.len() > 1 {
            let names: Vec<_> = names.iter().map(|id| id.get(..12).unwrap_or(id)).collect();
            self.refusals.push(format!(
                "{subject} matches {} containers ({}), and none of them gets the class; use more \
                    digits of the ID",
                names.len(),
                names.join(", ")
            ));
            return Vec::new();
        }
        if rule.uid.is_some() {
            return guarded.union(&unguarded).copied().collect();
        }
        if guarded.is_empty() && !unguarded.is_empty() {
            self.refusals.push(format!(
                "{subject} is in a control group that an ordinary user can create, which proves \
                    nothing about its processes; add the user to the rule: uid = N"
            ));
        }
        guarded.into_iter().collect()
    }

    /// Returns the rules that require another executable than a process runs. A file that cannot be
    /// examined counts as another one.
    fn other_executable(&self, pid: u32, rules: &[GuestRule]) -> Vec<usize> {
        let rules = rules.iter().enumerate();
        let asking = rules.filter_map(|(index, rule)| Some((index, rule.exe.as_ref()?)));
        let differs = |file: &Path| match (self.calls.executable(pid), self.calls.file(file)) {
            (Some(runs), Some(wanted)) => runs != wanted,
            _ => true,
        };
        asking
            .filter(|(_, file)| differs(file))
            .map(|(index, _)| index)
            .collect()
    }

    /// Finds what takes the weight of a guest's class.
    fn weigh(&mut self, guest: &mut Guest, groups: &Groups) {
        let name = |pid| {
            let text = fs::read_to_string(self.root.path(format!("/proc/{pid}/stat"))).ok()?;
            Some(printable(&parse_stat(&text)?.name))
        };
        let (hierarchies, calls) = (&mut self.hierarchies, &*self.calls);
        let (weighed, note) = weighed::weighed(hierarchies, calls, groups, guest, name);
        guest.weighed = weighed;
        guest.notes.extend(note);
    }

    /// Returns the CPU quotas among the groups of a guest, and what each did.
    pub fn quotas(&self, guest: &Guest) -> Vec<GroupQuota> {
        let mut found = BTreeMap::new();
        for thread in guest.threads.iter().filter(|thread| thread.role.is_vcpu()) {
            let ThreadId { pid, tid, .. } = thread.id;
            let Some(text) = self.text(pid, &format!("task/{tid}/cgroup")) else {
                continue;
            };
            for group in levels(self.hierarchies.mounts(), &parse_groups(&text)) {
                if let (Some(quota), false) = (cgroup::quota(&group), found.contains_key(&group)) {
                    let throttled = cgroup::throttled(&group);
                    found.insert(group, (quota, throttled));
                }
            }
        }
        let quota = |(group, (quota, throttled))| GroupQuota {
            group,
            quota,
            throttled,
        };
        found.into_iter().map(quota).collect()
    }

    /// Queries a QEMU without vCPU names. A QEMU without a trusted creator is not queried: its
    /// command line could name any socket of the host.
    fn ask(&mut self, guest: &mut Guest, configured_socket: Option<PathBuf>) {
        let Origin { own, nested, .. } = guest.origin;
        let trusted = guest.rule.is_some() || (own && !nested);
        let Some(first) = guest.threads.first().map(|thread| thread.id) else {
            return;
        };
        if guest.has_vcpus() || !trusted {
            return;
        }
        let Some(socket) = configured_socket.or_else(|| guest.qmp.clone()) else {
            guest.notes.push(NAMELESS.to_owned());
            return;
        };
        match qmp::query_cpus(&self.root.path(&socket)) {
            Ok(vcpus) => {
                self.asked.insert(first, vcpus);
            }
            Err(error) => guest.notes.push(format!(
                "its vCPUs are not known: no answer by QMP from {} ({error}); a socket takes one \
                 client at a time",
                printable(&socket.display().to_string())
            )),
        }
        if let Some(vcpus) = self.asked.get(&first) {
            guest.name_vcpus(vcpus);
        }
    }

    /// Returns the kernel's `stat` line of a process.
    fn first_look(&self, pid: u32) -> Option<Stat> {
        let stat = parse_stat(&self.text(pid, "stat")?)?;
        (stat.state != 'Z').then_some(stat)
    }

    /// Returns a process whole; `None` when it has exited.
    fn process(&mut self, pid: u32, name: String) -> Option<Process> {
        let arguments =
            parse_cmdline(&fs::read(self.root.path(format!("/proc/{pid}/cmdline"))).ok()?);
        let groups = parse_groups(&self.text(pid, "cgroup")?);
        let credentials = self.calls.credentials(pid)?;
        let origin = Origin {
            uid: credentials.uid,
            own: credentials.uid == Some(self.user),
            nested: credentials.nested,
            place: self.hierarchies.manager(&*self.calls, &groups),
        };
        let tasks = Tasks::open(&self.root, pid).ok()?;
        let mut threads = Vec::new();
        for tid in tasks.list().ok()? {
            if let Some(stat) = tasks.stat(tid).ok()? {
                let start = stat.start;
                threads.push(NamedThread {
                    id: ThreadId { pid, tid, start },
                    name: stat.name,
                });
            }
        }
        threads.sort_by_key(|thread| thread.id.tid);
        Some(Process {
            pid,
            name,
            arguments,
            groups,
            origin,
            threads,
        })
    }

    /// Returns the text of a process's file.
    fn text(&self, pid: u32, file: &str) -> Option<String> {
        fs::read_to_string(self.root.path(format!("/proc/{pid}/{file}"))).ok()
    }
}

/// A CPU quota of a group that a guest is in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupQuota {
    /// The group's directory.
    pub group: PathBuf,
    /// The quota.
    pub quota: Quota,
    /// Its throttling.
    pub throttled: QuotaThrottling,
}

impl fmt::Display for GroupQuota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            group,
            quota: Quota { runtime, period },
            throttled,
        } = self;
        write!(
            f,
            "a CPU quota of {runtime} in {period} at {}, used up in {} periods so far, for {:.3} s",
            printable(&group.display().to_string()),
            throttled.periods,
            throttled.time.as_secs_f64()
        )
    }
}

/// Rules about a process that they name.
struct ProcessRules {
    name: Option<String>,
    /// Their indices among the rules.
    rules: Vec<usize>,
}

/// Returns a thread of the kernel that moves packets for a guest, and that guest's
/// process.
fn vhost(pid: u32, stat: &Stat) -> Option<(u32, GuestThread)> {
    let owner = stat.name.strip_prefix("vhost-")?.parse().ok()?;
    let id = ThreadId {
        pid,
        tid: pid,
        start: stat.start,
    };
    let thread = GuestThread {
        id,
        name: stat.name.clone(),
        role: Role::Vhost,
    };
    Some((owner, thread))
}

/// Leaves out what a container or pod runs besides a virtual machine: the rule means that,
/// and not who started it there.
fn machines_alone(mut guests: Vec<Guest>) -> Vec<Guest> {
    use super::guest::Vmm;
    let machines: Vec<_> = guests
        .iter()
        .filter(|guest| guest.vmm != Vmm::Other && guest.origin.place.is_some())
        .map(|guest| (guest.origin.place.clone(), guest.rules.clone()))
        .collect();
    guests.retain(|guest| {
        let beside = |(place, rules): &(_, Vec<usize>)| {
            guest.origin.place == *place && guest.rules == *rules
        };
        guest.vmm != Vmm::Other || !machines.iter().any(beside)
    });
    guests
}

/// Joins processes of one guest: those of one name that are no hypervisors, as of a
/// container, and those in one group of a manager's that call themselves one.
fn join(guests: Vec<Guest>) -> Vec<Guest> {
    use super::guest::Vmm;
    let mut joined: Vec<Guest> = Vec::new();
    for guest in guests {
        let same = joined.iter_mut().find(|other| {
            let plain = other.vmm == Vmm::Other && other.name == guest.name;
            let managed = other.origin.place.is_some() && other.origin.place == guest.origin.place;
            other.vmm == guest.vmm && other.rules == guest.rules && (plain || managed)
        });
        match same {
            Some(first) => first.threads.extend(guest.threads),
            None => joined.push(guest),
        }
    }
    joined
}

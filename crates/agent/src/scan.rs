//! Finds the guests of a machine in `/proc`.

use super::guest::{
    Guest, GuestThread, NamedThread, Process, Role, VcpuThread, own_group, plain, recognise,
};
use super::qmp;
use super::rule::{GuestRule, Target};
use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use tailbound_sys::cgroup::{self, Groups, Mounts, parse_groups};
use tailbound_sys::procfs;
use tailbound_sys::root::Root;
use tailbound_sys::thread::{Tasks, ThreadId, parse_cmdline, parse_stat};

/// Finds guests again and again.
#[derive(Debug)]
pub struct Scanner {
    root: Root,
    mounts: Mounts,
    /// The starts of processes that are no guests, by number.
    others: HashMap<u32, u64>,
    /// What QMP answered about a process.
    asked: HashMap<ThreadId, Vec<VcpuThread>>,
}

impl Scanner {
    /// Reads this machine.
    ///
    /// # Errors
    /// `/proc` is not there.
    pub fn new() -> io::Result<Self> {
        Self::on(Root::default())
    }

    /// Reads the machine whose files are under `root`.
    ///
    /// # Errors
    /// `/proc` is not there.
    pub fn on(root: Root) -> io::Result<Self> {
        Ok(Self {
            mounts: Mounts::read(&root)?,
            root,
            others: HashMap::new(),
            asked: HashMap::new(),
        })
    }

    /// Returns all guests: those that can be recognised, and what `rules` name, in the
    /// order of their processes.
    ///
    /// # Errors
    /// `/proc` is not there. Processes that exit meanwhile are no guests.
    pub fn scan(&mut self, rules: &[GuestRule]) -> io::Result<Vec<Guest>> {
        let mut guests = Vec::new();
        // Kernel threads named "vhost-PID", by that process.
        let mut vhosts: HashMap<u32, Vec<GuestThread>> = HashMap::new();
        let mut others = HashMap::new();
        let named = self.named(rules);
        for pid in procfs::processes(&self.root)? {
            let Some((name, start)) = self.first_look(pid) else {
                continue;
            };
            let target = named.get(&pid);
            if target.is_none() && self.others.get(&pid) == Some(&start) {
                others.insert(pid, start);
                continue;
            }
            if let Some(owner) = name.strip_prefix("vhost-").and_then(|n| n.parse().ok()) {
                let id = ThreadId {
                    pid,
                    tid: pid,
                    start,
                };
                vhosts.entry(owner).or_default().push(GuestThread {
                    id,
                    name,
                    role: Role::Vhost,
                });
                continue;
            }
            let Some(process) = self.process(pid, name) else {
                continue;
            };
            let guest = recognise(&process).or_else(|| target.map(|_| plain(&process)));
            let Some(mut guest) = guest else {
                others.insert(pid, start);
                continue;
            };
            if let Some(target) = target {
                guest.rules.clone_from(&target.rules);
                if let Some(name) = &target.name {
                    guest.name.clone_from(name);
                }
            }
            guest.group = self.group(&process.groups, pid);
            let given = target.and_then(|target| target.qmp.clone());
            self.ask(&mut guest, given, start);
            guests.push(guest);
        }
        self.others = others;
        for guest in &mut guests {
            guest
                .threads
                .extend(vhosts.remove(&guest.pid).unwrap_or_default());
        }
        Ok(join(guests))
    }

    /// Returns the processes that `rules` name themselves.
    fn named(&self, rules: &[GuestRule]) -> HashMap<u32, Named> {
        let mut found = HashMap::new();
        for (index, rule) in rules.iter().enumerate() {
            let (pids, name) = match rule.target() {
                None | Some(Target::Name(_)) => continue,
                Some(Target::Pid(pid)) => (vec![pid], None),
                Some(Target::Group(path)) => {
                    let name = path.rsplit('/').find(|name| !name.is_empty());
                    (self.members(&path), name.map(str::to_owned))
                }
                Some(Target::Container(prefix)) => {
                    let group = self.container(&prefix);
                    let pids = group.map(|at| cgroup::processes(&at)).unwrap_or_default();
                    (pids, Some(prefix))
                }
            };
            for pid in pids {
                let named = found.entry(pid).or_insert_with(|| Named {
                    name: rule.label.clone().or_else(|| name.clone()),
                    qmp: rule.qmp.clone(),
                    rules: Vec::new(),
                });
                named.rules.push(index);
            }
        }
        found
    }

    /// Returns the hierarchies that a group's path can be in.
    fn hierarchies(&self) -> impl Iterator<Item = &Path> {
        let legacy = self.mounts.legacy.iter().map(|(_, at)| at.as_path());
        self.mounts.unified.as_deref().into_iter().chain(legacy)
    }

    /// Returns the processes in a group, which is named as in `/proc/PID/cgroup` or as
    /// a directory.
    fn members(&self, path: &str) -> Vec<u32> {
        let mut found = cgroup::processes(&self.root.path(path));
        for at in self.hierarchies() {
            found.extend(cgroup::processes(&at.join(path.trim_start_matches('/'))));
        }
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Returns the directory of a container's group.
    fn container(&self, prefix: &str) -> Option<PathBuf> {
        fn find(directory: &Path, prefix: &str, depth: u32) -> Option<PathBuf> {
            for child in cgroup::children(directory) {
                let name = child.file_name()?.to_str()?;
                let id = super::guest::container(name).map(|(id, _)| id);
                if id.is_some_and(|id| id.starts_with(prefix)) {
                    return Some(child);
                }
                if depth > 0
                    && let Some(found) = find(&child, prefix, depth - 1)
                {
                    return Some(found);
                }
            }
            None
        }
        // kubepods.slice/kubepods-besteffort.slice/kubepods-...-pod.slice/ID.scope
        self.hierarchies().find_map(|at| find(at, prefix, 5))
    }

    /// Returns the control group that is a process's own, where that has a weight.
    fn group(&self, groups: &Groups, pid: u32) -> Option<PathBuf> {
        let (directory, unified) = self.mounts.directory(groups, "cpu")?;
        let (root, path) = if unified {
            (self.mounts.unified.as_deref()?, groups.unified.as_deref()?)
        } else {
            (self.mounts.legacy("cpu")?, groups.legacy("cpu")?)
        };
        if let Some(own) = own_group(path) {
            return Some(root.join(own.trim_start_matches('/')));
        }
        let alone = path != "/" && cgroup::processes(&directory) == [pid];
        alone.then_some(directory)
    }

    /// Asks a QEMU that does not name its vCPUs.
    fn ask(&mut self, guest: &mut Guest, given: Option<PathBuf>, start: u64) {
        if guest.has_vcpus() {
            return;
        }
        let key = ThreadId {
            pid: guest.pid,
            tid: guest.pid,
            start,
        };
        let Some(socket) = given.or_else(|| guest.qmp.clone()) else {
            guest.notes.push(
                "none of its threads says that it runs a vCPU: start QEMU with \
                 -name NAME,debug-threads=on, or give its QMP socket (qmp = \"PATH\")"
                    .to_owned(),
            );
            return;
        };
        match qmp::query_cpus(&self.root.path(&socket)) {
            Ok(vcpus) => {
                self.asked.insert(key, vcpus);
            }
            Err(error) => guest.notes.push(format!(
                "its vCPUs are not known: no answer by QMP from {} ({error}); a socket takes one \
                 client at a time",
                socket.display()
            )),
        }
        if let Some(vcpus) = self.asked.get(&key) {
            guest.name_vcpus(vcpus);
        }
    }

    /// Returns the name and start of a process.
    fn first_look(&self, pid: u32) -> Option<(String, u64)> {
        let text = self.text(pid, "stat")?;
        let stat = parse_stat(&text)?;
        (stat.state != 'Z').then_some((stat.name, stat.start))
    }

    /// Returns a process whole; `None` when it has exited, or is a thread of the
    /// kernel.
    fn process(&self, pid: u32, name: String) -> Option<Process> {
        let arguments =
            parse_cmdline(&fs::read(self.root.path(format!("/proc/{pid}/cmdline"))).ok()?);
        // A kernel thread.
        if arguments.is_empty() {
            return None;
        }
        let groups = parse_groups(&self.text(pid, "cgroup")?);
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
            threads,
        })
    }

    /// Returns the text of a process's file.
    fn text(&self, pid: u32, file: &str) -> Option<String> {
        fs::read_to_string(self.root.path(format!("/proc/{pid}/{file}"))).ok()
    }
}

/// What rules say about a process that they name.
struct Named {
    name: Option<String>,
    qmp: Option<PathBuf>,
    /// Their indices among the rules.
    rules: Vec<usize>,
}

/// Joins processes of one name that are no hypervisors to one guest: a container's.
fn join(guests: Vec<Guest>) -> Vec<Guest> {
    let mut joined: Vec<Guest> = Vec::new();
    for guest in guests {
        let same = joined.iter_mut().find(|other| {
            other.name == guest.name
                && other.vmm == super::guest::Vmm::Other
                && guest.vmm == super::guest::Vmm::Other
        });
        match same {
            Some(first) => first.threads.extend(guest.threads),
            None => joined.push(guest),
        }
    }
    joined
}

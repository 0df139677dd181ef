//! The processes of a host, each read whole once and then only as far as it may have changed.

use super::super::calls::SystemCalls;
use super::super::guest::{NamedThread, Origin, Process};
use super::super::scan::groups::Hierarchies;
use std::collections::HashMap;
use std::fs;
use std::io;
use std::time::{Duration, Instant};
use tailbound_sys::cgroup::parse_groups;
use tailbound_sys::procfs;
use tailbound_sys::root::Root;
use tailbound_sys::thread::{Stat, Tasks, ThreadId, parse_cmdline, parse_stat};

/// A process is read anew when it is this old, and each time before: managers move a process into
/// its control group just after its start.
const SETTLED: Duration = Duration::from_secs(5);
/// A settled process is read anew after this.
const EXPIRY: Duration = Duration::from_secs(30);
/// Largest number of examined threads of one process.
const MAX_THREADS: usize = 4_096;

/// A process as it was seen.
#[derive(Debug)]
pub(super) struct KnownProcess {
    /// All but its threads.
    pub(super) process: Process,
    /// Its start, in ticks since boot.
    pub(super) start: u64,
    threads: u32,
    /// The inode of its network namespace; `None` if it may not be looked at.
    pub(super) netns: Option<u64>,
    first: Instant,
    last: Instant,
}

impl KnownProcess {
    fn is_current(&self, stat: &Stat, now: Instant) -> bool {
        let is_same = self.start == stat.start
            && self.process.name == stat.name
            && self.threads == stat.threads;
        let is_settled = self.last.duration_since(self.first) >= SETTLED;
        is_same && is_settled && now.duration_since(self.last) < EXPIRY
    }
}

/// The processes of a host.
#[derive(Debug, Default)]
pub(super) struct Processes {
    seen: HashMap<u32, KnownProcess>,
    /// Threads of the kernel that move packets for a process, by that process.
    pub(super) vhosts: HashMap<u32, Vec<NamedThread>>,
}

impl Processes {
    /// Reads all processes.
    pub(super) fn look(
        &mut self,
        root: &Root,
        calls: &dyn SystemCalls,
        hierarchies: &mut Hierarchies,
        user: u32,
        now: Instant,
    ) -> io::Result<()> {
        self.vhosts.clear();
        let mut before = std::mem::take(&mut self.seen);
        for pid in procfs::processes(root)? {
            let Some(stat) = text(root, pid, "stat").and_then(|text| parse_stat(&text)) else {
                continue;
            };
            if stat.state == 'Z' {
                continue;
            }
            if stat.kernel {
                self.note_vhost(pid, stat);
                continue;
            }
            let known = before.remove(&pid).filter(|it| it.start == stat.start);
            let first = known.as_ref().map_or(now, |it| it.first);
            let seen = match known {
                Some(known) if known.is_current(&stat, now) => Some(known),
                _ => read(root, calls, hierarchies, user, pid, &stat).map(|(process, netns)| {
                    KnownProcess {
                        process,
                        start: stat.start,
                        threads: stat.threads,
                        netns,
                        first,
                        last: now,
                    }
                }),
            };
            self.seen.extend(seen.map(|seen| (pid, seen)));
        }
        Ok(())
    }

    fn note_vhost(&mut self, pid: u32, stat: Stat) {
        let owner = stat.name.strip_prefix("vhost-");
        if let Some(owner) = owner.and_then(|owner| owner.parse().ok()) {
            let id = ThreadId {
                pid,
                tid: pid,
                start: stat.start,
            };
            let name = stat.name;
            self.vhosts
                .entry(owner)
                .or_default()
                .push(NamedThread { id, name });
        }
    }

    /// Returns all of them, the oldest first.
    pub(super) fn by_age(&self) -> Vec<&KnownProcess> {
        let mut all: Vec<_> = self.seen.values().collect();
        all.sort_by_key(|seen| (seen.start, seen.process.pid));
        all
    }
}

/// Returns a process without its threads, and the inode of its network namespace; `None` when it
/// has exited.
fn read(
    root: &Root,
    calls: &dyn SystemCalls,
    hierarchies: &mut Hierarchies,
    user: u32,
    pid: u32,
    stat: &Stat,
) -> Option<(Process, Option<u64>)> {
    let groups = parse_groups(&text(root, pid, "cgroup")?);
    let arguments = fs::read(root.path(format!("/proc/{pid}/cmdline"))).ok()?;
    let credentials = calls.credentials(pid)?;
    let process = Process {
        pid,
        name: stat.name.clone(),
        arguments: parse_cmdline(&arguments),
        origin: Origin {
            uid: credentials.uid,
            own: credentials.uid == Some(user),
            nested: credentials.nested,
            place: hierarchies.manager(calls, &groups),
        },
        groups,
        // Their names are one way to know a VMM.
        threads: threads(root, pid),
    };
    Some((process, netns(root, &pid.to_string())))
}

/// Returns the threads of a process; none when it has exited.
pub(super) fn threads(root: &Root, pid: u32) -> Vec<NamedThread> {
    let Ok(tasks) = Tasks::open(root, pid) else {
        return Vec::new();
    };
    let mut tids = tasks.list().unwrap_or_default();
    tids.sort_unstable();
    tids.truncate(MAX_THREADS);
    let read = |tid| {
        let Stat { name, start, .. } = tasks.stat(tid).ok()??;
        let id = ThreadId { pid, tid, start };
        Some(NamedThread { id, name })
    };
    tids.into_iter().filter_map(read).collect()
}

/// Returns the inode of a process's network namespace.
pub(super) fn netns(root: &Root, process: &str) -> Option<u64> {
    let link = fs::read_link(root.path(format!("/proc/{process}/ns/net"))).ok()?;
    let inode = link.to_str()?.strip_prefix("net:[")?.strip_suffix(']')?;
    inode.parse().ok()
}

fn text(root: &Root, pid: u32, file: &str) -> Option<String> {
    let bytes = fs::read(root.path(format!("/proc/{pid}/{file}"))).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

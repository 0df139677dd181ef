//! A machine in a directory.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use tailbound_agent::AgentConfig;
use tailbound_agent::calls::{FileId, SystemCalls};
use tailbound_agent::cri::{CriError, Pod};
use tailbound_agent::guest::Guest;
use tailbound_agent::scan::Scanner;
use tailbound_sys::cpuset::Cpus;
use tailbound_sys::root::Root;
use tailbound_sys::thread::{Credentials, Scheduling};

/// A machine whose agent runs as root.
pub(crate) struct Machine {
    pub(crate) directory: tempfile::TempDir,
    pub(crate) answers: Answers,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Answers {
    pub(crate) root: PathBuf,
    pub(crate) who: BTreeMap<u32, Credentials>,
    /// Groups that others than root can change.
    pub(crate) unguarded: BTreeSet<PathBuf>,
    pub(crate) runs: BTreeMap<u32, FileId>,
    pub(crate) files: BTreeMap<PathBuf, FileId>,
    /// Pods of the container runtime; `None` without a runtime.
    pub(crate) pods: Option<Vec<Pod>>,
}

impl SystemCalls for Answers {
    fn scheduling(&self, _: u32) -> io::Result<Scheduling> {
        Ok(Scheduling::PLAIN)
    }
    fn affinity(&self, _: u32) -> io::Result<Cpus> {
        Ok(Cpus::one(0))
    }
    fn credentials(&self, pid: u32) -> Option<Credentials> {
        self.who.get(&pid).copied()
    }
    fn is_guarded(&self, directory: &Path) -> bool {
        let path = directory.strip_prefix(&self.root).unwrap();
        directory.is_dir() && !self.unguarded.contains(&Path::new("/").join(path))
    }
    fn executable(&self, pid: u32) -> Option<FileId> {
        self.runs.get(&pid).copied()
    }
    fn file(&self, path: &Path) -> Option<FileId> {
        self.files.get(path).copied()
    }
    fn pods(&self, _: Option<&Path>) -> Result<Vec<Pod>, CriError> {
        self.pods.clone().ok_or(CriError::NoSocket)
    }
}

pub(crate) const KTHREAD: u32 = 0x0020_0000;

pub(crate) fn file(inode: u64) -> FileId {
    FileId { device: 8, inode }
}

/// A process of [`Machine`].
#[derive(Clone)]
pub(crate) struct Process<'p> {
    pub(crate) pid: u32,
    pub(crate) uid: u32,
    pub(crate) nested: bool,
    pub(crate) start: u64,
    pub(crate) flags: u32,
    pub(crate) comm: &'p str,
    pub(crate) arguments: &'p [&'p str],
    pub(crate) group: &'p str,
    pub(crate) threads: &'p [&'p str],
}

/// A QEMU of a user, with its own claims.
pub(crate) fn qemu(pid: u32, uid: u32) -> Process<'static> {
    Process {
        pid,
        uid,
        nested: false,
        start: 100,
        flags: 0x40_0000,
        comm: "qemu-system-x86",
        arguments: &[
            "/usr/bin/qemu-system-x86_64",
            "-name",
            "web1,debug-threads=on",
        ],
        group: "/user.slice",
        threads: &["qemu-system-x86", "CPU 0/KVM", "CPU 1/KVM"],
    }
}

impl Machine {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let machine = Self {
            answers: Answers {
                root: directory.path().to_owned(),
                ..Answers::default()
            },
            directory,
        };
        machine.write(
            "/proc/self/mounts",
            "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n",
        );
        machine.write("/sys/devices/system/cpu/online", "0-7\n");
        machine
    }

    pub(crate) fn write(&self, path: &str, text: &str) {
        let path = self.directory.path().join(path.trim_start_matches('/'));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub(crate) fn start(&mut self, process: &Process<'_>) {
        let Process {
            pid,
            start,
            flags,
            comm,
            group,
            ..
        } = process;
        let stat = |id: u32, name: &str| {
            let (zeros, threads) = ("0 ".repeat(10), process.threads.len());
            format!(
                "{id} ({name}) S 1 1 1 0 -1 {flags} {zeros}{threads} 0 {start} {}0 0 0\n",
                "0 ".repeat(16)
            )
        };
        self.write(&format!("/proc/{pid}/stat"), &stat(*pid, comm));
        let arguments: Vec<_> = process.arguments.iter().map(|a| format!("{a}\0")).collect();
        self.write(&format!("/proc/{pid}/cmdline"), &arguments.concat());
        self.write(&format!("/proc/{pid}/cgroup"), &format!("0::{group}\n"));
        self.enter(*pid, group);
        for (tid, name) in (*pid..).zip(process.threads) {
            self.write(&format!("/proc/{pid}/task/{tid}/stat"), &stat(tid, name));
        }
        let who = Credentials {
            uid: Some(process.uid),
            nested: process.nested,
        };
        self.answers.who.insert(*pid, who);
    }

    /// Puts a process into a group besides those who are there.
    fn enter(&self, pid: u32, group: &str) {
        let directory = format!("/sys/fs/cgroup{}", group.trim_end_matches('/'));
        let path = format!("{directory}/cgroup.procs");
        let there = self.directory.path().join(path.trim_start_matches('/'));
        let there = fs::read_to_string(there).unwrap_or_default();
        self.write(&path, &format!("{there}{pid}\n"));
        self.write(
            &format!("{directory}/cgroup.controllers"),
            "cpuset cpu memory\n",
        );
    }

    pub(crate) fn scanner(&self) -> Scanner {
        let root = Root::at(self.directory.path());
        Scanner::on(root, 0, Box::new(self.answers.clone())).unwrap()
    }

    /// The processes that a rule selects, and the messages about others.
    pub(crate) fn picked(&self, rule: &str) -> (Vec<u32>, String) {
        picked(&mut self.scanner(), rule)
    }
}

pub(crate) fn picked(scanner: &mut Scanner, rule: &str) -> (Vec<u32>, String) {
    let config = format!("[[guest]]\n{rule}\nlevel = \"top\"\n");
    let rules = AgentConfig::parse(&config).unwrap().rules;
    let guests = scanner.scan(&rules).unwrap();
    let of = |guest: &Guest| guest.rule.is_some().then_some(guest.pid);
    let notes = guests.iter().flat_map(|guest| guest.notes.clone());
    let said: Vec<_> = notes.chain(scanner.refusals().to_vec()).collect();
    (guests.iter().filter_map(of).collect(), said.join("\n"))
}

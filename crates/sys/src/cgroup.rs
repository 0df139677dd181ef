//! Control groups, of version 1 and 2: the groups of a process, their weights, and the root domains
//! that cpusets form.

mod quota;

use crate::cpuset::Cpus;
use crate::root::Root;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

pub use quota::{
    Confinement, Quota, QuotaThrottling, own_quotas, parse_throttled, quota, throttled,
};

/// The groups a process is in, from the text of `/proc/PID/cgroup`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Groups {
    /// The group in the unified hierarchy (version 2).
    pub unified: Option<String>,
    /// The groups in hierarchies of version 1: controllers, and the group.
    pub legacy: Vec<(Vec<String>, String)>,
}

impl Groups {
    /// Returns the process's group for `controller` in version 1, if that is in use.
    pub fn legacy(&self, controller: &str) -> Option<&str> {
        let named = |names: &[String]| names.iter().any(|name| name == controller);
        let found = self.legacy.iter().find(|(names, _)| named(names));
        found.map(|(_, group)| group.as_str())
    }

    /// Returns all groups' paths, the unified one first.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        let legacy = self.legacy.iter().map(|(_, path)| path.as_str());
        self.unified.as_deref().into_iter().chain(legacy)
    }
}

/// Reads the text of `/proc/PID/cgroup`; lines in another format are skipped.
pub fn parse_groups(text: &str) -> Groups {
    let mut groups = Groups::default();
    for line in text.lines() {
        // "hierarchy:controllers:group"; a group's name may hold colons.
        let mut fields = line.splitn(3, ':');
        let (Some(hierarchy), Some(controllers), Some(group)) =
            (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        if !group.starts_with('/') {
            continue;
        }
        if hierarchy == "0" && controllers.is_empty() {
            groups.unified = Some(group.to_owned());
        } else {
            let names = controllers.split(',').map(str::to_owned).collect();
            groups.legacy.push((names, group.to_owned()));
        }
    }
    groups
}

/// Mount points of the hierarchies, from the text of `/proc/self/mounts`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mounts {
    /// Version 2.
    pub unified: Option<PathBuf>,
    /// Version 1: options, which name the controllers, and the mount point.
    pub legacy: Vec<(Vec<String>, PathBuf)>,
}

/// Reads the text of `/proc/self/mounts`.
pub fn parse_mounts(text: &str) -> Mounts {
    let mut mounts = Mounts::default();
    for line in text.lines() {
        let mut fields = line.split(' ');
        let (Some(_), Some(at), Some(kind), Some(options)) =
            (fields.next(), fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        match kind {
            "cgroup2" if mounts.unified.is_none() => mounts.unified = Some(at.into()),
            "cgroup" => {
                let options = options.split(',').map(str::to_owned).collect();
                mounts.legacy.push((options, at.into()));
            }
            _ => {}
        }
    }
    mounts
}

/// The file of a group's weight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WeightKind {
    /// `cpu.weight` (version 2): 1 to 10000, 100 by default.
    Weight,
    /// `cpu.shares` (version 1): 2 to 262144, 1024 by default.
    Shares,
}

impl WeightKind {
    /// Returns the file's name.
    pub const fn file(self) -> &'static str {
        match self {
            Self::Weight => "cpu.weight",
            Self::Shares => "cpu.shares",
        }
    }

    /// Returns the weight of a group by default.
    pub const fn default_weight(self) -> u64 {
        match self {
            Self::Weight => 100,
            Self::Shares => 1024,
        }
    }

    /// Returns the largest weight.
    pub const fn max(self) -> u64 {
        match self {
            Self::Weight => 10_000,
            Self::Shares => 262_144,
        }
    }
}

/// A group's CPUs, in version 2 or 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partition {
    /// The group's directory.
    pub directory: PathBuf,
    /// Its CPUs.
    pub cpus: Cpus,
    /// True if the scheduler balances load over these CPUs; otherwise each is a domain of its own.
    pub balanced: bool,
}

impl Mounts {
    /// Reads the mount points; all directories are under `root`.
    ///
    /// # Errors
    /// `/proc` is missing.
    pub fn read(root: &Root) -> io::Result<Self> {
        let text = fs::read_to_string(root.path("/proc/self/mounts"))?;
        let Self { unified, legacy } = parse_mounts(&text);
        let legacy = legacy.into_iter();
        Ok(Self {
            unified: unified.map(|at| root.path(at)),
            legacy: legacy
                .map(|(options, at)| (options, root.path(at)))
                .collect(),
        })
    }

    /// Returns the mount point of a controller of version 1.
    pub fn legacy(&self, controller: &str) -> Option<&Path> {
        let named = |names: &[String]| names.iter().any(|name| name == controller);
        let found = self.legacy.iter().find(|(names, _)| named(names));
        found.map(|(_, at)| at.as_path())
    }

    /// Returns the directory of a process's group for `controller`, and true for version 2. `None`
    /// if the controller is in neither version, or not enabled in that group (in version 2,
    /// `cgroup.controllers` must list it).
    pub fn directory(&self, groups: &Groups, controller: &str) -> Option<(PathBuf, bool)> {
        if let (Some(at), Some(group)) = (self.legacy(controller), groups.legacy(controller)) {
            return Some((join(at, group), false));
        }
        let directory = join(self.unified.as_deref()?, groups.unified.as_deref()?);
        let listed = fs::read_to_string(directory.join("cgroup.controllers")).ok()?;
        let has = listed.split_whitespace().any(|name| name == controller);
        has.then_some((directory, true))
    }

    /// Returns the parts into which cpusets divide the computer, beside the rest: partitions of
    /// version 2, or load-balanced sets of version 1 if the root is not balanced. Empty without a
    /// division.
    pub fn partitions(&self) -> Vec<Partition> {
        let mut found = Vec::new();
        if let Some(at) = self.legacy("cpuset") {
            if read(at, "cpuset.sched_load_balance").as_deref() != Some("1") {
                legacy_partitions(at, &mut found);
            }
        } else if let Some(at) = &self.unified {
            unified_partitions(at, &mut found);
        }
        found
    }
}

fn join(at: &Path, group: &str) -> PathBuf {
    at.join(group.trim_start_matches('/'))
}

fn read(directory: &Path, file: &str) -> Option<String> {
    let text = fs::read_to_string(directory.join(file)).ok()?;
    Some(text.trim().to_owned())
}

/// Returns the groups in a group, by name: the kernel lists them in no order.
pub fn children(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut found: Vec<_> = entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect();
    found.sort_unstable();
    found
}

fn unified_partitions(directory: &Path, found: &mut Vec<Partition>) {
    for child in children(directory) {
        let kind = read(&child, "cpuset.cpus.partition");
        // A partition with impossible settings reads "root invalid (...)".
        if let Some(kind @ ("root" | "isolated")) = kind.as_deref()
            && let Some(cpus) = effective_cpus(&child)
        {
            found.push(Partition {
                directory: child.clone(),
                cpus,
                balanced: kind == "root",
            });
        }
        if kind.is_some() {
            unified_partitions(&child, found);
        }
    }
}

fn legacy_partitions(directory: &Path, found: &mut Vec<Partition>) {
    for child in children(directory) {
        if read(&child, "cpuset.sched_load_balance").as_deref() == Some("1") {
            if let Some(cpus) = effective_cpus(&child).filter(|cpus| !cpus.is_empty()) {
                found.push(Partition {
                    directory: child,
                    cpus,
                    balanced: true,
                });
            }
        } else {
            legacy_partitions(&child, found);
        }
    }
}

/// Returns the CPUs that a group's cpuset permits to its threads.
pub fn effective_cpus(directory: &Path) -> Option<Cpus> {
    // Version 2, version 1, and version 1 before Linux 3.17.
    let names = [
        "cpuset.cpus.effective",
        "cpuset.effective_cpus",
        "cpuset.cpus",
    ];
    let text = names.iter().find_map(|name| read(directory, name))?;
    text.parse().ok()
}

/// Returns a group's weight; `None` for a root group, which has none.
pub fn weight(directory: &Path, kind: WeightKind) -> Option<u64> {
    read(directory, kind.file())?.parse().ok()
}

/// Sets the weight of a group.
///
/// # Errors
/// The group is gone, belongs to another user, or the weight is out of range.
pub fn set_weight(directory: &Path, kind: WeightKind, weight: u64) -> io::Result<()> {
    fs::write(directory.join(kind.file()), weight.to_string())
}

/// Returns true if only root can change a group and its members: its directory and the files that
/// move processes and controllers belong to root, and no other user may write there. The levels
/// above are not checked.
pub fn is_guarded(directory: &Path) -> bool {
    use std::os::linux::fs::MetadataExt as _;
    let roots = |path: &Path| match fs::symlink_metadata(path) {
        Ok(seen) => seen.st_uid() == 0 && seen.st_mode() & 0o022 == 0,
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    };
    // Delegation hands over the directory and these, or these alone.
    let files = [
        "cgroup.procs",
        "cgroup.threads",
        "cgroup.subtree_control",
        "tasks",
    ];
    directory.is_dir() && roots(directory) && files.iter().all(|file| roots(&directory.join(file)))
}

/// Returns all processes in a group and the groups below it.
pub fn processes(directory: &Path) -> Vec<u32> {
    let mut found: Vec<u32> = read(directory, "cgroup.procs")
        .into_iter()
        .flat_map(|text| text.lines().flat_map(str::parse).collect::<Vec<_>>())
        .collect();
    for child in children(directory) {
        found.extend(processes(&child));
    }
    found.sort_unstable();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_process_is_found_in_both_versions() {
        let text = "9:name=systemd:/\n2:cpu,cpuacct:/vm:1\n1:cpuset:/a\n0::/machine.slice/x.scope\nnonsense\n";
        let groups = parse_groups(text);
        assert_eq!(groups.unified.as_deref(), Some("/machine.slice/x.scope"));
        assert_eq!(groups.legacy("cpuacct"), Some("/vm:1"));
        assert_eq!(groups.legacy("cpuset"), Some("/a"));
        assert_eq!(groups.legacy("memory"), None);
        assert_eq!(
            groups.paths().collect::<Vec<_>>(),
            ["/machine.slice/x.scope", "/", "/vm:1", "/a"]
        );
    }

    #[test]
    fn mounts_say_where_controllers_are() {
        let text = "proc /proc proc rw 0 0\n\
            cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n\
            cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,relatime,cpu,cpuacct 0 0\n";
        let mounts = parse_mounts(text);
        assert_eq!(
            mounts.unified.as_deref(),
            Some(Path::new("/sys/fs/cgroup/unified"))
        );
        assert_eq!(
            mounts.legacy("cpu"),
            Some(Path::new("/sys/fs/cgroup/cpu,cpuacct"))
        );
        assert_eq!(mounts.legacy("cpuset"), None);
    }

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn partitions_of_version_2_are_found_wherever_they_are() {
        let root = tree(&[
            ("a/cpuset.cpus.partition", "member\n"),
            ("a/b/cpuset.cpus.partition", "root\n"),
            ("a/b/cpuset.cpus.effective", "2-3\n"),
            ("c/cpuset.cpus.partition", "isolated\n"),
            ("c/cpuset.cpus.effective", "4\n"),
            ("d/cpuset.cpus.partition", "root invalid (not exclusive)\n"),
            ("d/cpuset.cpus.effective", "0\n"),
        ]);
        let mounts = Mounts {
            unified: Some(root.path().to_owned()),
            legacy: Vec::new(),
        };
        let mut found: Vec<_> = mounts
            .partitions()
            .into_iter()
            .map(|partition| (partition.cpus.to_string(), partition.balanced))
            .collect();
        found.sort();
        assert_eq!(found, [("2-3".to_owned(), true), ("4".to_owned(), false)]);
    }

    #[test]
    fn sets_of_version_1_cut_only_where_the_root_is_not_balanced() {
        for (balance, count) in [("1\n", 0), ("0\n", 1)] {
            let root = tree(&[
                ("cpuset.sched_load_balance", balance),
                ("a/cpuset.sched_load_balance", "1\n"),
                ("a/cpuset.effective_cpus", "1\n"),
            ]);
            let mounts = Mounts {
                unified: None,
                legacy: vec![(vec!["cpuset".into()], root.path().to_owned())],
            };
            assert_eq!(mounts.partitions().len(), count, "{balance}");
        }
    }

    proptest! {
        #[test]
        fn a_group_with_any_name_is_read_whole(path in "/[ -~]{0,40}") {
            let groups = parse_groups(&format!("0::{path}\n3:cpu:{path}\n"));
            prop_assert_eq!(groups.unified.as_deref(), Some(path.as_str()));
            prop_assert_eq!(groups.legacy("cpu"), Some(path.as_str()));
        }

        #[test]
        fn no_text_makes_the_readers_panic(text in "[ -~\n]{0,120}") {
            let _ = (parse_groups(&text), parse_mounts(&text));
        }
    }
}

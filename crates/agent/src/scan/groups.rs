//! Control groups as a scan sees them: who is in one, and whether only root can have
//! made it.

use super::super::calls::SystemCalls;
use super::super::place::{self, Manager, Place};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use tailbound_sys::cgroup::{self, Groups, Mounts};

/// Maximum depth of the groups of containers and pods:
/// `kubepods.slice/kubepods-besteffort.slice/kubepods-...-pod.slice/ID.scope`.
const DEPTH: u32 = 5;

/// The hierarchies of control groups, in one scan.
#[derive(Debug)]
pub(crate) struct Hierarchies {
    mounts: Mounts,
    /// Cached results for directories: true if only root can change them.
    guarded: HashMap<PathBuf, bool>,
    /// The processes in groups and below them.
    inside: HashMap<PathBuf, BTreeSet<u32>>,
}

/// Members of a rule's group, container or pod.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Members {
    /// The processes of groups that only root can have made.
    pub(super) guarded: BTreeSet<u32>,
    /// Members of groups that a user may have created.
    pub(super) unguarded: BTreeSet<u32>,
    /// Names of the groups, if a prefix matches several.
    pub(super) names: BTreeSet<String>,
}

impl Hierarchies {
    pub(crate) fn new(mounts: Mounts) -> Self {
        Self {
            mounts,
            guarded: HashMap::new(),
            inside: HashMap::new(),
        }
    }

    /// Forgets what was found; groups come and go.
    pub(crate) fn forget(&mut self) {
        self.guarded.clear();
        self.inside.clear();
    }

    pub(crate) fn mounts(&self) -> &Mounts {
        &self.mounts
    }

    /// Returns the root of the hierarchy that has CPU weights, and the path of a process's
    /// group in it.
    pub(super) fn of_cpu(&self, groups: &Groups) -> Option<(PathBuf, String)> {
        let (_, unified) = self.mounts.directory(groups, "cpu")?;
        let (root, path) = if unified {
            (self.mounts.unified.as_deref()?, groups.unified.as_deref()?)
        } else {
            (self.mounts.legacy("cpu")?, groups.legacy("cpu")?)
        };
        Some((root.to_owned(), path.to_owned()))
    }

    /// Returns the processes in a group and below it.
    pub(super) fn inside(&mut self, directory: &Path) -> &BTreeSet<u32> {
        let found = self.inside.entry(directory.to_owned());
        found.or_insert_with(|| cgroup::processes(directory).into_iter().collect())
    }

    fn roots(&self) -> Vec<PathBuf> {
        let legacy = self.mounts.legacy.iter().map(|(_, at)| at.clone());
        self.mounts
            .unified
            .clone()
            .into_iter()
            .chain(legacy)
            .collect()
    }

    /// Returns true if only root can have created a group, or can move processes into it or into a
    /// group above it.
    pub(super) fn is_guarded(&mut self, calls: &dyn SystemCalls, root: &Path, path: &str) -> bool {
        let mut directory = root.to_owned();
        let mut levels = path.split('/').filter(|name| !name.is_empty());
        loop {
            let known = self.guarded.get(&directory).copied();
            let guarded = known.unwrap_or_else(|| calls.is_guarded(&directory));
            self.guarded.insert(directory.clone(), guarded);
            match levels.next() {
                _ if !guarded => return false,
                Some("..") => return false,
                Some(name) => directory.push(name),
                None => return true,
            }
        }
    }

    /// Returns the manager who made a process's group, and that group's path, where only
    /// root can have made it.
    pub(crate) fn manager(
        &mut self,
        calls: &dyn SystemCalls,
        groups: &Groups,
    ) -> Option<(Manager, String)> {
        let mut roots: Vec<(PathBuf, &str)> = Vec::new();
        if let (Some(root), Some(path)) = (&self.mounts.unified, &groups.unified) {
            roots.push((root.clone(), path));
        }
        for (controllers, path) in &groups.legacy {
            let root = controllers.iter().find_map(|name| self.mounts.legacy(name));
            roots.extend(root.map(|root| (root.to_owned(), path.as_str())));
        }
        roots.into_iter().find_map(|(root, path)| {
            let Place { manager, path } = place::place(path)?;
            let guarded = self.is_guarded(calls, &root, path);
            guarded.then(|| (manager, path.to_owned()))
        })
    }

    /// Returns the processes in a group, which is named as in `/proc/PID/cgroup` or as a
    /// directory, and below it.
    pub(super) fn group(&mut self, calls: &dyn SystemCalls, path: &str) -> Members {
        let mut members = Members::default();
        for root in self.roots() {
            let below = Path::new(path).strip_prefix(&root).ok();
            let below = below.and_then(Path::to_str).unwrap_or(path);
            self.collect(calls, &root, below, &mut members);
        }
        members
    }

    /// Returns the processes of the containers whose ids begin so.
    pub(super) fn container(&mut self, calls: &dyn SystemCalls, prefix: &str) -> Members {
        self.search(calls, |path| {
            let (id, own) = place::container(path)?;
            (id.starts_with(prefix) && own == path).then(|| id.to_owned())
        })
    }

    /// Returns the processes of a pod.
    pub(super) fn pod(&mut self, calls: &dyn SystemCalls, uid: &str) -> Members {
        self.search(calls, |path| match place::place(path) {
            Some(Place {
                manager: Manager::Pod(found),
                path: own,
            }) if found == uid && own == path => Some(found),
            _ => None,
        })
    }

    /// Returns the processes of all groups whose paths `named` has a name for.
    fn search(
        &mut self,
        calls: &dyn SystemCalls,
        named: impl Fn(&str) -> Option<String>,
    ) -> Members {
        let mut members = Members::default();
        for root in self.roots() {
            let mut group_names = BTreeMap::new();
            find(&root, "", DEPTH, &named, &mut group_names);
            for (path, name) in group_names {
                if self.collect(calls, &root, &path, &mut members) {
                    members.names.insert(name);
                }
            }
        }
        members
    }

    /// Adds the processes of a group; returns whether only root can have made it.
    fn collect(
        &mut self,
        calls: &dyn SystemCalls,
        root: &Path,
        path: &str,
        members: &mut Members,
    ) -> bool {
        let guarded = self.is_guarded(calls, root, path);
        let inside = cgroup::processes(&root.join(path.trim_start_matches('/')));
        if guarded {
            members.guarded.extend(inside);
        } else {
            members.unguarded.extend(inside);
        }
        guarded
    }
}

/// Finds the groups below `path` that `named` has a name for; not what is inside of those.
fn find(
    root: &Path,
    path: &str,
    depth: u32,
    named: &impl Fn(&str) -> Option<String>,
    group_names: &mut BTreeMap<String, String>,
) {
    for child in cgroup::children(&root.join(path.trim_start_matches('/'))) {
        let Some(name) = child.file_name().and_then(|name| name.to_str()) else {
            continue;
        };
        let path = format!("{path}/{name}");
        if let Some(name) = named(&path) {
            group_names.insert(path, name);
        } else if depth > 0 {
            find(root, &path, depth - 1, named, group_names);
        }
    }
}

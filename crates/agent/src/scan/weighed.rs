//! The control group that bears the weight of a guest's class: the lowest at which it competes with
//! guests of other owners. Below that group a weight matters only among the guest's own threads;
//! above it, others would have the weight as well.

use super::super::calls::SystemCalls;
use super::super::guest::{Guest, WeightBearer};
use super::super::place::{self, Manager};
use super::groups::Hierarchies;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use tailbound_sys::cgroup::Groups;

/// Maximum number of named other members.
const NAMED: usize = 3;

/// Returns the bearer of the weight of `guest`, whose first process is in `groups`, and notes about
/// it. `name` returns the name of a process; `None` if it has exited.
pub(super) fn weighed(
    hierarchies: &mut Hierarchies,
    calls: &dyn SystemCalls,
    groups: &Groups,
    guest: &Guest,
    name: impl Fn(u32) -> Option<String>,
) -> (WeightBearer, Option<String>) {
    let Some((root, path)) = hierarchies.of_cpu(groups) else {
        return (WeightBearer::Threads, None);
    };
    let own: BTreeSet<u32> = guest.threads.iter().map(|thread| thread.id.pid).collect();
    if let Some(place) = place::place(&path)
        && hierarchies.is_guarded(calls, &root, place.path)
    {
        let group = below(&root, place.path);
        let others = match place.manager {
            Manager::Pod(_) => hierarchies.strangers(&root, &path, &group, &own, &name),
            // All that a manager puts beside a guest serves that guest.
            Manager::Libvirt(_) | Manager::Jailer(_) | Manager::Container(_) => Vec::new(),
        };
        return (group_unless(group, &others, &name), None);
    }
    let directory = below(&root, &path);
    let alone = |hierarchies: &mut Hierarchies, at: &Path| {
        let inside = hierarchies.inside(at);
        !inside.is_empty() && inside.is_subset(&own)
    };
    if directory == root {
        return (WeightBearer::Threads, None);
    }
    // A user's groups compete with nobody but that user's.
    let mut group = directory.clone();
    while group != root && !hierarchies.is_guarded(calls, &root, &relative(&root, &group)) {
        group.pop();
    }
    if group == root || !alone(hierarchies, &group) {
        let others: Vec<u32> = hierarchies
            .inside(&group)
            .difference(&own)
            .copied()
            .collect();
        if group != directory {
            return (group_unless(group, &others, &name), None);
        }
        let note = (!others.is_empty()).then(|| {
            format!(
                "its weight applies only within the control group {}, which it shares with {}; \
                    move it to its own group",
                group.display(),
                list(&others, &name)
            )
        });
        return (WeightBearer::Threads, note);
    }
    while let Some(parent) = group.parent().map(Path::to_owned)
        && parent != root
        && parent.extension().is_none_or(|kind| kind != "slice")
        && alone(hierarchies, &parent)
    {
        group = parent;
    }
    (WeightBearer::Group(group), None)
}

fn group_unless(
    group: PathBuf,
    others: &[u32],
    name: impl Fn(u32) -> Option<String>,
) -> WeightBearer {
    if others.is_empty() {
        return WeightBearer::Group(group);
    }
    let others = list(others, name);
    WeightBearer::Nothing { group, others }
}

/// Returns the first few processes by number and name.
fn list(pids: &[u32], name: impl Fn(u32) -> Option<String>) -> String {
    let shown = pids.iter().take(NAMED).map(|pid| match name(*pid) {
        Some(name) => format!("{pid} ({name})"),
        None => pid.to_string(),
    });
    let shown = shown.collect::<Vec<_>>().join(", ");
    match pids.len().saturating_sub(NAMED) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

fn below(root: &Path, path: &str) -> PathBuf {
    match path.trim_matches('/') {
        "" => root.to_owned(),
        path => root.join(path),
    }
}

fn relative(root: &Path, directory: &Path) -> String {
    let below = directory.strip_prefix(root).unwrap_or(Path::new(""));
    format!("/{}", below.display())
}

impl Hierarchies {
    /// Returns the processes of a pod that are neither the guest nor its helpers: those
    /// of its own container, and the one that only holds the pod's namespaces.
    fn strangers(
        &mut self,
        root: &Path,
        path: &str,
        pod: &Path,
        own: &BTreeSet<u32>,
        name: impl Fn(u32) -> Option<String>,
    ) -> Vec<u32> {
        let container = place::container(path).map(|(_, own)| below(root, own));
        let helpers = container
            .map(|own| self.inside(&own).clone())
            .unwrap_or_default();
        let inside = self.inside(pod).iter();
        let strange = |pid: &&u32| {
            !own.contains(pid) && !helpers.contains(pid) && name(**pid).as_deref() != Some("pause")
        };
        inside.filter(strange).copied().collect()
    }
}

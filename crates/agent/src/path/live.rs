//! Reads a machine's cpusets and interrupts, and changes them.

use super::PathConfig;
use super::partition::{Cpusets, Interrupt, Machine, PathStep};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use tailbound_sys::cgroup::{self, Mounts, parse_groups};
use tailbound_sys::cpuset::Cpus;
use tailbound_sys::root::Root;

/// The daemon's set, by version 1.
const PATH_SET: &str = "tailbound-path";
/// The set of all other processes.
const REST_SET: &str = "tailbound-rest";
/// The file in which the kubelet records its assignment of CPUs.
const KUBELET: &str = "/var/lib/kubelet/cpu_manager_state";
/// Number of passes that move all processes, since some start others meanwhile.
const SWEEPS: usize = 5;
/// The CPUs of a group.
const CPUS: &str = "cpuset.cpus";
/// The kind of a group: `member`, or `root` of a partition (version 2).
const PARTITION: &str = "cpuset.cpus.partition";
/// The controllers of a group's children (version 2).
const HANDED_DOWN: &str = "cgroup.subtree_control";

/// Reads the host's cpusets and interrupts. `daemon` are the processes of the host's daemon;
/// cpusets are read only if it has no CPUs of its own yet.
///
/// # Errors
/// `/proc` or `/sys` is not there.
pub fn read(
    root: &Root,
    config: &PathConfig,
    daemon: &[u32],
    has_cpus: bool,
) -> io::Result<Machine> {
    let mounts = Mounts::read(root)?;
    let online = text(&root.path("/sys/devices/system/cpu/online"))?;
    let cpusets = (!has_cpus)
        .then(|| cpusets(root, &mounts, daemon))
        .flatten();
    let mut machine = Machine {
        online: online.parse().map_err(io::Error::other)?,
        manager: kubelet(root),
        confined: confined(cpusets.as_ref()),
        cpusets,
        interrupts: Vec::new(),
        without_interrupts: Vec::new(),
    };
    for nic in &config.interrupts {
        let nic_interrupts = interrupts(root, nic);
        if nic_interrupts.is_empty() {
            machine.without_interrupts.push(nic.clone());
        }
        machine.interrupts.extend(nic_interrupts);
    }
    Ok(machine)
}

fn text(path: &Path) -> io::Result<String> {
    Ok(fs::read_to_string(path)?.trim().to_owned())
}

/// Returns the kubelet's description if it assigns CPUs.
fn kubelet(root: &Root) -> Option<String> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct State {
        policy_name: String,
    }
    let state = fs::read(root.path(KUBELET)).ok()?;
    let State { policy_name } = serde_json::from_slice(&state).ok()?;
    (policy_name != "none")
        .then(|| format!("the kubelet hands out CPUs here (policy {policy_name} in {KUBELET})"))
}

fn cpusets(root: &Root, mounts: &Mounts, daemon: &[u32]) -> Option<Cpusets> {
    let groups = fs::read_to_string(root.path(format!("/proc/{}/cgroup", daemon.first()?))).ok()?;
    let groups = parse_groups(&groups);
    if let Some(top) = mounts.legacy("cpuset") {
        return legacy(top, groups.legacy("cpuset")?);
    }
    let at = mounts.unified.as_ref()?;
    let controllers = text(&at.join("cgroup.controllers")).ok()?;
    let first = groups
        .unified
        .as_deref()?
        .split('/')
        .find(|name| !name.is_empty())?;
    let group = at.join(first);
    let own: BTreeSet<u32> = daemon.iter().copied().chain([std::process::id()]).collect();
    let others = cgroup::processes(&group)
        .into_iter()
        .filter(|pid| !own.contains(pid));
    let name = |pid: u32| {
        let name = text(&root.path(format!("/proc/{pid}/comm"))).unwrap_or_default();
        format!("{pid} ({})", super::super::text::printable(&name))
    };
    let has = |list: &str| list.split_whitespace().any(|name| name == "cpuset");
    let cpus = text(&group.join(CPUS)).unwrap_or_default();
    let frees = |cpus: &str| possible(root).is_ok_and(|all| cpus.parse() == Ok(all));
    has(&controllers).then(|| Cpusets::Unified {
        handed_down: text(&at.join(HANDED_DOWN)).is_ok_and(|list| has(&list)),
        // The end of an earlier partition leaves all of them, where none were.
        cpus: if frees(&cpus) { String::new() } else { cpus },
        others: others.take(3).map(name).collect(),
        root: at.clone(),
        group,
    })
}

/// Returns the agent's sets in version 1: they are in the daemon's set, which is the root's unless
/// another was created.
fn legacy(at: &Path, group: &str) -> Option<Cpusets> {
    let mut top = at.join(group.trim_start_matches('/'));
    if top.ends_with(PATH_SET) || top.ends_with(REST_SET) {
        top.pop();
    }
    let balanced = text(&top.join("cpuset.sched_load_balance")).ok()? == "1";
    Some(Cpusets::Legacy { top, balanced })
}

/// The groups that have CPUs of their own.
fn confined(cpusets: Option<&Cpusets>) -> Vec<(PathBuf, Cpus)> {
    let mut sets = Vec::new();
    match cpusets {
        Some(Cpusets::Unified { root, group, .. }) => below(root, &mut |directory| {
            if directory != group
                && let Ok(cpus) = text(&directory.join("cpuset.cpus"))
                && let Ok(cpus) = cpus.parse::<Cpus>()
                && !cpus.is_empty()
            {
                sets.push((directory.to_owned(), cpus));
            }
        }),
        Some(Cpusets::Legacy { top, .. }) => {
            for set in cgroup::children(top) {
                if !set.ends_with(PATH_SET)
                    && !set.ends_with(REST_SET)
                    && let Ok(cpus) = text(&set.join("cpuset.cpus"))
                    && let Ok(cpus) = cpus.parse()
                {
                    sets.push((set, cpus));
                }
            }
        }
        None => {}
    }
    sets
}

fn below(directory: &Path, visit: &mut impl FnMut(&Path)) {
    for child in cgroup::children(directory) {
        visit(&child);
        below(&child, visit);
    }
}

/// The interrupts of a NIC: those that its device, or the PCI device that this lies on, has.
fn interrupts(root: &Root, nic: &str) -> Vec<Interrupt> {
    let device = fs::canonicalize(root.path(format!("/sys/class/net/{nic}/device")));
    let Ok(device) = device else {
        return Vec::new();
    };
    let of = [Some(device.as_path()), device.parent()];
    let mut directories = of.into_iter().flatten().map(|at| at.join("msi_irqs"));
    let Some(numbers) = directories.find_map(|directory| fs::read_dir(directory).ok()) else {
        return Vec::new();
    };
    let number = |entry: io::Result<fs::DirEntry>| entry.ok()?.file_name().to_str()?.parse().ok();
    let mut numbers: Vec<u32> = numbers.filter_map(number).collect();
    numbers.sort_unstable();
    let read = |number: &u32| {
        Some(Interrupt {
            number: *number,
            nic: nic.to_owned(),
            cpus: served(root, *number)?,
        })
    };
    numbers.iter().filter_map(read).collect()
}

fn affinity_file(root: &Root, interrupt: u32) -> PathBuf {
    root.path(format!("/proc/irq/{interrupt}/smp_affinity_list"))
}

/// Returns the CPUs of an interrupt; `None` if it does not exist.
pub(crate) fn served(root: &Root, interrupt: u32) -> Option<Cpus> {
    text(&affinity_file(root, interrupt)).ok()?.parse().ok()
}

fn write(file: &Path, content: &str) -> Result<(), String> {
    fs::write(file, content).map_err(|error| format!("{}: {error}", file.display()))
}

/// Makes a step.
///
/// # Errors
/// The kernel's error. A part of the step may be done: [`undo`] reverts it.
pub(crate) fn make(root: &Root, step: &PathStep) -> Result<(), String> {
    match step {
        PathStep::Partition {
            group,
            cpus,
            hand_down,
            ..
        } => {
            // Systemd may have removed it since another program handed it down.
            let is_missing = hand_down.is_some() || !group.join(CPUS).exists();
            if let Some(parent) = group.parent().filter(|_| is_missing) {
                write(&parent.join(HANDED_DOWN), "+cpuset")?;
            }
            write(&group.join(CPUS), &cpus.to_string())?;
            let partition = group.join(PARTITION);
            write(&partition, "root")?;
            match text(&partition).unwrap_or_default().as_str() {
                "root" => Ok(()),
                seen => Err(format!("the kernel calls it {seen:?}")),
            }
        }
        PathStep::Sets {
            top,
            cpus,
            rest,
            daemon,
            ..
        } => {
            make_set(top, PATH_SET, *cpus)?;
            make_set(top, REST_SET, *rest)?;
            write(&top.join("cpuset.sched_load_balance"), "0")?;
            attend(step, daemon)?;
            for _ in 0..SWEEPS {
                if move_all(top, &top.join(REST_SET)) == 0 {
                    break;
                }
            }
            Ok(())
        }
        PathStep::Interrupt { number, after, .. } => {
            write(&affinity_file(root, *number), &after.to_string())?;
            match served(root, *number) {
                Some(seen) if seen == *after => Ok(()),
                Some(seen) => Err(format!("{seen} reads back")),
                None => Err("it is gone".to_owned()),
            }
        }
    }
}

/// Moves the daemon's processes to the path's CPUs: in version 1 a process starts in the set of its
/// parent.
pub(crate) fn attend(step: &PathStep, daemon: &[u32]) -> Result<(), String> {
    let PathStep::Sets { top, .. } = step else {
        return Ok(());
    };
    let own = top.join(PATH_SET);
    if text(&own.join(CPUS)).unwrap_or_default().is_empty() {
        // Its CPUs are offline, and the kernel accepts no process.
        return Ok(());
    }
    let own = own.join("cgroup.procs");
    let there = fs::read_to_string(&own).unwrap_or_default();
    let there: BTreeSet<u32> = there.lines().filter_map(|line| line.parse().ok()).collect();
    for pid in daemon.iter().filter(|pid| !there.contains(pid)) {
        match fs::write(&own, pid.to_string()) {
            Err(error) if !super::super::calls::has_exited(&error) => {
                return Err(format!("process {pid}: {error}"));
            }
            _ => {}
        }
    }
    Ok(())
}

fn make_set(top: &Path, name: &str, cpus: Cpus) -> Result<(), String> {
    let set = top.join(name);
    match fs::create_dir(&set) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(format!("{}: {error}", set.display()));
        }
        _ => {}
    }
    let memory = text(&top.join("cpuset.mems")).unwrap_or_default();
    write(&set.join("cpuset.mems"), &memory)?;
    write(&set.join("cpuset.cpus"), &cpus.to_string())?;
    // One that lies in a set with others of the same CPUs cannot be exclusive.
    match text(&top.join("cpuset.cpu_exclusive")).as_deref() {
        Ok("1") => write(&set.join("cpuset.cpu_exclusive"), "1"),
        _ => Ok(()),
    }
}

/// Moves all threads that can be moved; returns how many were. Threads of the kernel that are
/// bound to a CPU stay where they are.
fn move_all(from: &Path, to: &Path) -> usize {
    let Ok(threads) = fs::read_to_string(from.join("tasks")) else {
        return 0;
    };
    let tasks = to.join("tasks");
    let moved = threads
        .lines()
        .filter(|thread| fs::write(&tasks, thread).is_ok());
    moved.count()
}

/// Reverts a step, complete or not.
///
/// # Errors
/// The part that could not be reverted.
pub(crate) fn undo(root: &Root, step: &PathStep) -> Result<(), String> {
    match step {
        PathStep::Partition {
            group,
            before,
            hand_down,
            ..
        } => release(root, group, before, hand_down.as_deref()),
        PathStep::Sets { top, balanced, .. } => {
            for set in [PATH_SET, REST_SET].map(|name| top.join(name)) {
                for _ in 0..SWEEPS {
                    if move_all(&set, top) == 0 {
                        break;
                    }
                }
            }
            let balance = if *balanced { "1" } else { "0" };
            write(&top.join("cpuset.sched_load_balance"), balance)?;
            for set in [PATH_SET, REST_SET].map(|name| top.join(name)) {
                match fs::remove_dir(&set) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => {
                        return Err(format!("{}: {error}", set.display()));
                    }
                    _ => {}
                }
            }
            Ok(())
        }
        PathStep::Interrupt { number, before, .. } => match served(root, *number) {
            Some(_) => write(&affinity_file(root, *number), &before.to_string()),
            None => Ok(()),
        },
    }
}

/// Ends a partition (version 2), and leaves its processes as free as they were.
///
/// The kernel refuses to empty `cpuset.cpus` while processes are in the group (ENOSPC), so that the
/// way back depends on the way there. A controller that was handed down for the partition is taken
/// away again, and the group's CPUs are gone with it. Otherwise all CPUs that the machine can have
/// stand for none: the group has the CPUs of its parent then, as without any of its own.
fn release(
    root: &Root,
    group: &Path,
    before: &str,
    hand_down: Option<&Path>,
) -> Result<(), String> {
    let own = group.join(CPUS);
    // Gone with all that were in it.
    if own.exists() {
        write(&group.join(PARTITION), "member")?;
    }
    if let Some(parent) = hand_down
        && write(&parent.join(HANDED_DOWN), "-cpuset").is_ok()
    {
        return Ok(());
    }
    // Other groups have cpusets by now, or had them before.
    if !own.exists() || write(&own, &format!("{before}\n")).is_ok() {
        return Ok(());
    }
    write(
        &own,
        &possible(root)
            .map_err(|error| error.to_string())?
            .to_string(),
    )
}

/// Returns all CPUs that the machine can have, also those that are offline.
pub(super) fn possible(root: &Root) -> io::Result<Cpus> {
    let list = text(&root.path("/sys/devices/system/cpu/possible"));
    let list = list.or_else(|_| text(&root.path("/sys/devices/system/cpu/online")))?;
    list.parse().map_err(io::Error::other)
}

/// The condition of a step that was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Condition {
    /// The files read as they were written.
    InForce,
    /// Suspended by the kernel until all of its CPUs are online again, or until the daemon's group
    /// is made again.
    Suspended,
    /// Gone without a decision against it: the kernel removed its CPUs while they were offline, the
    /// daemon's group was made again, or systemd took the cpuset from all groups.
    Lost,
    /// Changed by another program.
    Changed,
}

/// Returns the condition of a step that was made.
pub(crate) fn condition(root: &Root, step: &PathStep) -> Condition {
    let list = |file: &Path| text(file).ok()?.parse::<Cpus>().ok();
    let online = || list(&root.path("/sys/devices/system/cpu/online")).unwrap_or_default();
    match step {
        PathStep::Partition { group, cpus, .. } => {
            let (own, partition) = (group.join(CPUS), group.join(PARTITION));
            match (list(&own), text(&partition).as_deref()) {
                _ if !group.exists() => Condition::Suspended,
                (Some(seen), Ok("root")) if seen == *cpus => Condition::InForce,
                (Some(seen), _) if seen == *cpus && !online().covers(cpus) => Condition::Suspended,
                (None, _) => Condition::Lost,
                (Some(seen), Ok("member")) if seen.is_empty() => Condition::Lost,
                _ => Condition::Changed,
            }
        }
        PathStep::Sets {
            top, cpus, rest, ..
        } => {
            let seen = [(PATH_SET, cpus), (REST_SET, rest)].map(|(set, wanted)| {
                let seen = list(&top.join(set).join(CPUS));
                (seen, *wanted)
            });
            if seen.iter().all(|(seen, wanted)| *seen == Some(*wanted)) {
                return Condition::InForce;
            }
            // The kernel only removes CPUs, and does not put them back.
            let shrunk = |(seen, wanted): &(Option<Cpus>, Cpus)| {
                seen.is_some_and(|seen| wanted.covers(&seen))
            };
            match seen.iter().all(shrunk) {
                true if online().covers(&cpus.or(rest)) => Condition::Lost,
                true => Condition::Suspended,
                false => Condition::Changed,
            }
        }
        PathStep::Interrupt { number, after, .. } => match served(root, *number) {
            Some(seen) if seen != *after && !online().covers(after) => Condition::Suspended,
            Some(seen) if seen != *after => Condition::Changed,
            _ => Condition::InForce,
        },
    }
}

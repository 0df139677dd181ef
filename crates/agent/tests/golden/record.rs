//! Records the machine that this runs on.

use crate::tree::{Document, Tree};
use crate::{cases, planned};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use tailbound_agent::budget::desired;
use tailbound_agent::calls::{Facts, Live, SystemCalls as _};
use tailbound_agent::observed::ThreadState;
use tailbound_agent::scan::Scanner;
use tailbound_agent::{Agent, AgentConfig};
use tailbound_sys::cgroup::{Mounts, children};
use tailbound_sys::procfs;
use tailbound_sys::root::Root;

/// Files of a host that the agent reads.
const MACHINE: &[&str] = &[
    "/proc/sys/kernel/random/boot_id",
    "/proc/sys/kernel/sched_autogroup_enabled",
    "/proc/sys/kernel/sched_deadline_period_max_us",
    "/proc/sys/kernel/sched_deadline_period_min_us",
    "/proc/sys/kernel/sched_rt_period_us",
    "/proc/sys/kernel/sched_rt_runtime_us",
    "/sys/devices/system/cpu/online",
    "/sys/kernel/debug/sched/fair_server/cpu0/period",
    "/sys/kernel/debug/sched/features",
    "/sys/kernel/debug/sched/fair_server/cpu0/runtime",
];

/// Files of a control group that it reads.
const GROUP: &[&str] = &[
    "cgroup.controllers",
    "cpu.shares",
    "cpu.weight",
    "cpuset.cpus",
    "cpuset.cpus.effective",
    "cpuset.cpus.partition",
    "cpuset.effective_cpus",
    "cpuset.sched_load_balance",
];

/// `TAILBOUND_RECORD=NAME TAILBOUND_RULES=FILE cargo test -p tailbound-agent --test golden record
/// -- --ignored` writes `cases/NAME.tree`, with the guests that run here and every process with a
/// reservation.
#[test]
#[ignore = "records this machine into the repository"]
fn record() {
    let name = std::env::var("TAILBOUND_RECORD").expect("TAILBOUND_RECORD=NAME");
    let rules = std::env::var("TAILBOUND_RULES").expect("TAILBOUND_RULES=FILE");
    let rules = fs::read_to_string(rules).unwrap();
    let config = AgentConfig::parse(&rules).unwrap();
    let mut scanner = Scanner::new().unwrap();
    let guests = scanner.scan(&config.rules).unwrap();
    let cpus = scanner.cpus().unwrap();

    let mut tree = Tree::default();
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let notes = format!("Recorded on Linux {kernel}");
    tree.0.insert("notes".into(), notes);
    tree.0.insert("rules.toml".into(), rules);
    for path in MACHINE {
        keep(&mut tree, Path::new(path));
    }
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let mounts = mounts.lines().filter(|line| line.contains(" cgroup"));
    let mounts: Vec<_> = mounts.collect();
    tree.0
        .insert("/proc/self/mounts".into(), mounts.join("\n") + "\n");

    let mut pids: BTreeSet<u32> = reserved();
    pids.extend(
        guests
            .iter()
            .flat_map(|g| g.threads.iter().map(|t| t.id.pid)),
    );
    let (mut owners, mut threads) = (BTreeMap::new(), BTreeMap::new());
    let (mut nested, mut unguarded) = (BTreeSet::new(), BTreeSet::new());
    for pid in &pids {
        keep_process(&mut tree, *pid);
        let who = Live.credentials(*pid);
        owners.extend(who.and_then(|who| Some((*pid, who.uid?))));
        nested.extend(who.filter(|who| who.nested).map(|_| *pid));
        for tid in procfs::threads(*pid).unwrap_or_default() {
            if let (Ok(scheduling), Ok(cpus)) = (Live.scheduling(tid), Live.affinity(tid)) {
                threads.insert(tid, ThreadState { scheduling, cpus });
            }
        }
    }
    let Mounts { unified, legacy } = Mounts::read(&Root::default()).unwrap();
    for at in unified.iter().chain(legacy.iter().map(|(_, at)| at)) {
        keep_groups(&mut tree, at, &pids, &mut unguarded);
    }
    let facts = Facts::of_this_machine().unwrap();
    let document = Document {
        facts,
        owners,
        nested,
        unguarded,
        files: BTreeMap::new(),
        threads,
    };
    let calls = serde_json::to_string_pretty(&document).unwrap();
    tree.0.insert("calls.json".into(), calls);
    tree.write(&cases().join(format!("{name}.tree")));

    // The recording says what the machine says.
    let state = tempfile::tempdir().unwrap();
    let mut agent = Agent::preview(&state.path().join("vcpu.json")).unwrap();
    let live = match agent.plan(&desired(&config.rules, &guests, cpus, |_| false).desired) {
        Ok(plan) => plan.to_string(),
        Err(error) => error.to_string(),
    };
    let recorded = planned(&tree).replace("refused: ", "");
    assert!(recorded.contains(&live), "{live}\n{recorded}");
}

fn keep(tree: &mut Tree, path: &Path) {
    if let Ok(text) = fs::read_to_string(path) {
        let text = text.trim_end_matches(['\0', '\n']).replace('\0', "\\0");
        tree.0
            .insert(path.to_str().unwrap().to_owned(), text + "\n");
    }
}

fn keep_process(tree: &mut Tree, pid: u32) {
    let process = format!("/proc/{pid}");
    for file in ["stat", "cmdline", "cgroup"] {
        keep(tree, Path::new(&format!("{process}/{file}")));
    }
    for tid in procfs::threads(pid).unwrap_or_default() {
        for file in ["stat", "cgroup"] {
            keep(tree, Path::new(&format!("{process}/task/{tid}/{file}")));
        }
    }
}

/// Keeps a group and those below it; of its processes those that are kept.
fn keep_groups(
    tree: &mut Tree,
    group: &Path,
    pids: &BTreeSet<u32>,
    unguarded: &mut BTreeSet<PathBuf>,
) {
    if !Live.is_guarded(group) {
        unguarded.insert(group.to_owned());
    }
    for file in GROUP {
        keep(tree, &group.join(file));
    }
    if let Ok(text) = fs::read_to_string(group.join("cgroup.procs")) {
        let kept = |line: &&str| line.parse().is_ok_and(|pid| pids.contains(&pid));
        let text: String = text
            .lines()
            .filter(kept)
            .flat_map(|pid| [pid, "\n"])
            .collect();
        if !text.is_empty() {
            let path = group.join("cgroup.procs");
            tree.0.insert(path.to_str().unwrap().to_owned(), text);
        }
    }
    for child in children(group) {
        keep_groups(tree, &child, pids, unguarded);
    }
}

/// The processes with a thread that has a reservation.
fn reserved() -> BTreeSet<u32> {
    let has = |pid: &u32| {
        let threads = procfs::threads(*pid).unwrap_or_default();
        threads
            .iter()
            .any(|tid| Live.scheduling(*tid).is_ok_and(|seen| seen.is_deadline()))
    };
    procfs::processes(&Root::default())
        .unwrap()
        .into_iter()
        .filter(has)
        .collect()
}

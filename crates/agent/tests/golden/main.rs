//! Golden records of the vCPU agent: what it finds on recorded machines, and what
//! it would do there.
//!
//! `cases/NAME.tree` is a host (see [`tree`]), `cases/NAME.plan` the agent's plan for it.
//! `TAILBOUND_GOLDEN=write` writes the plan anew. Most hosts are handmade in the kernel's own
//! format; the `notes` of each name its source. `record` adds a real host.

mod record;
mod tree;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use tailbound_agent::AgentConfig;
use tailbound_agent::budget::{DesiredStates, desired};
use tailbound_agent::guest::{Guest, WeightBearer};
use tailbound_agent::journal::peek;
use tailbound_agent::observed::{Domain, Limits, ObservedMachine};
use tailbound_agent::observer::Observer;
use tailbound_agent::plan::{Plan, plan};
use tailbound_agent::scan::Scanner;
use tailbound_agent::step::Call;
use tailbound_sys::root::Root;
use tree::{Answers, Tree};

fn cases() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/cases")
}

#[test]
fn golden_plans_on_recorded_machines_are_as_they_were() {
    let mut trees: Vec<_> = fs::read_dir(cases())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|kind| kind == "tree"))
        .collect();
    trees.sort();
    assert!(trees.len() >= 8, "the recorded machines are missing");
    let mut differing = Vec::new();
    for path in trees {
        let found = planned(&Tree::read(&path));
        let record = path.with_extension("plan");
        if std::env::var_os("TAILBOUND_GOLDEN").is_some_and(|value| value == "write") {
            fs::write(record, found).unwrap();
            continue;
        }
        let expected = fs::read_to_string(&record).unwrap_or_default();
        if let Some(difference) = first_difference(&expected, &found) {
            differing.push(format!("{}:{difference}", record.display()));
        }
    }
    assert!(
        differing.is_empty(),
        "{}\nif that is what was meant: TAILBOUND_GOLDEN=write",
        differing.join("\n")
    );
}

fn first_difference(expected: &str, found: &str) -> Option<String> {
    if expected == found {
        return None;
    }
    let (expected, found): (Vec<_>, Vec<_>) = (expected.lines().collect(), found.lines().collect());
    let at = expected
        .iter()
        .zip(&found)
        .take_while(|(a, b)| a == b)
        .count();
    let line = |lines: &[&str]| {
        lines
            .get(at)
            .map_or("(nothing)".to_owned(), |l| (*l).to_owned())
    };
    Some(format!(
        "{}:\n  was {}\n  is  {}",
        at + 1,
        line(&expected),
        line(&found)
    ))
}

/// The agent's findings on a host, and its plan.
fn planned(tree: &Tree) -> String {
    let directory = tempfile::tempdir().unwrap();
    let _qmp = tree.unpack(directory.path());
    let root = Root::at(directory.path());
    let config = AgentConfig::parse(&tree.text("rules.toml")).unwrap();
    let Answers { facts, calls } = tree.answers(directory.path());

    let mut scanner = Scanner::on(root.clone(), facts.user, Box::new(calls.clone())).unwrap();
    let guests = scanner.scan(&config.rules).unwrap();
    let cpus = scanner.cpus().unwrap();
    let DesiredStates { desired, beyond } = desired(&config.rules, &guests, cpus, |_| false);
    let mut observer = Observer::on(root.clone(), facts, Box::new(calls)).unwrap();
    let seen = observer.observe(&desired).unwrap();
    let originals = peek(&root, &root.path(&config.state)).unwrap().originals();

    let mut out = String::new();
    for guest in &guests {
        show_guest(&mut out, guest);
    }
    for refusal in scanner.refusals() {
        writeln!(out, "rule refused: {refusal}").unwrap();
    }
    for beyond in &beyond {
        writeln!(out, "beyond the budget: {beyond}").unwrap();
    }
    show_machine(&mut out, &seen.machine);
    for (thread, original) in &originals {
        let (scheduling, cpus) = (original.scheduling, original.cpus);
        writeln!(out, "thread {thread} was {scheduling} on {cpus}").unwrap();
    }
    match plan(&desired, &seen, &originals) {
        Ok(plan) => show_plan(&mut out, &plan),
        Err(refusals) => {
            for refusal in refusals {
                writeln!(out, "refused: {refusal}").unwrap();
            }
        }
    }
    // Where the tree was unpacked is no part of it.
    out.replace(directory.path().to_str().unwrap(), "")
}

fn show_guest(out: &mut String, guest: &Guest) {
    let Guest {
        name,
        vmm,
        pid,
        origin,
        weighed,
        threads,
        rules,
        rule,
        notes,
        ..
    } = guest;
    let by = rule.map_or("none".into(), |rule| rule.to_string());
    let group = match weighed {
        WeightBearer::Threads => "none".into(),
        WeightBearer::Group(group) => group.display().to_string(),
        WeightBearer::Nothing { group, others } => format!("{} beside {others}", group.display()),
    };
    writeln!(
        out,
        "guest {name}: {vmm:?}, process {pid}, group {group}, rules {rules:?}, by rule {by}"
    )
    .unwrap();
    let place = origin.place.as_ref();
    let manager = place.map_or("itself".into(), |(manager, _)| manager.to_string());
    let nested = if origin.nested { ", nested" } else { "" };
    writeln!(out, "  user {:?}{nested}, named by {manager}", origin.uid).unwrap();
    for thread in threads {
        writeln!(
            out,
            "  {}/{} {:?}: {}",
            thread.id.pid, thread.id.tid, thread.name, thread.role
        )
        .unwrap();
    }
    for note in notes {
        writeln!(out, "  note: {note}").unwrap();
    }
}

fn show_machine(out: &mut String, machine: &ObservedMachine) {
    let ObservedMachine {
        domains,
        limits,
        slices,
        slice_timers: _,
        kernel: _,
        privileged,
    } = machine;
    for Domain { cpus, booked, .. } in domains {
        let booked: Vec<_> = booked
            .iter()
            .map(|(thread, reservation)| format!("{thread}={}", reservation.bandwidth()))
            .collect();
        writeln!(out, "domain {cpus}: booked [{}]", booked.join(" ")).unwrap();
    }
    let Limits {
        share,
        fair_server,
        periods,
        overrun,
        tick: _,
    } = limits;
    writeln!(
        out,
        "limits: share {share:?}, fair server {fair_server}, periods {} to {}, overrun \
         {overrun}, slices {slices}, privileged {privileged}",
        periods.start(),
        periods.end()
    )
    .unwrap();
}

fn show_plan(out: &mut String, plan: &Plan) {
    write!(out, "{plan}").unwrap();
    for step in &plan.threads {
        let calls: Vec<_> = step.calls().iter().map(show_call).collect();
        writeln!(out, "calls for {}: {}", step.thread, calls.join("; ")).unwrap();
    }
}

fn show_call(call: &Call) -> String {
    match call {
        Call::Release(before) => format!("release {before}"),
        Call::Affinity(cpus) => format!("affinity {cpus}"),
        Call::Schedule(to) => format!("schedule {to} flags {}", to.flags),
    }
}

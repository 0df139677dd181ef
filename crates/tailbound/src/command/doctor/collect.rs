//! Runs the trials. Trials that need a network namespace run in a child process: a user namespace
//! can only be entered by a single thread, and the child's end removes everything that the trials
//! created. The child reports its results line by line, so that one trial that hangs does not hide
//! the others.

use super::{Finding, Grade, Inside};
use crate::command::output;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use tailbound_sys::probe::{self, Capability, Place, Probe, Remedy, TABLE, TrialResult};
use tailbound_sys::user_namespace;

/// Time limit of a child. The trials together take well under a second.
const TIMEOUT: Duration = Duration::from_secs(10);
const OUT_OF_TIME: &str = "this trial or one before it did not end in 10 s";

/// An outcome as a line of a child's output.
#[derive(Debug, Serialize, Deserialize)]
struct Line {
    name: String,
    works: bool,
    detail: String,
    command: Option<String>,
    advice: Option<String>,
}

type Outcomes = BTreeMap<String, TrialResult>;

/// Runs all trials of the table.
pub(super) fn findings() -> Vec<Finding> {
    let mut inside = child(Inside::ThisUser);
    if rustix::process::geteuid().is_root() {
        let user = user_namespaces_of_others(&child(Inside::OrdinaryUser));
        inside.insert(Capability::UserNamespaces.probe().name.into(), user);
    }
    TABLE
        .iter()
        .map(|probe| {
            let outcome = match probe.place {
                Place::Anywhere => probe.capability.try_here(),
                Place::Namespace => inside
                    .remove(probe.name)
                    .unwrap_or_else(|| probe::not_tried(OUT_OF_TIME)),
            };
            finding(probe, outcome)
        })
        .collect()
}

fn finding(probe: &Probe, outcome: TrialResult) -> Finding {
    Finding {
        name: probe.name,
        needed_by: probe.needed_by,
        helps: probe.helps,
        grade: match (outcome.works, !probe.needed_by.is_empty()) {
            (true, _) => Grade::Pass,
            (false, true) => Grade::Fail,
            (false, false) => Grade::Warn,
        },
        purpose: probe.purpose,
        // On one line, even if a tool printed several.
        detail: outcome.detail.replace(char::is_control, " "),
        mend: outcome.remedy.map(|remedy| remedy.to_string()),
    }
}

/// Returns root's findings about namespaces of ordinary users: whether an ordinary user can create
/// one, and whether a TAP can be created in it.
fn user_namespaces_of_others(outcomes: &Outcomes) -> TrialResult {
    let of = |capability: Capability| outcomes.get(capability.probe().name);
    let mut outcome = of(Capability::UserNamespaces)
        .cloned()
        .unwrap_or_else(|| probe::not_tried(OUT_OF_TIME));
    if outcome.works {
        outcome.detail = match of(Capability::Tap) {
            Some(tap) if !tap.works => {
                format!(
                    "an ordinary user made one, but no TAP in it ({})",
                    tap.detail
                )
            }
            _ => "an ordinary user made one, and a TAP in it".into(),
        };
    }
    outcome
}

/// Runs this program again with the trials that need a namespace. Trials that are missing in the
/// result were not reached in time.
fn child(inside: Inside) -> Outcomes {
    let user = match inside {
        Inside::ThisUser => "this-user",
        Inside::OrdinaryUser => "ordinary-user",
    };
    let started = std::env::current_exe().and_then(|program| {
        Command::new(program)
            .args(["doctor", "--inside", user])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
    });
    let Ok(mut process) = started else {
        return not_reached("this program cannot start itself again");
    };
    let (sender, lines) = mpsc::channel();
    let stdout = process.stdout.take();
    std::thread::spawn(move || {
        for line in stdout
            .into_iter()
            .flat_map(|out| BufReader::new(out).lines())
        {
            let Ok(line) = line else { break };
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    let deadline = Instant::now() + TIMEOUT;
    let mut outcomes = Outcomes::new();
    // Ends when the child has closed its output, or at the deadline.
    while let Ok(text) = lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
        if let Ok(line) = serde_json::from_str::<Line>(&text) {
            outcomes.insert(line.name.clone(), line.into());
        }
    }
    // Errors are ignored: the group has ended, or is reaped below.
    let group = rustix::process::Pid::from_child(&process);
    let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    let _ = process.wait();
    outcomes
}

fn not_reached(why: &str) -> Outcomes {
    namespace_probes()
        .map(|probe| (probe.name.to_owned(), probe::not_tried(why)))
        .collect()
}

fn namespace_probes() -> impl Iterator<Item = &'static Probe> {
    TABLE.iter().filter(|probe| probe.place == Place::Namespace)
}

/// Runs in the child: enters a namespace of its own and prints the result of each trial.
pub(super) fn inside(inside: Inside) {
    if inside == Inside::OrdinaryUser
        && let Err(error) = probe::become_ordinary_user()
    {
        say_all(&not_reached(&format!(
            "cannot become an ordinary user: {error}"
        )));
        return;
    }
    // After a change of user, which clears it. After an error, a trial that hangs only outlives a
    // parent that was killed.
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    match user_namespace::enter() {
        Ok(_) => {
            // As another user, run only the trials about other users.
            let about_users = [Capability::UserNamespaces, Capability::Tap];
            for probe in namespace_probes() {
                if inside == Inside::ThisUser || about_users.contains(&probe.capability) {
                    say(probe.name, &probe.capability.try_here());
                }
            }
        }
        Err(error) => {
            let mut outcomes = not_reached("no network namespace can be made");
            // One finding has the reason. For an ordinary user only user namespaces are tested.
            let capability = match inside {
                Inside::ThisUser => Capability::NetworkNamespaces,
                Inside::OrdinaryUser => Capability::UserNamespaces,
            };
            let refused = probe::namespaces_refused(&error);
            outcomes.insert(capability.probe().name.into(), refused);
            say_all(&outcomes);
        }
    }
}

fn say_all(outcomes: &Outcomes) {
    for (name, outcome) in outcomes {
        say(name, outcome);
    }
}

fn say(name: &str, outcome: &TrialResult) {
    let (command, advice) = match &outcome.remedy {
        Some(Remedy::Root(command)) => (Some(command.clone()), None),
        Some(Remedy::Advice(advice)) => (None, Some(advice.clone())),
        None => (None, None),
    };
    let line = Line {
        name: name.into(),
        works: outcome.works,
        detail: outcome.detail.clone(),
        command,
        advice,
    };
    // A parent that has exited needs no output.
    if let Ok(text) = serde_json::to_string(&line) {
        output::print(&format!("{text}\n"));
    }
}

impl From<Line> for TrialResult {
    fn from(line: Line) -> Self {
        Self {
            works: line.works,
            detail: line.detail,
            remedy: line
                .command
                .map(Remedy::Root)
                .or(line.advice.map(Remedy::Advice)),
        }
    }
}

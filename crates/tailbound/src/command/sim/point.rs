//! One point of a grid as a process of its own: what it took is known exactly, and whatever becomes
//! of it, the others go on.

use super::{Share, kind};
use crate::command::output;
use crate::exit::{Exit, Failure};
use rustix::process::{Pid, Resource, Rlimit, Signal};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use signal_hook::consts::{SIGINT, SIGTERM, SIGXCPU};
use std::io::{self, Write as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use tailbound_experiment::{ExperimentError, Source};
use tailbound_report::Results;
use tailbound_sim::grid::Cost;
use tailbound_sys::{memory, process};

/// What a process is given.
#[derive(Debug, Serialize, Deserialize)]
struct Task {
    /// Who gave it.
    parent: i32,
    kind: String,
    /// Of the experiment.
    file: String,
    text: String,
    seed: u64,
    /// It may take so much time on a CPU.
    cpu_seconds: Option<u64>,
}

/// What it says.
#[derive(Debug, Serialize, Deserialize)]
struct Done {
    results: Results,
    cost: Cost,
}

/// Why a point has no result.
#[derive(Debug, thiserror::Error)]
pub(super) enum PointError {
    /// It took more time than it was given.
    #[error("it took more than {0} s of a CPU")]
    TooLong(u64),
    /// It said why, or how it ended.
    #[error("{0}")]
    Failed(String),
    /// It could not be started, or not be heard.
    #[error("its process: {0}")]
    Process(#[from] io::Error),
}

/// Runs an experiment in a process of its own, on one thread.
///
/// # Errors
/// It has no result.
pub(super) fn measure(
    kind: &str,
    source: &Source,
    seed: u64,
    cpu_seconds: Option<u64>,
) -> Result<(Results, Cost), PointError> {
    let task = Task {
        parent: rustix::process::getpid().as_raw_nonzero().get(),
        kind: kind.to_owned(),
        file: source.file.clone(),
        text: source.text.clone(),
        seed,
        cpu_seconds,
    };
    let task = serde_json::to_vec(&task).expect("plain values always serialize");
    // This very program, whatever has become of its file.
    let mut child = Command::new("/proc/self/exe")
        .arg0("tailbound")
        .args(["sim", "point"])
        // A Ctrl-C is meant for this process: it ends what it began.
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut stdin = child.stdin.take().expect("it is a pipe");
    // One that ended without reading says why.
    let _ = stdin.write_all(&task);
    drop(stdin);
    outcome(&child.wait_with_output()?, cpu_seconds)
}

fn outcome(output: &Output, cpu_seconds: Option<u64>) -> Result<(Results, Cost), PointError> {
    if output.status.success() {
        return match serde_json::from_slice(&output.stdout) {
            Ok(Done { results, cost }) => Ok((results, cost)),
            Err(error) => Err(PointError::Failed(error.to_string())),
        };
    }
    if let (Some(SIGXCPU), Some(seconds)) = (output.status.signal(), cpu_seconds) {
        return Err(PointError::TooLong(seconds));
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.trim().trim_start_matches("tailbound: ");
    Err(PointError::Failed(if said.is_empty() {
        process::how_it_ended(output.status)
    } else {
        said.to_owned()
    }))
}

/// `tailbound sim point`: the process.
pub(super) fn run() -> Result<Exit, Failure> {
    let task: Task = serde_json::from_reader(io::stdin()).map_err(|error| {
        Failure::wrong_arguments(format!("a point is run by `tailbound sim run`: {error}"))
    })?;
    die_with(task.parent)?;
    // Whoever gave it decides when it ends.
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::default())?;
    }
    if let Some(seconds) = task.cpu_seconds {
        let limit = Rlimit {
            current: Some(seconds),
            maximum: None,
        };
        rustix::process::setrlimit(Resource::Cpu, limit)?;
    }
    let Some(kind) = kind(&task.kind, Share::One) else {
        return Err(Failure::new(format!("there is no kind {:?}", task.kind)));
    };
    let source = Source {
        text: task.text,
        file: task.file,
    };
    let done = done(kind.read(&source)?.run(task.seed, &mut |_| {}))?;
    output::print(&serde_json::to_string(&done)?);
    Ok(Exit::Holds)
}

fn done(results: Result<Results, ExperimentError>) -> Result<Done, ExperimentError> {
    let results = results?;
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let cost = Cost {
        cpu_ns: time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64,
        peak_bytes: memory::peak().map_or(0, |peak| peak.0),
    };
    Ok(Done { results, cost })
}

/// Has the kernel kill this process when the one that gave it its task ends.
fn die_with(parent: i32) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    // It may have ended before.
    if rustix::process::getppid()
        .map(Pid::as_raw_nonzero)
        .map(i32::from)
        != Some(parent)
    {
        return Err(io::Error::other(
            "the process that started the point has ended",
        ));
    }
    Ok(())
}

//! Runs `tailbound probe` and keeps what it says, whatever its verdict.

use super::{Outcome, Starter, leave, sleep_until};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use tailbound_report::Stats;
use tailbound_units::Nanos;

/// What `tailbound probe --output json` says, as far as the lab reads it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProbeReport {
    /// `GOOD`, `BAD`, `UNSURE` or `INCONCLUSIVE`.
    pub verdict: String,
    /// That and why.
    pub line: String,
    /// Each vCPU.
    pub cpus: Vec<ProbedCpu>,
}

/// What it says of one vCPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProbedCpu {
    /// Late sleeps.
    pub late: u64,
    /// Of these, those that the guest itself kept waiting.
    pub ours: u64,
    /// Those that the hypervisor says it took the CPU for.
    pub stolen: u64,
    /// Those that nothing explains.
    pub unexplained: u64,
    /// The share of the vCPU that the probe used.
    pub cost: f64,
    /// How long it ran, in nanoseconds.
    pub elapsed_ns: u64,
    /// How long its sleeps took.
    pub sleep_ns: Stats,
}

pub(super) fn run(
    starter: &Starter<'_>,
    args: &[String],
    after: Nanos,
    result: Option<&Path>,
) -> io::Result<()> {
    let schedule = starter.ready()?;
    sleep_until(schedule.start.saturating_add(after));
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("probe").args(args).args(["--output", "json"]);
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .output()?;
    // Its exit code is its verdict.
    let report = serde_json::from_slice(&output.stdout).map_err(|error| {
        let said = String::from_utf8_lossy(&output.stderr);
        io::Error::other(format!("{error} in its output; it said: {}", said.trim()))
    })?;
    if let Some(result) = result {
        leave(result, &output.stdout)?;
    }
    starter.finish(&Outcome {
        probe: Some(report),
        ..Outcome::default()
    })
}

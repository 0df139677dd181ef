//! `tailbound vcpu list`.

use super::super::output::{self, Output};
use crate::exit::{Exit, Failure};
use serde::Serialize;
use std::fmt::Write as _;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use tailbound_agent::guest::Vmm;
use tailbound_agent::journal::DEFAULT_STATE;
use tailbound_agent::rule::GuestRule;
use tailbound_agent::usage::{ThreadUsage, Usage, measure};
use tailbound_units::Nanos;

/// Version of the JSON document's format.
const SCHEMA: u32 = 2;

/// Arguments of `tailbound vcpu list`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "READY is the share of the interval in which the thread was runnable and \
    waited for a CPU (CPU ready time), WAIT the mean wait. A policy with * was set by \
    tailbound. Exit code: 0 done; 2 failed."
)]
pub(super) struct List {
    /// A further process to show, beside the recognised guests
    #[arg(long)]
    pid: Vec<u32>,
    /// The duration of the measurement of waits, 1ms to 1h
    #[arg(long, value_name = "TIME", default_value = "200ms", value_parser = interval)]
    interval: Nanos,
    /// The file that stores the previous settings
    #[arg(long, value_name = "FILE", default_value = DEFAULT_STATE)]
    state: PathBuf,
    /// The output format
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

/// Durations for which waits can be measured.
const INTERVALS: RangeInclusive<Nanos> = Nanos::from_millis(1)..=Nanos::from_secs(3_600);

fn interval(text: &str) -> Result<Nanos, String> {
    let interval: Nanos = text.parse().map_err(|error| format!("{error}"))?;
    if INTERVALS.contains(&interval) {
        return Ok(interval);
    }
    Err(format!(
        "waits are measured for {} to {}",
        INTERVALS.start(),
        INTERVALS.end()
    ))
}

/// JSON document of `--output json`.
#[derive(Debug, Serialize)]
struct Document<'a> {
    interval_ns: u64,
    threads: Vec<Thread<'a>>,
    notes: &'a [String],
}

/// A thread of a guest.
#[derive(Debug, Serialize)]
struct Thread<'a> {
    guest: &'a str,
    vmm: Vmm,
    role: &'a str,
    tid: u32,
    name: &'a str,
    /// Scheduling in words, as in the table.
    scheduling: String,
    /// The kernel's policy number, and its parameters.
    policy: u32,
    nice: i32,
    priority: u32,
    runtime_ns: u64,
    deadline_ns: u64,
    period_ns: u64,
    ours: bool,
    cpus: &'a str,
    ready: f64,
    mean_wait_ns: u64,
    waited_ns: u64,
    ran_ns: u64,
}

impl<'a> Document<'a> {
    fn new(usage: &'a Usage) -> Self {
        Self {
            interval_ns: usage.interval.0,
            threads: usage.threads.iter().map(Thread::new).collect(),
            notes: &usage.notes,
        }
    }
}

impl<'a> Thread<'a> {
    fn new(thread: &'a ThreadUsage) -> Self {
        let scheduling = thread.scheduling;
        Self {
            guest: &thread.guest,
            vmm: thread.vmm,
            role: &thread.role,
            tid: thread.tid,
            name: &thread.name,
            scheduling: scheduling.to_string(),
            policy: scheduling.policy.0,
            nice: scheduling.nice,
            priority: scheduling.priority,
            runtime_ns: scheduling.runtime.0,
            deadline_ns: scheduling.deadline.0,
            period_ns: scheduling.period.0,
            ours: thread.ours,
            cpus: &thread.cpus,
            ready: thread.ready,
            mean_wait_ns: thread.mean_wait.0,
            waited_ns: thread.waited.0,
            ran_ns: thread.ran.0,
        }
    }
}

impl List {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        super::all_run(&self.pid)?;
        let rules: Vec<_> = self
            .pid
            .iter()
            .map(|pid| GuestRule {
                pid: Some(*pid),
                ..GuestRule::default()
            })
            .collect();
        let usage = measure(&rules, self.interval, &self.state)?;
        output::print(&match self.output {
            Output::Json => output::json("vcpu-list", SCHEMA, &Document::new(&usage)),
            Output::Text => table(&usage),
        });
        Ok(Exit::Holds)
    }
}

fn table(usage: &Usage) -> String {
    let mut out = String::new();
    if usage.threads.is_empty() {
        out += "no guest is running here that can be recognised; --pid shows any process\n";
    } else {
        let head = ["GUEST", "THREAD", "TID", "POLICY", "CPUS", "READY", "WAIT"];
        let mut lines = vec![head.map(str::to_owned)];
        lines.extend(usage.threads.iter().map(|row| {
            let star = if row.ours { " *" } else { "" };
            [
                row.guest.clone(),
                row.role.clone(),
                row.tid.to_string(),
                format!("{}{star}", row.scheduling),
                row.cpus.clone(),
                format!("{:.1} %", 100.0 * row.ready),
                format!("{:.3} ms", row.mean_wait.as_millis_f64()),
            ]
        }));
        let mut widths = [0; 7];
        for line in &lines {
            for (width, field) in widths.iter_mut().zip(line) {
                *width = (*width).max(field.chars().count());
            }
        }
        for line in &lines {
            for (index, (field, width)) in line.iter().zip(widths).enumerate() {
                // Writing to a String does not fail.
                let _ = if index + 1 == widths.len() {
                    writeln!(out, "{field}")
                } else {
                    write!(out, "{field:<width$}  ")
                };
            }
        }
    }
    for note in &usage.notes {
        let _ = writeln!(out, "note: {note}");
    }
    out
}

//! `tailbound vcpu list`.

use super::super::output::{self, Output};
use crate::exit::{Exit, Failure};
use serde::Serialize;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;
use tailbound_agent::guest::{Guest, GuestThread, Vmm};
use tailbound_agent::journal::{Changes, DEFAULT_STATE, peek};
use tailbound_agent::kernel::{Kernel as _, Linux};
use tailbound_agent::rule::GuestRule;
use tailbound_agent::scan::Scanner;
use tailbound_sys::root::Root;
use tailbound_sys::thread::{Schedstat, Scheduling, Tasks};
use tailbound_units::Nanos;

/// Arguments of `tailbound vcpu list`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "READY is the share of the interval in which the thread could run and waited \
    for a CPU (what other hypervisors call CPU ready), WAIT the mean of its waits. A policy \
    marked * is ours. Exit code: 0 done; 2 it could not."
)]
pub(super) struct List {
    /// A process to show besides the guests that are recognised
    #[arg(long)]
    pid: Vec<u32>,
    /// How long waits are measured
    #[arg(long, value_name = "TIME", default_value = "200ms")]
    interval: Nanos,
    /// Where what was there before is written down
    #[arg(long, value_name = "FILE", default_value = DEFAULT_STATE)]
    state: PathBuf,
    /// What to print
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

/// What is shown of a thread.
#[derive(Debug, Serialize)]
struct Row {
    guest: String,
    vmm: Vmm,
    role: String,
    tid: u32,
    name: String,
    policy: String,
    #[serde(flatten)]
    scheduling: Scheduling,
    /// Whether the agent gave it that.
    ours: bool,
    cpus: String,
    /// Share of the interval in which it waited.
    ready: f64,
    mean_wait: Nanos,
    /// Since it started.
    waited: Nanos,
    ran: Nanos,
}

/// What `--output json` prints.
#[derive(Debug, Serialize)]
struct Document {
    schema: u32,
    interval: Nanos,
    threads: Vec<Row>,
    notes: Vec<String>,
}

impl List {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let rules: Vec<_> = self
            .pid
            .iter()
            .map(|pid| GuestRule {
                pid: Some(*pid),
                ..GuestRule::default()
            })
            .collect();
        let guests = Scanner::new().and_then(|mut scanner| scanner.scan(&rules))?;
        let changes = peek(&Root::default(), &self.state).unwrap_or_default();
        let all = || {
            guests
                .iter()
                .flat_map(|g| g.threads.iter().map(move |t| (g, t)))
        };
        let before: Vec<_> = all().map(|(_, thread)| waits(thread)).collect();
        std::thread::sleep(Duration::from(self.interval));
        let mut kernel = Linux::new()?;
        let rows = all().zip(before).filter_map(|((guest, thread), before)| {
            row(guest, thread, before?, self.interval, &changes, &mut kernel)
        });
        let note = |guest: &Guest| {
            let name = guest.name.clone();
            let notes = guest.notes.iter();
            notes
                .map(move |note| format!("{name}: {note}"))
                .collect::<Vec<_>>()
        };
        let document = Document {
            schema: 1,
            interval: self.interval,
            threads: rows.collect(),
            notes: guests.iter().flat_map(note).collect(),
        };
        output::print(&match self.output {
            Output::Json => output::json(&document),
            Output::Text => document.text(),
        });
        Ok(Exit::Holds)
    }
}

fn waits(thread: &GuestThread) -> Option<Schedstat> {
    let tasks = Tasks::open(&Root::default(), thread.id.pid).ok()?;
    tasks.schedstat(thread.id.tid).ok()?
}

/// `None` when the thread has ended.
fn row(
    guest: &Guest,
    thread: &GuestThread,
    before: Schedstat,
    interval: Nanos,
    changes: &Changes,
    kernel: &mut Linux,
) -> Option<Row> {
    let now = waits(thread)?;
    let state = kernel.state(thread.id).ok()??;
    let wait = now.wait.since(before.wait);
    let count = now.count.saturating_sub(before.count);
    Some(Row {
        guest: guest.name.clone(),
        vmm: guest.vmm,
        role: thread.role.to_string(),
        tid: thread.id.tid,
        name: thread.name.clone(),
        policy: state.scheduling.to_string(),
        scheduling: state.scheduling,
        ours: changes.threads.contains_key(&thread.id),
        cpus: state.cpus.to_string(),
        ready: wait.as_secs_f64() / interval.as_secs_f64().max(f64::MIN_POSITIVE),
        mean_wait: Nanos(wait.0.checked_div(count).unwrap_or(0)),
        waited: now.wait,
        ran: now.run,
    })
}

impl Document {
    fn text(&self) -> String {
        let mut out = String::new();
        if self.threads.is_empty() {
            out += "no guest is running here that can be recognised; --pid shows any process\n";
        } else {
            let head = ["GUEST", "THREAD", "TID", "POLICY", "CPUS", "READY", "WAIT"];
            let mut lines = vec![head.map(str::to_owned)];
            lines.extend(self.threads.iter().map(|row| {
                let star = if row.ours { " *" } else { "" };
                [
                    row.guest.clone(),
                    row.role.clone(),
                    row.tid.to_string(),
                    format!("{}{star}", row.policy),
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
        for note in &self.notes {
            let _ = writeln!(out, "note: {note}");
        }
        out
    }
}

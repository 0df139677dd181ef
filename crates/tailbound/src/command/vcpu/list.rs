//! `tailbound vcpu list`.

use super::super::output::{self, Output};
use crate::exit::{Exit, Failure};
use serde::Serialize;
use std::fmt::Write as _;
use std::path::PathBuf;
use tailbound_agent::journal::DEFAULT_STATE;
use tailbound_agent::rule::GuestRule;
use tailbound_agent::usage::{Usage, measure};
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

/// What `--output json` prints.
#[derive(Debug, Serialize)]
struct Document {
    schema: u32,
    #[serde(flatten)]
    usage: Usage,
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
        let usage = measure(&rules, self.interval, &self.state)?;
        output::print(&match self.output {
            Output::Json => output::json(&Document { schema: 1, usage }),
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
    for note in &usage.notes {
        let _ = writeln!(out, "note: {note}");
    }
    out
}

//! `tailbound trace`: waits of guests' threads for a CPU, the threads that ran meanwhile, and the
//! times of each frame of a guest, in a file for Perfetto.

use super::host::DaemonArgs;
use super::output;
use crate::exit::{Exit, Failure};
use std::path::PathBuf;
use tailbound_host::trace::Plan;
use tailbound_units::Nanos;

/// Shortest wait that can be recorded individually.
const MIN_RECORDED_WAIT: Nanos = Nanos::from_micros(10);
/// Longest duration of a trace.
const MAX_DURATION: Nanos = Nanos::from_secs(600);

/// Subject of the trace.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
enum Of {
    /// Waits of threads for a CPU
    #[default]
    Vcpus,
    /// Frames of one guest, as the daemon of --config sees them
    Packets,
    /// Both, of one guest, on one time scale
    Both,
}

/// Arguments of `tailbound trace`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Each wait of a guest's thread for a CPU is a slice of that thread: from when it was \
    woken, or lost its CPU, until it ran. In it is who ran on that CPU meanwhile. Each is measured in \
    the kernel (BPF). Each frame of a guest is a slice, too: what it waited for, from when it joined a \
    queue until it was let go, the port took it, and it begins on the wire. The daemon keeps 131,072 of \
    them at most. Open the file at https://ui.perfetto.dev or chrome://tracing, or query it with \
    trace_processor: docs/reference/vcpu.md. Exit code: 0 written; 2 waits cannot be measured one by one here, no \
    daemon answers, there is no such guest, or the file cannot be written."
)]
pub(crate) struct Args {
    /// Subject of the trace
    #[arg(long, value_enum, default_value_t)]
    of: Of,
    /// Guests of this name alone
    #[arg(long, value_name = "NAME")]
    guest: Vec<String>,
    /// A process to look at besides the guests that are recognised
    #[arg(long)]
    pid: Vec<u32>,
    /// Duration of the trace
    #[arg(long, value_name = "TIME", default_value = "5s")]
    duration: Nanos,
    /// Leave out waits of threads that are shorter
    #[arg(long, value_name = "TIME", default_value = "50us")]
    least: Nanos,
    /// File of the trace
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    #[command(flatten)]
    daemon: DaemonArgs,
}

impl Args {
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        self.check()?;
        let plan = Plan {
            waits: self.of != Of::Packets,
            frames_of: match self.of {
                Of::Vcpus => None,
                Of::Packets | Of::Both => self.guest.first().cloned(),
            },
            guests: self.guest,
            pids: self.pid,
            duration: self.duration,
            least: self.least,
            out: self.out,
        };
        let recorded = plan.record(|| self.daemon.connect())?;
        let mut text = format!("{}\n{}\n", plan.out.display(), recorded.summary);
        for remark in recorded.remarks {
            text.push_str(&remark);
            text.push('\n');
        }
        output::print(&text);
        Ok(Exit::Holds)
    }

    fn check(&self) -> Result<(), Failure> {
        super::vcpu::all_run(&self.pid)?;
        if self.least < MIN_RECORDED_WAIT {
            return Err(Failure::wrong_arguments(format!(
                "--least: use at least {MIN_RECORDED_WAIT}"
            )));
        }
        if self.duration > MAX_DURATION || self.duration == Nanos::ZERO {
            return Err(Failure::wrong_arguments(format!(
                "--duration: use up to {MAX_DURATION}"
            )));
        }
        if self.of != Of::Vcpus && self.guest.len() != 1 {
            return Err(Failure::wrong_arguments(
                "--of: packets are those of one guest; name it with --guest, once",
            ));
        }
        if self.of == Of::Packets && !self.pid.is_empty() {
            return Err(Failure::wrong_arguments(
                "--pid: a process has threads, no packets; use --of both for both",
            ));
        }
        Ok(())
    }
}

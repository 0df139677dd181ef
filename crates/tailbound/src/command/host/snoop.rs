//! `tailbound host snoop`, `migrate-prepare`: early acknowledgement for guests.

use super::daemon_args::{DaemonArgs, failure};
use crate::command::output::{self, Output};
use crate::exit::{Exit, Failure};
use serde::Serialize;
use std::fmt::Write as _;
use std::path::Path;
use tailbound_host::socket::{Outcome, Request, SnoopFlow};
use tailbound_report::{Paint, Table, human};
use tailbound_units::Nanos;

/// Arguments of `tailbound host snoop`.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Snoop {
    /// Show a guest's connections, and why some are not acknowledged early
    Show(Show),
}

impl Snoop {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        match self {
            Self::Show(show) => show.run(),
        }
    }
}

/// Arguments of `tailbound host snoop show`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit code: 0 shown; 1 there is no such guest, or early acknowledgement is \
    disabled for it; 2 no daemon answers."
)]
pub(super) struct Show {
    /// The name of the guest
    guest: String,
    /// The output format
    #[arg(long, value_enum, default_value_t)]
    output: Output,
    #[command(flatten)]
    daemon: DaemonArgs,
}

/// JSON document of `--output json`.
#[derive(Debug, Serialize)]
struct Document<'s> {
    count: usize,
    flows: &'s [SnoopFlow],
}

const HEAD: [&str; 7] = [
    "guest", "peer", "mode", "owed", "withheld", "retained", "resends",
];

impl Show {
    fn run(self) -> Result<Exit, Failure> {
        let request = Request::ShowSnoop { guest: self.guest };
        let (count, flows) = match self.daemon.ask(&request)? {
            Outcome::Snoop { count, flows } => (count, flows),
            other => return Err(failure(other, Path::new(""))),
        };
        output::print(&match self.output {
            Output::Json => output::json(
                "host-snoop",
                1,
                &Document {
                    count,
                    flows: &flows,
                },
            ),
            Output::Text => text(count, &flows, output::paint()),
        });
        Ok(Exit::Holds)
    }
}

fn text(count: usize, flows: &[SnoopFlow], paint: Paint) -> String {
    let mut table = Table::new(&HEAD, &[0, 1, 2]);
    for flow in flows {
        let bytes = |bytes: u64| human(bytes as f64, "B");
        table.row([
            flow.guest.to_string(),
            flow.peer.to_string(),
            flow.mode.clone(),
            bytes(flow.owed.into()),
            bytes(flow.withheld.into()),
            bytes(flow.retained),
            flow.resends.to_string(),
        ]);
    }
    let mut text = table.render(paint);
    let active = flows.iter().filter(|flow| flow.mode == "active").count();
    // Writing to a String does not fail.
    let _ = writeln!(text, "{count} connections, {active} of those shown active");
    text
}

/// Arguments of `tailbound host migrate-prepare`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Ends early acknowledgement for the guest, and waits until the guest has \
    received all acknowledged data. Run it before the VMM copies the guest's memory. The state \
    lasts until --undo or the end of the daemon. Exit code: 0 the migration may start; 1 data \
    are still pending, or there is no such guest; 2 no daemon answers."
)]
pub(super) struct MigratePrepare {
    /// The name of the guest
    guest: String,
    /// Cancel the migration: the guest stays
    #[arg(long)]
    undo: bool,
    /// The time to wait; at most an hour
    #[arg(long, value_name = "TIME", default_value = "10s")]
    within: Nanos,
    #[command(flatten)]
    daemon: DaemonArgs,
}

impl MigratePrepare {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let request = Request::MigratePrepare {
            guest: self.guest,
            undo: self.undo,
            patience_ms: self.within.0 / 1_000_000,
        };
        match self.daemon.ask(&request)? {
            Outcome::Prepared { flows: 0, .. } => {
                output::print(if self.undo {
                    "it stays\n"
                } else {
                    "it may go\n"
                });
                Ok(Exit::Holds)
            }
            Outcome::Prepared { flows, bytes } => Err(Failure::with(
                Exit::DoesNotHold,
                format!(
                    "{bytes} bytes on {flows} connections are acknowledged that the guest has not \
                     taken after {}; wait on, see which by `tailbound host snoop show`, or take \
                     that back with --undo",
                    self.within
                ),
            )),
            other => Err(failure(other, Path::new(""))),
        }
    }
}

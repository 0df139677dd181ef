//! `tailbound sim vcpu`.

use super::runner::{Action, Kind};
use std::process::ExitCode;
use tailbound_sim::vcpu::{EMBEDDED, describe, run, source_text};

/// Arguments of `tailbound sim vcpu`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

impl Args {
    pub(crate) fn run(self) -> ExitCode {
        self.action.run(&Kind {
            embedded: EMBEDDED,
            describe,
            source_text,
            run: |options, progress| run(options, progress),
        })
    }
}

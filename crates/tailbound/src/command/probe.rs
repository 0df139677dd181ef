//! `tailbound probe`: what `tailbound_probe` decides, on this machine.

mod document;
mod error;
mod log;
mod run;
mod sleeper;
mod text;

use error::ProbeError;
use std::process::ExitCode;

/// Arguments of `tailbound probe`.
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "The first line says what the node is and why; a table of the vCPUs follows. \
    Exit code: 0 GOOD; 1 BAD; 2 UNSURE (the network test decides) or INCONCLUSIVE (the guest \
    itself was busy); 64 wrong arguments; 71 it could not run. \
    As a plugin of node-problem-detector: --output line."
)]
pub(crate) struct Args {
    #[command(flatten)]
    run: run::Args,
}

impl Args {
    pub(crate) fn run(self) -> ExitCode {
        self.run.run().unwrap_or_else(|error| fail(&error))
    }
}

fn fail(error: &ProbeError) -> ExitCode {
    eprintln!("tailbound probe: {error}");
    ExitCode::from(error.exit_code())
}

//! `tailbound lab`.

use std::process::ExitCode;

/// Arguments of `tailbound lab`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

impl Args {
    pub(crate) fn run(self) -> ExitCode {
        ExitCode::from(2)
    }
}

//! `tailbound host`.

use std::path::PathBuf;
use std::process::ExitCode;

/// Arguments of `tailbound host`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The configuration (TOML); SIGHUP reads it again
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
}

impl Args {
    pub(crate) fn run(self) -> ExitCode {
        match tailbound_host::run(&self.config) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{error}");
                ExitCode::FAILURE
            }
        }
    }
}

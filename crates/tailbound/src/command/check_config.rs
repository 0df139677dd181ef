//! `tailbound check-config`.

use std::path::PathBuf;
use std::process::ExitCode;

/// Arguments of `tailbound check-config`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The configuration of `tailbound host` (TOML)
    #[arg(value_name = "FILE")]
    config: PathBuf,
}

impl Args {
    /// 0 and one line when the configuration is right; 1 and all mistakes
    /// otherwise.
    pub(crate) fn run(self) -> ExitCode {
        match tailbound_host::Config::load(&self.config) {
            Ok(config) => {
                println!("{}: ok: {}", self.config.display(), config.summary());
                ExitCode::SUCCESS
            }
            Err(error) => {
                eprintln!("{error}");
                ExitCode::FAILURE
            }
        }
    }
}

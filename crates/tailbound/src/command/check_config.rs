//! `tailbound check-config`.

use super::output::print;
use crate::exit::{Exit, Failure};
use std::path::PathBuf;
use tailbound_document::DocumentError;
use tailbound_host::Config;

/// Arguments of `tailbound check-config`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Prints what the configuration connects and which traffic leaves in which class \
    when it is right, and all its mistakes when it is not. Exit code: 0 it is right; 1 it is not; 2 it cannot be read."
)]
pub(crate) struct Args {
    /// The configuration of `tailbound host` (TOML)
    #[arg(value_name = "FILE")]
    config: PathBuf,
}

impl Args {
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        let config = Config::load(&self.config).map_err(|error| match error {
            DocumentError::Mistakes { .. } => Failure::with(Exit::DoesNotHold, error),
            DocumentError::Read { .. } => Failure::new(error),
        })?;
        print(&format!(
            "{}: ok: {}; packets take at most {} of memory\n{}",
            self.config.display(),
            config.summary(),
            config.packet_memory(),
            config.explain_classes()
        ));
        Ok(Exit::Holds)
    }
}

//! `tailbound check-config`.

use super::output::print;
use crate::exit::{Exit, Failure};
use std::path::PathBuf;
use tailbound_host::Config;

/// Arguments of `tailbound check-config`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Prints what the configuration connects and which traffic leaves in which class \
    when it is right, and all its mistakes when it is not. Exit code: 0 it is right; 1 it is not; 2 it cannot be read."
)]
pub(crate) struct Args {
    /// The configuration of `tailbound host` (TOML), with the guests that were added to it
    #[arg(value_name = "FILE")]
    config: PathBuf,
    /// Check the file alone, whoever was added at the control socket
    #[arg(long)]
    without_added: bool,
}

impl Args {
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        let load = if self.without_added {
            Config::load_file
        } else {
            Config::load
        };
        let config = load(&self.config).map_err(|error| {
            if error.is_unread() {
                Failure::new(error)
            } else {
                Failure::with(Exit::DoesNotHold, error)
            }
        })?;
        print(&format!(
            "{}: ok: {}; packets take at most {} of memory\n{}{}",
            self.config.display(),
            config.summary(),
            config.packet_memory(),
            config.explain_classes(),
            config.explain_limits()
        ));
        Ok(Exit::Holds)
    }
}

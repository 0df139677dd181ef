//! Which daemon a command asks.

use crate::exit::Failure;
use std::path::PathBuf;
use tailbound_host::socket::{Client, ClientError, Outcome, Request};

/// Which daemon is asked.
#[derive(Debug, clap::Args)]
pub(crate) struct Which {
    /// The configuration of the daemon that is asked
    #[arg(long, value_name = "FILE", default_value = "/etc/tailbound/host.toml")]
    config: PathBuf,
    /// Where that daemon keeps its lock and its control socket
    /// [default: /run/tailbound, /run/tailbound-host, or a directory of the user's]
    #[arg(long, value_name = "DIR")]
    runtime_dir: Option<PathBuf>,
}

impl Which {
    /// A connection to it.
    pub(crate) fn connect(&self) -> Result<Client, ClientError> {
        Client::connect(&self.config, self.runtime_dir.as_deref())
    }

    /// Its answer to a request.
    pub(super) fn ask(&self, request: &Request) -> Result<Outcome, Failure> {
        Ok(self.connect()?.ask(request)?)
    }
}

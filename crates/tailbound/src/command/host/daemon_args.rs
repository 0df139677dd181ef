//! Selection of the daemon that a command queries.

use crate::exit::{Exit, Failure};
use std::path::{Path, PathBuf};
use tailbound_host::socket::{Client, ClientError, Outcome, Request, Wrong};

/// The default configuration.
pub(super) const CONFIG: &str = "/etc/tailbound/host.toml";

/// Arguments that select the daemon.
#[derive(Debug, clap::Args)]
pub(crate) struct DaemonArgs {
    /// The configuration of the queried daemon
    #[arg(long, value_name = "FILE", default_value = CONFIG)]
    config: PathBuf,
    /// The directory of that daemon's lock and control socket [default: /run/tailbound,
    /// /run/tailbound-host, or a directory of the user's]
    #[arg(long, value_name = "DIR")]
    runtime_dir: Option<PathBuf>,
}

impl Default for DaemonArgs {
    fn default() -> Self {
        Self {
            config: CONFIG.into(),
            runtime_dir: None,
        }
    }
}

impl DaemonArgs {
    /// Connects to the daemon.
    pub(crate) fn connect(&self) -> Result<Client, ClientError> {
        Client::connect(&self.config, self.runtime_dir.as_deref())
    }

    /// Returns the daemon's answer to a request.
    pub(super) fn ask(&self, request: &Request) -> Result<Outcome, Failure> {
        Ok(self.connect()?.ask(request)?)
    }
}

/// Returns the failure for a refused request; `name` is the name of the request's text.
pub(super) fn failure(outcome: Outcome, name: &Path) -> Failure {
    let Outcome::Refused { message, mistakes } = outcome else {
        return Failure::new("the daemon answers something else than it was asked");
    };
    if mistakes.is_empty() {
        return Failure::with(Exit::DoesNotHold, message);
    }
    let lines = mistakes.iter().map(|wrong| {
        let Wrong {
            file,
            line,
            column,
            message,
        } = wrong;
        let file = file.as_deref().unwrap_or(name);
        format!("{}:{line}:{column}: {message}", file.display())
    });
    Failure::with(Exit::DoesNotHold, lines.collect::<Vec<_>>().join("\n"))
}

//! `tailbound host`: the daemon, and the requests to it while it runs.

mod ask;
mod daemon_args;
mod libvirt;
mod snoop;
mod status;
mod verify;

pub(super) use daemon_args::DaemonArgs;

use crate::exit::{Exit, Failure};
use crate::log;
use ask::Ask;
use std::path::PathBuf;
use tailbound_api::client::Settings;
use tailbound_host::Instance;
use tailbound_host::control::{ControlConfig, DEFAULT_STATE};

/// Arguments of `tailbound host`.
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Exit code: 0 ended by SIGTERM or SIGINT; 2 not started: the configuration is \
    invalid, a port cannot be opened, or another daemon runs for this configuration. The \
    commands query the running daemon: 0 done; 1 refused; 2 no daemon answers."
)]
pub(crate) struct Args {
    #[command(subcommand)]
    ask: Option<Ask>,
    /// The configuration file (TOML); SIGHUP reloads it
    #[arg(long, value_name = "FILE", default_value = daemon_args::CONFIG)]
    config: PathBuf,
    /// Take over from the running daemon of this configuration, if there is one
    #[arg(long)]
    takeover: bool,
    /// The directory of the daemon's lock and control socket [default: /run/tailbound, or a
    /// directory of the user's]
    #[arg(long, value_name = "DIR")]
    runtime_dir: Option<PathBuf>,
    #[command(flatten)]
    control: Option<Control>,
}

/// The placement service that promises guests what they get.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Guarantees")]
#[group(requires = "control")]
struct Control {
    /// Receive guarantees from the placement service at this URL; for several replicas, all URLs,
    /// separated by commas
    #[arg(long = "control", id = "control", value_name = "URL", required = false)]
    url: String,
    /// The name of this host at the service [default: the host name]
    #[arg(long = "control-host", value_name = "NAME")]
    host: Option<String>,
    /// The file with this host's token
    #[arg(long = "control-token-file", value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// The certificate authorities (PEM) to trust for the service [default: the public ones]
    #[arg(long = "control-ca", value_name = "FILE")]
    ca: Option<PathBuf>,
    /// The file that stores the last known guarantees, for times when the service is unreachable
    #[arg(
        long = "control-state",
        value_name = "FILE",
        default_value = DEFAULT_STATE
    )]
    state: PathBuf,
}

impl Args {
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        if let Some(ask) = self.ask {
            return ask.run();
        }
        let config = self.config;
        let control = self.control.map(Control::config);
        let directory = self.runtime_dir.as_deref();
        // Held until the daemon has ended.
        let instance = Instance::claim(&config, directory, self.takeover)?;
        let _last_lines = log::queue();
        tailbound_host::run(&config, control.as_ref(), Some(instance))?;
        Ok(Exit::Holds)
    }
}

impl Control {
    fn config(self) -> ControlConfig {
        let here = || {
            let name = rustix::system::uname();
            name.nodename().to_string_lossy().into_owned()
        };
        ControlConfig {
            host: self.host.unwrap_or_else(here),
            state: self.state,
            service: Settings {
                token_file: self.token_file,
                ca_file: self.ca,
                ..Settings::new(self.url)
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn the_daemon_takes_the_configuration_that_other_commands_ask_for() {
        let config = |line: &[&str]| Line::try_parse_from(line).map(|line| line.args.config);
        let default = config(&["host"]).expect("it is right");
        assert_eq!(default, PathBuf::from("/etc/tailbound/host.toml"));
        let named = config(&["host", "--config", "h.toml"]).expect("it is right");
        assert_eq!(named, PathBuf::from("h.toml"));
        assert!(config(&["host", "show"]).is_ok());
    }
}

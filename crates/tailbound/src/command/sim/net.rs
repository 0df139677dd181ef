//! `tailbound sim net`.

use super::runner::{Action, Kind};
use crate::command::output;
use std::process::ExitCode;
use tailbound_sim::net::{EMBEDDED, describe, drawn_network, run, source_text};

/// Arguments of `tailbound sim net`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Subcommand,
}

#[derive(Debug, clap::Subcommand)]
enum Subcommand {
    #[command(flatten)]
    Common(Action),
    /// Print a random network as a file for `tailbound calc`
    Network {
        /// Its number in the experiment
        number: u32,
        /// The experiment
        #[arg(long, value_name = "EXPERIMENT", default_value = "random-networks")]
        of: String,
        /// Everything random follows from this number
        #[arg(long, value_name = "N", default_value_t = 1)]
        seed: u64,
    },
}

impl Args {
    pub(crate) fn run(self) -> ExitCode {
        match self.action {
            Subcommand::Common(action) => action.run(&Kind {
                embedded: EMBEDDED,
                describe,
                source_text,
                run: |options, progress| run(options, progress),
            }),
            Subcommand::Network { number, of, seed } => match drawn_network(&of, seed, number) {
                Ok(text) => {
                    output::print(&text);
                    ExitCode::SUCCESS
                }
                Err(error) => {
                    eprintln!("tailbound sim: {error}");
                    ExitCode::from(2)
                }
            },
        }
    }
}

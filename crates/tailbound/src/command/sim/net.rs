//! `tailbound sim net`.

use super::runner::{Action, Parallel};
use crate::command::output;
use crate::exit::{Exit, Failure};
use tailbound_sim::net::NetExperiment;

/// Arguments of `tailbound sim net`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Subcommand,
}

#[derive(Debug, clap::Subcommand)]
enum Subcommand {
    #[command(flatten)]
    Common(Action<Parallel<NetExperiment>>),
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
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        match self.action {
            Subcommand::Common(action) => action.run(),
            Subcommand::Network { number, of, seed } => {
                output::print(&NetExperiment::drawn_network(&of, seed, number)?);
                Ok(Exit::Holds)
            }
        }
    }
}

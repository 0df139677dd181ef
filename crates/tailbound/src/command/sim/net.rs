//! `tailbound sim net`.

use super::runner::{Action, Kind, Threads};
use crate::command::output;
use crate::exit::{Exit, Failure};
use tailbound_report::Results;
use tailbound_sim::{ExperimentError, SimError, net};

/// Arguments of `tailbound sim net`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Subcommand,
}

#[derive(Debug, clap::Subcommand)]
enum Subcommand {
    #[command(flatten)]
    Common(Action<Net>),
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
                output::print(&net::drawn_network(&of, seed, number)?);
                Ok(Exit::Holds)
            }
        }
    }
}

#[derive(Debug, clap::Args)]
struct Net {
    #[command(flatten)]
    threads: Threads,
}

impl Kind for Net {
    const EMBEDDED: &'static [(&'static str, &'static str)] = net::EMBEDDED;
    const DEPENDS: &'static str =
        "Time is virtual: results depend on the experiment and the seed alone.";

    fn describe(text: &str, file: &str) -> Result<(String, String), ExperimentError> {
        net::describe(text, file)
    }

    fn source_text(name: &str) -> Result<(String, String), ExperimentError> {
        net::source_text(name)
    }

    fn run(
        &self,
        experiment: &str,
        seed: u64,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Results, SimError> {
        net::run(&self.threads.options(experiment, seed), progress)
    }
}

//! `tailbound sim pacer`.

use super::runner::{Action, Kind, Threads};
use crate::exit::{Exit, Failure};
use tailbound_report::Results;
use tailbound_sim::{ExperimentError, SimError, pacer};

/// Arguments of `tailbound sim pacer`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action<Pacer>,
}

impl Args {
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        self.action.run()
    }
}

#[derive(Debug, clap::Args)]
struct Pacer {
    #[command(flatten)]
    threads: Threads,
}

impl Kind for Pacer {
    const EMBEDDED: &'static [(&'static str, &'static str)] = pacer::EMBEDDED;
    const DEPENDS: &'static str =
        "Time is virtual: results depend on the experiment and the seed alone.";

    fn describe(text: &str, file: &str) -> Result<(String, String), ExperimentError> {
        pacer::describe(text, file)
    }

    fn source_text(name: &str) -> Result<(String, String), ExperimentError> {
        pacer::source_text(name)
    }

    fn run(
        &self,
        experiment: &str,
        seed: u64,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Results, SimError> {
        pacer::run(&self.threads.options(experiment, seed), progress)
    }
}

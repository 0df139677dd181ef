//! `tailbound sim vcpu`.

use super::runner::{Action, Kind, Threads};
use crate::exit::{Exit, Failure};
use tailbound_report::Results;
use tailbound_sim::{ExperimentError, SimError, vcpu};

/// Arguments of `tailbound sim vcpu`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action<Vcpu>,
}

impl Args {
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        self.action.run()
    }
}

#[derive(Debug, clap::Args)]
struct Vcpu {
    #[command(flatten)]
    threads: Threads,
}

impl Kind for Vcpu {
    const EMBEDDED: &'static [(&'static str, &'static str)] = vcpu::EMBEDDED;
    const DEPENDS: &'static str =
        "Time is virtual: results depend on the experiment and the seed alone.";

    fn describe(text: &str, file: &str) -> Result<(String, String), ExperimentError> {
        vcpu::describe(text, file)
    }

    fn source_text(name: &str) -> Result<(String, String), ExperimentError> {
        vcpu::source_text(name)
    }

    fn run(
        &self,
        experiment: &str,
        seed: u64,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Results, SimError> {
        vcpu::run(&self.threads.options(experiment, seed), progress)
    }
}

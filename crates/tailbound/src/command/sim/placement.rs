//! `tailbound sim placement`.

use super::runner::{Action, Kind};
use crate::exit::{Exit, Failure};
use std::time::Instant;
use tailbound_report::Results;
use tailbound_sim::placement::{self, Machine, Options};
use tailbound_sim::{ExperimentError, SimError};
use tailbound_sys::memory;
use tailbound_units::{Bytes, Nanos};

/// Arguments of `tailbound sim placement`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action<Placement>,
}

impl Args {
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        self.action.run()
    }
}

/// One thread: a decision follows from those before it.
#[derive(Debug, clap::Args)]
struct Placement {}

impl Kind for Placement {
    const EMBEDDED: &'static [(&'static str, &'static str)] = placement::EMBEDDED;
    const DEPENDS: &'static str = "Who is admitted where depends on the experiment and the seed \
        alone; how long that takes, on the machine and on what else it does.";

    fn describe(text: &str, file: &str) -> Result<(String, String), ExperimentError> {
        placement::describe(text, file)
    }

    fn source_text(name: &str) -> Result<(String, String), ExperimentError> {
        placement::source_text(name)
    }

    fn run(
        &self,
        experiment: &str,
        seed: u64,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Results, SimError> {
        let options = Options {
            experiment: experiment.to_owned(),
            seed,
        };
        let mut machine = ThisMachine(Instant::now());
        placement::run(&options, &mut machine, progress)
    }
}

/// Its clock, and the memory of this process.
struct ThisMachine(Instant);

impl Machine for ThisMachine {
    fn now(&self) -> Nanos {
        self.0.elapsed().into()
    }

    fn forget_memory(&mut self) {
        // Without it the figure is of all points so far, which is more and not less.
        let _ = memory::reset_peak();
    }

    fn memory(&self) -> Option<Bytes> {
        memory::peak()
    }
}

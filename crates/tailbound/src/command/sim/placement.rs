//! What `tailbound sim placement` tells the time and the memory by.

use super::runner::Kind;
use std::time::Instant;
use tailbound_sim::placement::{PlacementExperiment, Stopwatch};
use tailbound_sys::memory;
use tailbound_units::{Bytes, Nanos};

/// One thread: a decision follows from those before it.
#[derive(Debug, clap::Args)]
pub(super) struct Timed {}

impl Kind for Timed {
    type Experiment = PlacementExperiment;

    const DEPENDS: &'static str = "Who is admitted where depends on the experiment and the seed \
        alone; how long that takes, on the machine and on what else it does.";

    fn options(&self) -> Box<dyn Stopwatch> {
        Box::new(ThisMachine(Instant::now()))
    }
}

/// Its clock, and the memory of this process.
#[derive(Debug)]
struct ThisMachine(Instant);

impl Stopwatch for ThisMachine {
    fn now(&self) -> Nanos {
        self.0.elapsed().into()
    }

    fn reset_peak_memory(&self) {
        // Without it the figure is of all points so far, which is more and not less.
        let _ = memory::reset_peak();
    }

    fn peak_memory(&self) -> Option<Bytes> {
        memory::peak()
    }
}

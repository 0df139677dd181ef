//! Measurement of time and memory in `tailbound sim placement`.

use super::runner::Kind;
use tailbound_sim::placement::{PlacementExperiment, Stopwatch};
use tailbound_sys::{memory, timer};
use tailbound_units::{Bytes, Nanos};

/// One thread: a decision depends on those before it.
#[derive(Debug, clap::Args)]
pub(super) struct PlacementSimulation {}

impl Kind for PlacementSimulation {
    type Experiment = PlacementExperiment;

    const DEPENDS: &'static str = "Admission depends on the experiment and the seed alone; the \
        CPU time depends on the computer.";

    fn options(&self) -> Box<dyn Stopwatch> {
        Box::new(ThisComputer)
    }
}

/// CPU time of the deciding thread, and memory of this process. A decision waits only for a CPU:
/// its CPU time equals its time on an idle computer, and the longest of 100,000 decisions does not
/// include delays by neighbours.
#[derive(Debug)]
pub(in crate::command) struct ThisComputer;

impl Stopwatch for ThisComputer {
    fn now(&self) -> Nanos {
        timer::thread_cpu_time()
    }

    fn reset_peak_memory(&self) {
        // Without the reset the peak includes all points so far.
        let _ = memory::reset_peak();
    }

    fn peak_memory(&self) -> Option<Bytes> {
        memory::peak()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_decisions_time_excludes_waits_for_the_cpu() {
        let before = ThisComputer.now();
        std::thread::sleep(Duration::from_millis(100));
        let took = ThisComputer.now().saturating_sub(before);
        assert!(took < Nanos::from_millis(50), "{took}");
    }

    #[test]
    fn this_computers_clock_advances() {
        let before = ThisComputer.now();
        while ThisComputer.now() == before {}
        assert!(ThisComputer.now() > before);
    }
}

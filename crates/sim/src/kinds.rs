//! The kinds of experiments whose results follow from an experiment and a seed alone.

use crate::Threads;
use crate::flows::FlowsExperiment;
use crate::net::NetExperiment;
use crate::pacer::PacerExperiment;
use crate::packets::PacketsExperiment;
use crate::shaper::ShaperExperiment;
use crate::vcpu::VcpuExperiment;
use tailbound_experiment::{
    AnyExperiment, Catalogue, Experiment, ExperimentError, Source, read_any,
};

/// Reads an experiment whose runs have these threads.
type Reader = fn(&Source, Threads) -> Result<Box<dyn AnyExperiment>, ExperimentError>;

/// A kind of experiments.
#[derive(Debug, Clone, Copy)]
pub struct Kind {
    name: &'static str,
    catalogue: Catalogue,
    reader: Reader,
}

/// All kinds.
const KINDS: [Kind; 6] = [
    Kind::new::<FlowsExperiment>("flows"),
    Kind::new::<NetExperiment>("net"),
    Kind::new::<PacerExperiment>("pacer"),
    Kind::new::<PacketsExperiment>("packets"),
    Kind::new::<ShaperExperiment>("shaper"),
    Kind::new::<VcpuExperiment>("vcpu"),
];

impl Kind {
    const fn new<E>(name: &'static str) -> Self
    where
        E: Experiment<Options = Threads, Error = ExperimentError> + 'static,
    {
        Self {
            name,
            catalogue: E::CATALOGUE,
            reader: read_any::<E>,
        }
    }

    /// Returns the kind with this name.
    pub fn named(name: &str) -> Option<Self> {
        KINDS.into_iter().find(|kind| kind.name == name)
    }

    /// Returns the names of the experiments of all kinds, for messages: `flows/NAME, net/NAME`.
    pub fn known() -> String {
        let names = KINDS.map(|kind| format!("{}/NAME", kind.name));
        names.join(", ")
    }

    /// Returns the experiments of the kind that come with the program.
    pub const fn catalogue(self) -> Catalogue {
        self.catalogue
    }

    /// Reads an experiment of the kind, whose runs have these threads.
    ///
    /// # Errors
    /// All mistakes of the experiment.
    pub fn read(
        self,
        source: &Source,
        threads: Threads,
    ) -> Result<Box<dyn AnyExperiment>, ExperimentError> {
        (self.reader)(source, threads)
    }
}

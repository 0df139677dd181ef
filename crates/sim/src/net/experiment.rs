//! The experiment file (TOML) of the packet simulator for bounds, and its checks.

use super::admitted::Admitted;
use super::given::GivenNetwork;
use super::random::RandomNetworks;
use crate::Threads;
use crate::scenario::{self, Scenarios, under};
use serde::Deserialize;
use tailbound_experiment::{
    Catalogue, Document, Experiment, ExperimentError, Loaded, Mistake, Mistakes, Run, RunOutput,
    catalogue,
};
use tailbound_report::Variant;

/// An experiment of the packet simulator: one of its three scenarios.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetExperiment {
    /// Networks to compare with their bounds, a variant each.
    pub network: Option<Vec<GivenNetwork>>,
    /// Random networks; one variant, `networks`.
    pub random: Option<RandomNetworks>,
    /// Data centres with tenants; a variant per policy.
    pub admitted: Option<Admitted>,
}

impl NetExperiment {
    fn scenarios(&self) -> Scenarios<'_, 3> {
        [
            under("network", self.network.as_ref()),
            under("random", self.random.as_ref()),
            under("admitted", self.admitted.as_ref()),
        ]
    }

    /// Returns random network `number` of an experiment as a file for `tailbound calc`.
    ///
    /// # Errors
    /// The experiment does not exist, or has no random networks.
    pub fn drawn_network(name: &str, seed: u64, number: u32) -> Result<String, ExperimentError> {
        let loaded = Loaded::<Self>::parse(&Self::CATALOGUE.source(name)?)?;
        let random = loaded.experiment.random;
        let random =
            random.ok_or_else(|| ExperimentError::run(name, "it has no random networks"))?;
        Ok(random.draw(seed, number).to_toml())
    }
}

impl Experiment for NetExperiment {
    type Options = Threads;
    type Error = ExperimentError;

    const CATALOGUE: Catalogue =
        catalogue!("experiments/net": "silo-figure5", "admitted-bursts", "random-networks");

    fn read(document: &Document<'_>) -> Result<Self, Vec<Mistake>> {
        document.whole()
    }

    fn check(&mut self, file: &str, mistakes: &mut Mistakes) {
        let networks = self.network.iter().flatten();
        mistakes.names("network", networks.map(|network| &network.name));
        for network in self.network.iter_mut().flatten() {
            network.load(file, mistakes);
        }
        scenario::check(&self.scenarios(), mistakes);
    }

    fn inputs(&self) -> String {
        let networks = self.network.iter().flatten();
        networks.map(GivenNetwork::input).collect()
    }

    fn outline(&self) -> Vec<Variant> {
        scenario::outline(&self.scenarios())
    }

    fn run(&self, run: &mut Run<'_, Threads>) -> Result<RunOutput, ExperimentError> {
        scenario::run(&self.scenarios(), run)
    }
}

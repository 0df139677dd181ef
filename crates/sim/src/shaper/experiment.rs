//! The experiment file (TOML) of a simulation of rate limits, and its checks.

use super::{Http, Rates, Rtp};
use crate::Threads;
use crate::scenario::{self, Scenarios, under};
use serde::Deserialize;
use tailbound_experiment::{
    Catalogue, Document, Experiment, ExperimentError, Mistake, Mistakes, Run, RunOutput, catalogue,
};
use tailbound_report::Variant;

/// An experiment of limits: one of its three scenarios.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShaperExperiment {
    /// A stream of media; a variant per limit and load.
    pub rtp: Option<Rtp>,
    /// Pages of a web server; a variant per limit and loop.
    pub http: Option<Http>,
    /// Bulk of a guest; a variant per limit, rate and transport.
    pub rate: Option<Rates>,
}

impl ShaperExperiment {
    fn scenarios(&self) -> Scenarios<'_, 3> {
        [
            under("rtp", self.rtp.as_ref()),
            under("http", self.http.as_ref()),
            under("rate", self.rate.as_ref()),
        ]
    }
}

impl Experiment for ShaperExperiment {
    type Options = Threads;
    type Error = ExperimentError;

    const CATALOGUE: Catalogue =
        catalogue!("experiments/shaper": "rtp", "key-frames", "video", "http", "rate");

    fn read(document: &Document<'_>) -> Result<Self, Vec<Mistake>> {
        document.whole()
    }

    fn check(&mut self, _: &str, mistakes: &mut Mistakes) {
        scenario::check(&self.scenarios(), mistakes);
    }

    fn outline(&self) -> Vec<Variant> {
        scenario::outline(&self.scenarios())
    }

    fn run(&self, run: &mut Run<'_, Threads>) -> Result<RunOutput, ExperimentError> {
        scenario::run(&self.scenarios(), run)
    }
}

//! The experiment file (TOML) of the pacer simulation, and its checks.

use super::{Conformance, Elastic, Isolation, Limits, Messages, Spacing};
use crate::Threads;
use crate::scenario::{self, Scenarios, under};
use serde::Deserialize;
use tailbound_experiment::{
    Catalogue, Document, Experiment, ExperimentError, Mistake, Mistakes, Run, RunOutput, catalogue,
};
use tailbound_report::Variant;

/// An experiment of the pacer: one of its six scenarios.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PacerExperiment {
    /// Late messages by burst and bandwidth; a variant per burst.
    pub messages: Option<Messages>,
    /// Configured and measured rates; a variant per rate and bucket, and `all`.
    pub limits: Option<Limits>,
    /// Departure times and the wire; a variant per load.
    pub spacing: Option<Spacing>,
    /// Random networks of hosts that send to one port; one variant, `networks`.
    pub conformance: Option<Conformance>,
    /// A guest beside attackers; a variant per attack.
    pub isolation: Option<Isolation>,
    /// A guest on an idle wire, with elastic flows and without: `on` and `off`.
    pub elastic: Option<Elastic>,
}

impl PacerExperiment {
    fn scenarios(&self) -> Scenarios<'_, 6> {
        [
            under("messages", self.messages.as_ref()),
            under("limits", self.limits.as_ref()),
            under("spacing", self.spacing.as_ref()),
            under("conformance", self.conformance.as_ref()),
            under("isolation", self.isolation.as_ref()),
            under("elastic", self.elastic.as_ref()),
        ]
    }
}

impl Experiment for PacerExperiment {
    type Options = Threads;
    type Error = ExperimentError;

    const CATALOGUE: Catalogue = catalogue!(
        "experiments/pacer": "silo-table1", "limits", "spacing", "conformance", "isolation", "elastic"
    );

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

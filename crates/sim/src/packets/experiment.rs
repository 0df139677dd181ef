//! The experiment file (TOML) of a packet-level simulation, and its checks.

use super::{Messages, Trace};
use crate::Threads;
use crate::scenario::{self, Scenarios, under};
use serde::Deserialize;
use tailbound_experiment::{
    Catalogue, Document, Experiment, ExperimentError, Mistake, Mistakes, Run, RunOutput, catalogue,
};
use tailbound_report::Variant;

/// An experiment with packets through switches.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PacketsExperiment {
    /// Messages; a variant per setting.
    pub messages: Option<Messages>,
}

impl PacketsExperiment {
    fn scenarios(&self) -> Scenarios<'_, 1> {
        [under("messages", self.messages.as_ref())]
    }
}

impl Experiment for PacketsExperiment {
    type Options = Threads;
    type Error = ExperimentError;

    const CATALOGUE: Catalogue = catalogue!("experiments/packets": "web-search", "queries", "incast",
        "small-is-better-fig3", "small-is-better-fig5", "small-is-better-fig6", "small-is-better-fig7", "silo-fig12");

    fn read(document: &Document<'_>) -> Result<Self, Vec<Mistake>> {
        document.whole()
    }

    fn check(&mut self, file: &str, mistakes: &mut Mistakes) {
        if let Some(messages) = &mut self.messages {
            messages.read_files(file, mistakes);
        }
        let settings = self.messages.iter().flat_map(|it| &it.setting);
        mistakes.names("setting", settings.map(|it| &it.name));
        let messages = || self.messages.iter();
        mistakes.names(
            "machine",
            messages().flat_map(|it| &it.machine).map(|it| &it.name),
        );
        mistakes.names(
            "guest",
            messages().flat_map(|it| &it.guest).map(|it| &it.name),
        );
        mistakes.names(
            "talk",
            messages().flat_map(|it| &it.talk).map(|it| &it.name),
        );
        scenario::check(&self.scenarios(), mistakes);
    }

    fn inputs(&self) -> String {
        let trace = self.messages.iter().find_map(|it| it.trace.as_ref());
        trace.map(Trace::input).unwrap_or_default()
    }

    fn outline(&self) -> Vec<Variant> {
        scenario::outline(&self.scenarios())
    }

    fn run(&self, run: &mut Run<'_, Threads>) -> Result<RunOutput, ExperimentError> {
        scenario::run(&self.scenarios(), run)
    }
}

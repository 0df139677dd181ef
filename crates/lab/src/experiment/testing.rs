//! Experiments for tests.

use super::LabExperiment;
use tailbound_experiment::{Experiment as _, Loaded, Source};

/// Reads an experiment from its text.
pub(crate) fn parse(text: &str) -> Result<LabExperiment, String> {
    let source = Source {
        text: text.to_owned(),
        file: "x.toml".to_owned(),
    };
    let loaded = Loaded::parse(&source).map_err(|error| error.to_string())?;
    Ok(loaded.experiment)
}

/// Returns the text of an embedded experiment.
pub(crate) fn embedded(name: &str) -> String {
    LabExperiment::CATALOGUE.source(name).unwrap().text
}

/// Returns all embedded experiments.
pub(crate) fn all() -> impl Iterator<Item = LabExperiment> {
    LabExperiment::CATALOGUE
        .names()
        .map(|name| parse(&embedded(name)).unwrap())
}

//! An experiment from its TOML to its verdict.

use super::experiment::{Experiment, Kind, source_text};
use crate::vcpu::run::About;
use crate::{ExperimentError, Options, SimError};
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use tailbound_report::{Chart, Results, Variant};

/// Reads and checks an experiment: its title and its source.
///
/// # Errors
/// The first thing that is wrong, with its place.
pub fn describe(text: &str, file: &str) -> Result<(String, String), ExperimentError> {
    let experiment = Experiment::parse(text, file)?;
    Ok((experiment.title, experiment.source))
}

/// Runs an experiment. `progress` hears how many of how many runs are done.
///
/// # Errors
/// See [`SimError`].
pub fn run(options: &Options, progress: impl FnMut(usize, usize)) -> Result<Results, SimError> {
    let (text, file) = source_text(&options.experiment)?;
    run_parsed(&Experiment::parse(&text, &file)?, options, progress)
}

/// What was found, before it is judged.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) variants: Vec<Variant>,
    pub(super) charts: Vec<Chart>,
    pub(super) conditions: BTreeMap<String, Json>,
}

impl Found {
    /// Says under which condition it was found.
    pub(super) fn condition(&mut self, name: &str, value: Json) {
        self.conditions.insert(name.to_owned(), value);
    }
}

pub(super) fn run_parsed(
    experiment: &Experiment,
    options: &Options,
    mut progress: impl FnMut(usize, usize),
) -> Result<Results, SimError> {
    let progress = &mut progress;
    let mut found = match experiment.kind() {
        Some(Kind::Messages(messages)) => messages.run(options, progress)?,
        Some(Kind::Limits(limits)) => limits.run(options, progress)?,
        Some(Kind::Spacing(spacing)) => spacing.run(options, progress)?,
        Some(Kind::Conformance(conformance)) => conformance.run(options, progress)?,
        Some(Kind::Isolation(isolation)) => isolation.run(options, progress)?,
        None => Found::default(),
    };
    found.condition("virtual_time", json!(true));
    let about = About {
        name: experiment.name.get_ref(),
        title: &experiment.title,
        source: &experiment.source,
        conditions: found.conditions,
        check: &experiment.check,
    };
    Ok(about.results(options.seed, found.variants, found.charts))
}

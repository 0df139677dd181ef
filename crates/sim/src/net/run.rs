//! An experiment from its TOML to its verdict.

mod admitted;
mod given;
mod random;

use super::experiment::{Experiment, source_text};
use crate::vcpu::run::About;
use crate::{ExperimentError, Options, SimError};
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use tailbound_report::{Chart, Line, LineStyle, Point, Results, Value, Variant};

/// Reads and checks an experiment: its title and its source.
///
/// # Errors
/// The first thing that is wrong, with its place.
pub fn describe(text: &str, file: &str) -> Result<(String, String), ExperimentError> {
    let experiment = Experiment::parse(text, file)?;
    Ok((experiment.title, experiment.source))
}

/// Random network `number` of an experiment as a file for `tailbound calc`.
///
/// # Errors
/// There is no such experiment, or it has no random networks.
pub fn drawn_network(name: &str, seed: u64, number: u32) -> Result<String, SimError> {
    let (text, file) = source_text(name)?;
    let experiment = Experiment::parse(&text, &file)?;
    let random = experiment.random.ok_or_else(|| SimError::Run {
        variant: name.to_owned(),
        message: "it has no random networks".to_owned(),
    })?;
    Ok(random.draw(seed, number).to_toml())
}

/// Runs an experiment. `progress` hears how many of how many networks are done.
///
/// # Errors
/// See [`SimError`].
pub fn run(options: &Options, progress: impl FnMut(usize, usize)) -> Result<Results, SimError> {
    let (text, file) = source_text(&options.experiment)?;
    let experiment = Experiment::parse(&text, &file)?;
    run_parsed(&experiment, &file, options, progress)
}

/// What was found, before it is judged.
#[derive(Default)]
struct Found {
    variants: Vec<Variant>,
    charts: Vec<Chart>,
    conditions: BTreeMap<String, Json>,
}

pub(super) fn run_parsed(
    experiment: &Experiment,
    file: &str,
    options: &Options,
    mut progress: impl FnMut(usize, usize),
) -> Result<Results, SimError> {
    let mut found = if let Some(random) = &experiment.random {
        random::random_networks(random, options, &mut progress)?
    } else if let Some(admitted) = &experiment.admitted {
        admitted::admitted_tenants(admitted, options, &mut progress)?
    } else {
        let mut found = Found::default();
        for (done, network) in experiment.network.iter().enumerate() {
            progress(done, experiment.network.len());
            found
                .variants
                .push(given::given(network, file, options.seed)?);
        }
        found
    };
    found
        .conditions
        .insert("virtual_time".to_owned(), json!(true));
    let about = About {
        name: experiment.name.get_ref(),
        title: &experiment.title,
        source: &experiment.source,
        conditions: found.conditions,
        check: &experiment.check,
    };
    Ok(about.results(options.seed, found.variants, found.charts))
}

pub(crate) fn failed(variant: &str) -> impl Fn(String) -> SimError {
    move |message| SimError::Run {
        variant: variant.to_owned(),
        message,
    }
}

pub(crate) fn value(value: f64, unit: &str) -> Value {
    Value {
        unit: unit.to_owned(),
        value,
        spread: None,
    }
}

pub(crate) fn variant<const N: usize>(name: &str, values: [(&str, f64, &str); N]) -> Variant {
    let values = values.map(|(name, figure, unit)| (name.to_owned(), value(figure, unit)));
    Variant {
        name: name.to_owned(),
        values: values.into(),
        ..Variant::default()
    }
}

/// A figure that so many percent of the sorted ones do not exceed.
pub(crate) fn percentile(sorted: &[f64], percent: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    let place = (last as f64 * percent / 100.0).round() as usize;
    sorted.get(place).copied().unwrap_or(f64::NAN)
}

pub(crate) fn sorted(figures: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut figures: Vec<_> = figures.collect();
    figures.sort_by(f64::total_cmp);
    figures
}

/// The distribution of parts of a bound, both axes in percent.
pub(crate) fn distribution(name: &str, figures: &[f64]) -> Line {
    let points = (0..=100).map(|percent| {
        let percent = f64::from(percent);
        Point(100.0 * percentile(figures, percent), percent)
    });
    Line {
        name: name.to_owned(),
        style: LineStyle::Measured,
        points: points.collect(),
    }
}

//! An experiment from its TOML to its verdict.

use super::experiment::{Experiment, ExperimentError, source_text};
use super::{chart, check, point};
use crate::parallel;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use tailbound_report::{ReportError, Results};
use tailbound_units::Nanos;

/// What to run, and how.
#[derive(Debug, Clone)]
pub struct Options {
    /// The name of one of the embedded experiments, or a file.
    pub experiment: String,
    /// Everything random follows from it.
    pub seed: u64,
    /// How many threads share the work. They change nothing but the time it
    /// takes.
    pub threads: usize,
    /// In place of how long each point is measured.
    pub duration: Option<Nanos>,
}

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum SimError {
    /// The experiment is of no use.
    #[error(transparent)]
    Experiment(#[from] ExperimentError),
    /// A run that was checked before could not be made.
    #[error("variant {variant}: {message}")]
    Run {
        /// Which.
        variant: String,
        /// Why.
        message: String,
    },
    /// The result could not be written.
    #[error(transparent)]
    Report(#[from] ReportError),
}

/// Runs an experiment. `progress` hears how many of how many runs are done.
///
/// # Errors
/// See [`SimError`].
pub fn run(options: &Options, mut progress: impl FnMut(usize, usize)) -> Result<Results, SimError> {
    let (text, file) = source_text(&options.experiment)?;
    let mut experiment = Experiment::parse(&text, &file)?;
    if let Some(duration) = options.duration {
        experiment.duration = duration;
        for point in &mut experiment.point {
            point.duration = None;
        }
    }
    let runs: Vec<_> = experiment.runs().collect();
    let measure = |&(scheduler, point): &(_, _)| {
        point::measure(&experiment, scheduler, point, options.seed).map_err(|message| {
            SimError::Run {
                variant: experiment.variant_name(scheduler, point),
                message,
            }
        })
    };
    progress(0, runs.len());
    let variants = parallel::map(&runs, options.threads, measure, |done| {
        progress(done, runs.len());
    });
    let variants = variants.into_iter().collect::<Result<Vec<_>, _>>()?;
    let charts = experiment.chart.iter();
    let charts: Vec<_> = charts
        .map(|spec| chart::draw(&experiment, spec, &variants))
        .collect();
    let checks = check::evaluate(&experiment.check, &variants, &charts);
    let (verdict, verdict_reason) = check::verdict(&checks);
    Ok(Results {
        schema: tailbound_report::SCHEMA,
        experiment: experiment.name.get_ref().clone(),
        title: experiment.title.clone(),
        source: experiment.source.clone(),
        seed: options.seed,
        conditions: conditions(&experiment),
        variants,
        charts,
        checks,
        verdict,
        verdict_reason,
    })
}

fn conditions(experiment: &Experiment) -> BTreeMap<String, Value> {
    let costs = experiment.costs;
    [
        ("virtual_time", json!(true)),
        ("duration_ns", json!(experiment.duration.as_nanos())),
        ("warmup_ns", json!(experiment.warmup.as_nanos())),
        ("pcpus", json!(experiment.pcpus)),
        ("timer_slop_ns", json!(experiment.timer_slop.as_nanos())),
        ("context_switch_ns", json!(costs.context_switch.as_nanos())),
        ("migration_ns", json!(costs.migration.as_nanos())),
        ("cache_refill_ns", json!(costs.cache_refill.as_nanos())),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

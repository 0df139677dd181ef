//! An experiment from its TOML to its verdict.

use super::experiment::{Check, Experiment, ExperimentError, source_text};
use super::population::node::Node;
use super::population::{self, Population};
use super::{chart, check, point};
use crate::parallel;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use tailbound_report::{Chart, ReportError, Results, Variant};

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
}

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum SimError {
    /// The experiment is of no use.
    #[error(transparent)]
    Experiment(#[from] ExperimentError),
    /// A run could not be made, or came to no end.
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

/// Reads and checks an experiment of either kind: its title and its source.
///
/// # Errors
/// The first thing that is wrong, with its place.
pub fn describe(text: &str, file: &str) -> Result<(String, String), ExperimentError> {
    if Population::is_in(text) {
        let population = Population::parse(text, file)?;
        Ok((population.title, population.source))
    } else {
        let experiment = Experiment::parse(text, file)?;
        Ok((experiment.title, experiment.source))
    }
}

/// Runs an experiment. `progress` hears how many of how many runs are done.
///
/// # Errors
/// See [`SimError`].
pub fn run(options: &Options, progress: impl FnMut(usize, usize)) -> Result<Results, SimError> {
    let (text, file) = source_text(&options.experiment)?;
    if Population::is_in(&text) {
        run_population(&Population::parse(&text, &file)?, options, progress)
    } else {
        run_points(&Experiment::parse(&text, &file)?, options, progress)
    }
}

pub(super) fn run_points(
    experiment: &Experiment,
    options: &Options,
    mut progress: impl FnMut(usize, usize),
) -> Result<Results, SimError> {
    let runs: Vec<_> = experiment.runs().collect();
    let measure = |&(scheduler, point): &(_, _)| {
        let done = point::measure(experiment, scheduler, point, options.seed);
        done.map_err(|message| SimError::Run {
            variant: experiment.variant_name(scheduler, point),
            message,
        })
    };
    progress(0, runs.len());
    let variants = parallel::map(&runs, options.threads, measure, |done| {
        progress(done, runs.len());
    });
    let variants = variants.into_iter().collect::<Result<Vec<_>, _>>()?;
    let charts = experiment.chart.iter();
    let charts = charts
        .map(|spec| chart::draw(experiment, spec, &variants))
        .collect();
    let about = About {
        name: experiment.name.get_ref(),
        title: &experiment.title,
        source: &experiment.source,
        conditions: conditions(experiment),
        check: &experiment.check,
    };
    Ok(about.results(options.seed, variants, charts))
}

pub(super) fn run_population(
    population: &Population,
    options: &Options,
    mut progress: impl FnMut(usize, usize),
) -> Result<Results, SimError> {
    let rule = population.rule().map_err(|error| SimError::Run {
        variant: "nodes".to_owned(),
        message: error.to_string(),
    })?;
    let nodes: Vec<u32> = (0..population.population.nodes).collect();
    let judge = |&index: &u32| {
        let node = Node::draw(population, index, options.seed);
        node.judge(population, &rule)
            .map_err(|message| SimError::Run {
                variant: format!("node {index}"),
                message,
            })
    };
    progress(0, nodes.len());
    let judged = parallel::map(&nodes, options.threads, judge, |done| {
        progress(done, nodes.len());
    });
    let judged = judged.into_iter().collect::<Result<Vec<_>, _>>()?;
    let (variant, charts) = population::summarise(&judged, &rule);
    let settings = &population.population;
    let conditions = [
        ("virtual_time", json!(true)),
        ("nodes", json!(nodes.len())),
        ("pcpus", json!(settings.pcpus)),
        ("cap_percent", json!(settings.cap)),
        ("network_test_ns", json!(settings.network_test.as_nanos())),
        ("samples", json!(rule.config().samples)),
        ("low_mark", json!(rule.config().low_mark)),
        ("high_mark", json!(rule.config().high_mark)),
    ];
    let about = About {
        name: population.name.get_ref(),
        title: &population.title,
        source: &population.source,
        conditions: conditions
            .map(|(name, value)| (name.to_owned(), value))
            .into(),
        check: &population.check,
    };
    Ok(about.results(options.seed, vec![variant], charts))
}

/// What a result says of its experiment.
pub(crate) struct About<'e> {
    pub(crate) name: &'e str,
    pub(crate) title: &'e str,
    pub(crate) source: &'e str,
    pub(crate) conditions: BTreeMap<String, Value>,
    pub(crate) check: &'e [Check],
}

impl About<'_> {
    /// The whole result, judged.
    pub(crate) fn results(self, seed: u64, variants: Vec<Variant>, charts: Vec<Chart>) -> Results {
        let checks = check::evaluate(self.check, &variants, &charts);
        let (verdict, verdict_reason) = check::verdict(&checks);
        Results {
            schema: tailbound_report::SCHEMA,
            experiment: self.name.to_owned(),
            title: self.title.to_owned(),
            source: self.source.to_owned(),
            seed,
            conditions: self.conditions,
            variants,
            charts,
            checks,
            verdict,
            verdict_reason,
        }
    }
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

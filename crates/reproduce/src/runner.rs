//! Runs of the experiments of items.

use crate::ReproduceError;
use crate::registry::{PlannedRun, ResultsByExperiment, Size};
use crate::saved::SavedResults;
use std::path::PathBuf;
use tailbound_experiment::{AnyExperiment, Experiment as _, ExperimentError, read_any};
use tailbound_report::{Provenance, Results};
use tailbound_sim::Threads;
use tailbound_sim::grid::{Shard, changed, key};
use tailbound_sim::kinds::Kind;
use tailbound_sim::placement::{PlacementExperiment, Stopwatch};

/// Settings of runs.
#[derive(Debug, Clone)]
pub struct Runner {
    /// Size of the experiments.
    pub size: Size,
    /// Seed of all random numbers.
    pub seed: u64,
    /// The part of the experiments that is run.
    pub shard: Shard,
    /// Directory of stored results, if any.
    pub results: Option<PathBuf>,
    /// Version of the program, with its commit. Results of another version are computed again;
    /// those of the lab are refused.
    pub version: String,
    /// Threads that share the work of an experiment.
    pub threads: Threads,
    /// Returns what measures the decisions of placement.
    pub stopwatch: fn() -> Box<dyn Stopwatch>,
}

/// Event of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event<'e> {
    /// Progress of an experiment.
    Progress(&'e str),
    /// An experiment ended.
    End,
    /// A stored result is corrupt, and is computed again.
    Corrupt(&'e str),
}

/// Receiver of the events of a run.
type Events<'e> = dyn FnMut(Event<'_>) + Send + 'e;

impl Runner {
    /// Runs the experiments without stored results, each once. Results of the lab are read.
    ///
    /// # Errors
    /// An experiment has no result, or a result cannot be read or stored.
    pub fn run(
        &self,
        plan: &[PlannedRun<'_>],
        events: &mut Events<'_>,
    ) -> Result<ResultsByExperiment, ReproduceError> {
        let mut ran = ResultsByExperiment::new();
        let mut number = 0;
        for planned in plan {
            let found = if planned.is_of_lab() {
                self.of_lab(planned)?
            } else {
                number += 1;
                self.experiment(planned, self.shard.has(number - 1), events)?
            };
            if let Some(results) = found {
                ran.insert(planned.experiment.to_owned(), results);
            }
        }
        Ok(ran)
    }

    /// Adds stored results of other experiments.
    ///
    /// # Errors
    /// A result cannot be read.
    pub fn add_stored(
        &self,
        plan: &[PlannedRun<'_>],
        ran: &mut ResultsByExperiment,
        events: &mut Events<'_>,
    ) -> Result<(), ReproduceError> {
        if self.results.is_none() {
            return Ok(());
        }
        for planned in plan {
            if ran.contains_key(planned.experiment) {
                continue;
            }
            let found = if planned.is_of_lab() {
                self.of_lab(planned)?
            } else {
                self.experiment(planned, false, events)?
            };
            if let Some(results) = found {
                ran.insert(planned.experiment.to_owned(), results);
            }
        }
        Ok(())
    }

    fn stored(&self) -> Option<SavedResults> {
        self.results.clone().map(SavedResults::new)
    }

    fn of_lab(&self, planned: &PlannedRun<'_>) -> Result<Option<Results>, ReproduceError> {
        let Some(directory) = &self.results else {
            return Ok(None);
        };
        let found = SavedResults::new(directory.clone()).of_lab(planned)?;
        let Some(results) = found else {
            return Ok(None);
        };
        let made = results.made.as_ref().map(Provenance::program);
        if made.as_deref() == Some(&self.version) {
            return Ok(Some(results));
        }
        Err(ReproduceError::OtherProgram {
            experiment: planned.experiment.to_owned(),
            directory: directory.clone(),
            found: made.map_or("an unknown program".to_owned(), |it| {
                format!("tailbound {it}")
            }),
            program: self.version.clone(),
        })
    }

    /// Returns the stored results of an experiment, or runs it if requested.
    fn experiment(
        &self,
        planned: &PlannedRun<'_>,
        is_asked: bool,
        events: &mut Events<'_>,
    ) -> Result<Option<Results>, ReproduceError> {
        let (experiment, text) = self.read(planned)?;
        let seed = self.seed.to_string();
        let key = key(&[&self.version, &seed, &text, &experiment.inputs()]);
        let stored = self.stored();
        if let Some(stored) = &stored
            && let Some(found) = stored.read(planned, self.size, &key, |why| {
                events(Event::Corrupt(why));
            })?
        {
            return Ok(Some(found));
        }
        if !is_asked {
            return Ok(None);
        }
        let mut progress = |done: &str| {
            events(Event::Progress(&format!("{}: {done}", planned.experiment)));
        };
        let results = experiment.run(self.seed, &mut progress);
        events(Event::End);
        let results = results?;
        if let Some(stored) = stored {
            stored.write(planned, self.size, &key, &results)?;
        }
        Ok(Some(results))
    }

    /// Reads an experiment in virtual time, with its text.
    pub(crate) fn read(
        &self,
        planned: &PlannedRun<'_>,
    ) -> Result<(Box<dyn AnyExperiment>, String), ReproduceError> {
        let whole = planned.experiment;
        let (kind, name) = whole.split_once('/').unwrap_or(("", whole));
        let of_kind = Kind::named(kind);
        let catalogue = match of_kind {
            Some(kind) => kind.catalogue(),
            None if kind == "placement" => PlacementExperiment::CATALOGUE,
            None => {
                return Err(ReproduceError::Experiment(ExperimentError::Unknown {
                    name: whole.to_owned(),
                    known: format!("{}, placement/NAME", Kind::known()),
                }));
            }
        };
        let mut source = catalogue.source(name)?;
        if let Some(set) = planned.set {
            let text = changed(&source.text, set);
            source.text = text.map_err(|why| ReproduceError::Change {
                file: source.file.clone(),
                why,
            })?;
        }
        let experiment = match of_kind {
            Some(kind) => kind.read(&source, self.threads)?,
            None => read_any::<PlacementExperiment>(&source, (self.stopwatch)())?,
        };
        Ok((experiment, source.text))
    }
}

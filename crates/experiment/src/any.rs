//! Experiments of any kind, as objects.

use crate::{Experiment, ExperimentError, Loaded, Progress, Source};
use tailbound_report::Results;

/// An experiment of any kind, with the options of its runs.
pub trait AnyExperiment {
    /// Returns the names of its checks.
    fn checks(&self) -> Vec<&str>;

    /// Returns the content of files that the experiment names ([`Experiment::inputs`]).
    fn inputs(&self) -> String;

    /// Runs the experiment and judges its result.
    ///
    /// # Errors
    /// The run did not end.
    fn run(&self, seed: u64, progress: &mut Progress<'_>) -> Result<Results, ExperimentError>;
}

/// An experiment of one kind, with the options of its runs.
struct WithOptions<E: Experiment> {
    loaded: Loaded<E>,
    options: E::Options,
}

impl<E: Experiment<Error = ExperimentError>> AnyExperiment for WithOptions<E> {
    fn checks(&self) -> Vec<&str> {
        self.loaded.checks().collect()
    }

    fn inputs(&self) -> String {
        self.loaded.experiment.inputs()
    }

    fn run(&self, seed: u64, progress: &mut Progress<'_>) -> Result<Results, ExperimentError> {
        self.loaded.run(seed, &self.options, progress)
    }
}

/// Reads and checks an experiment of the kind `E`, which runs with these options.
///
/// # Errors
/// All its mistakes.
pub fn read_any<E>(
    source: &Source,
    options: E::Options,
) -> Result<Box<dyn AnyExperiment>, ExperimentError>
where
    E: Experiment<Error = ExperimentError> + 'static,
{
    let loaded = Loaded::<E>::parse(source)?;
    Ok(Box::new(WithOptions { loaded, options }))
}

//! A scenario of one of the kinds of this crate, and the results of its points.

use super::{GridPoint, Scenario};
use crate::Threads;
use crate::kinds::Kind;
use std::fs;
use std::path::Path;
use tailbound_experiment::{ExperimentError, Source};
use tailbound_report::{ReportError, Results};

impl Scenario {
    /// Reads the scenario in a file, for the program with this `version`. The experiment is one
    /// that comes with the program (KIND/NAME), or a file beside the scenario (KIND/FILE).
    ///
    /// # Errors
    /// The file cannot be read, or all its errors.
    pub fn read(path: &Path, version: &str) -> Result<Self, ExperimentError> {
        let text = fs::read_to_string(path).map_err(|source| ReportError::Read {
            path: path.to_owned(),
            source,
        })?;
        let source = Source {
            text,
            file: path.display().to_string(),
        };
        Self::parse(&source, version, |name| find(name, path), check)
    }

    /// Runs a point of the scenario on one thread.
    ///
    /// # Errors
    /// The run did not end.
    pub fn measure(&self, point: &GridPoint) -> Result<Results, ExperimentError> {
        let experiment = kind(&self.experiment)?.read(&point.source, Threads(1))?;
        experiment.run(point.seed, &mut |_| {})
    }
}

/// Returns the kind of the experiment KIND/NAME.
fn kind(name: &str) -> Result<Kind, ExperimentError> {
    let kind = name.split_once('/').and_then(|(kind, _)| Kind::named(kind));
    kind.ok_or_else(|| ExperimentError::Unknown {
        name: name.to_owned(),
        known: Kind::known(),
    })
}

/// Returns the text of KIND/NAME, or of KIND/FILE with a file beside the scenario.
fn find(name: &str, scenario: &Path) -> Result<Source, ExperimentError> {
    let catalogue = kind(name)?.catalogue();
    let name = name.split_once('/').map_or(name, |(_, name)| name);
    if catalogue.names().any(|it| it == name) || !name.contains('.') {
        return catalogue.source(name);
    }
    let folder = scenario.parent().unwrap_or(Path::new(""));
    catalogue.source(&folder.join(name).to_string_lossy())
}

fn check(experiment: &str, source: &Source) -> Result<String, ExperimentError> {
    Ok(kind(experiment)?.read(source, Threads(1))?.inputs())
}

//! Saved results of experiments: a directory from which an interrupted run continues.

use crate::ReproduceError;
use crate::registry::{PlannedRun, Size};
use std::fs;
use std::path::{Path, PathBuf};
use tailbound_report::Results;
use tailbound_sim::grid::{GridError, Row};

/// A directory with a file for each experiment: `KIND/NAME.row`, under `full` with the papers'
/// sizes, and the reports of `tailbound lab run NAME --out DIR/lab`.
#[derive(Debug)]
pub(crate) struct SavedResults {
    directory: PathBuf,
}

impl SavedResults {
    pub(crate) const fn new(directory: PathBuf) -> Self {
        Self { directory }
    }

    /// Returns the results of a lab's experiment, if it ran.
    ///
    /// # Errors
    /// The file is no file of results.
    pub(crate) fn of_lab(
        &self,
        planned: &PlannedRun<'_>,
    ) -> Result<Option<Results>, ReproduceError> {
        let file = format!("{}.json", planned.experiment);
        let path = self.directory.join(file);
        if !path.exists() {
            return Ok(None);
        }
        Ok(Some(Results::read(&path)?))
    }

    /// Returns the results of an experiment with this key: `None` if it did not run, or ran with
    /// another key. `warn` receives the description of a corrupt file, which is ignored.
    ///
    /// # Errors
    /// A file cannot be read.
    pub(crate) fn read(
        &self,
        planned: &PlannedRun<'_>,
        size: Size,
        key: &str,
        warn: impl FnOnce(&str),
    ) -> Result<Option<Results>, ReproduceError> {
        let path = self.path(planned, size);
        match Row::read(&path) {
            Ok(row) => Ok(row.filter(|row| row.key == key).map(|row| row.results)),
            Err(GridError::Corrupt { path, why }) => {
                warn(&format!("{}: {why}; it is run again", path.display()));
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Stores the results of an experiment.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn write(
        &self,
        planned: &PlannedRun<'_>,
        size: Size,
        key: &str,
        results: &Results,
    ) -> Result<(), ReproduceError> {
        let path = self.path(planned, size);
        let folder = path.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(folder).map_err(|source| ReproduceError::Directory {
            path: folder.to_owned(),
            source,
        })?;
        let row = Row {
            point: 0,
            key: key.to_owned(),
            results: results.clone(),
        };
        Ok(row.write(&path)?)
    }

    fn path(&self, planned: &PlannedRun<'_>, size: Size) -> PathBuf {
        let folder = match size {
            Size::Full if planned.set.is_some() => self.directory.join("full"),
            _ => self.directory.clone(),
        };
        folder.join(format!("{}.row", planned.experiment))
    }
}

//! What came out of experiments before: a directory that a run goes on with.

use super::registry::{Planned, Size};
use crate::exit::{Failure, print_error};
use std::fs;
use std::path::{Path, PathBuf};
use tailbound_report::Results;
use tailbound_sim::grid::{GridError, Row};

/// A directory with a file for each experiment: `KIND/NAME.row`, under `full` of the papers' sizes,
/// and what `tailbound lab run NAME --out DIR/lab` left.
#[derive(Debug)]
pub(super) struct Kept {
    directory: PathBuf,
}

impl Kept {
    pub(super) const fn new(directory: PathBuf) -> Self {
        Self { directory }
    }

    /// What a lab's experiment found, if it ran.
    ///
    /// # Errors
    /// Its file is not one of results.
    pub(super) fn of_lab(&self, planned: &Planned<'_>) -> Result<Option<Results>, Failure> {
        let file = format!("{}.json", planned.experiment);
        let path = self.directory.join(file);
        if !path.exists() {
            return Ok(None);
        }
        Ok(Some(Results::read(&path)?))
    }

    /// What an experiment found that follows from this: nothing where it did not run, or something
    /// else of that name did. What is not what was written is told, and counts for nothing.
    ///
    /// # Errors
    /// A file cannot be read.
    pub(super) fn read(
        &self,
        planned: &Planned<'_>,
        size: Size,
        key: &str,
    ) -> Result<Option<Results>, Failure> {
        let path = self.path(planned, size);
        match Row::read(&path) {
            Ok(row) => Ok(row.filter(|row| row.key == key).map(|row| row.results)),
            Err(GridError::Corrupt { path, why }) => {
                print_error(&format!("{}: {why}; it is run again", path.display()));
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Keeps what an experiment found.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn write(
        &self,
        planned: &Planned<'_>,
        size: Size,
        key: &str,
        results: &Results,
    ) -> Result<(), Failure> {
        let path = self.path(planned, size);
        let folder = path.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(folder)
            .map_err(|error| Failure::new(format!("{}: {error}", folder.display())))?;
        let row = Row {
            point: 0,
            key: key.to_owned(),
            results: results.clone(),
        };
        Ok(row.write(&path)?)
    }

    fn path(&self, planned: &Planned<'_>, size: Size) -> PathBuf {
        let folder = match size {
            Size::Full if planned.set.is_some() => self.directory.join("full"),
            _ => self.directory.clone(),
        };
        folder.join(format!("{}.row", planned.experiment))
    }
}

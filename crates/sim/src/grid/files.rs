//! The report of a grid in files.

use super::{GridError, Row, Store, csv, parquet, summary};
use serde::Serialize;
use std::path::PathBuf;
use tailbound_experiment::ExperimentError;
use tailbound_report::{Provenance, ReportError, Results, write_file};

/// The files of a report.
#[derive(Debug, Serialize)]
pub struct GridFiles {
    /// The report.
    pub html: PathBuf,
    /// All figures.
    pub json: PathBuf,
    /// A line for each row.
    pub csv: PathBuf,
    /// The same table in columns.
    pub parquet: PathBuf,
}

impl Store {
    /// Writes the report of all rows, beside them. `made` is the origin of the report.
    ///
    /// # Errors
    /// Rows are missing or corrupt, or a file cannot be written.
    pub fn write_report(&self, made: Provenance) -> Result<(Results, GridFiles), GridError> {
        let rows = self.all()?;
        let results = Results {
            made: Some(made),
            ..summary(self.manifest(), &rows)
        };
        let files = self.write_files(&results, &rows);
        let files = files.map_err(ExperimentError::from)?;
        Ok((results, files))
    }

    fn write_files(&self, results: &Results, rows: &[Row]) -> Result<GridFiles, ReportError> {
        let written = results.write(self.directory())?;
        let files = GridFiles {
            csv: written.json.with_extension("csv"),
            parquet: written.json.with_extension("parquet"),
            html: written.html,
            json: written.json,
        };
        write_file(&files.csv, csv(self.manifest(), rows))?;
        write_file(&files.parquet, parquet(self.manifest(), rows))?;
        Ok(files)
    }
}

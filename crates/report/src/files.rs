//! The files of a run.

use crate::error::ReportError;
use crate::html;
use crate::results::Results;
use std::fs;
use std::path::{Path, PathBuf};

/// The files of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// The result file.
    pub json: PathBuf,
    /// The page that shows it.
    pub html: PathBuf,
}

impl Results {
    /// Writes `EXPERIMENT.json` and the page `EXPERIMENT.html` into `directory`,
    /// which is made if it is not there. The JSON is written first, so that it is
    /// there even when the page cannot be made.
    ///
    /// # Errors
    /// The experiment's name cannot name a file, the directory cannot be written
    /// to, or a histogram is damaged.
    pub fn write(&self, directory: &Path) -> Result<Written, ReportError> {
        let stem = self.file_stem()?;
        let json = directory.join(format!("{stem}.json"));
        let html = directory.join(format!("{stem}.html"));
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| ReportError::Write { path, source }
        };
        fs::create_dir_all(directory).map_err(failed(directory))?;
        fs::write(&json, self.to_json()).map_err(failed(&json))?;
        fs::write(&html, html::page(self)?).map_err(failed(&html))?;
        Ok(Written { json, html })
    }

    fn file_stem(&self) -> Result<&str, ReportError> {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        match self.experiment.as_str() {
            name if !name.is_empty() && !name.starts_with('.') && name.chars().all(plain) => {
                Ok(name)
            }
            name => Err(ReportError::Name { name: name.into() }),
        }
    }
}

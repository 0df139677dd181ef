//! The files of a run.

use crate::error::ReportError;
use crate::html;
use crate::results::Results;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// The files of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunFiles {
    /// The result file.
    pub json: PathBuf,
    /// The HTML page.
    pub html: PathBuf,
}

impl Results {
    /// Writes `EXPERIMENT.json` and the page `EXPERIMENT.html` into `directory`, which is made if
    /// it does not exist. The JSON is written first, so that it exists even if the page cannot be
    /// made.
    ///
    /// # Errors
    /// The experiment's name cannot name a file, the directory is not writable, or a histogram is
    /// damaged.
    pub fn write(&self, directory: &Path) -> Result<RunFiles, ReportError> {
        let stem = self.file_stem()?;
        let json = directory.join(format!("{stem}.json"));
        let html = directory.join(format!("{stem}.html"));
        fs::create_dir_all(directory).map_err(|source| ReportError::Write {
            path: directory.to_owned(),
            source,
        })?;
        write_file(&json, self.to_json())?;
        write_file(&html, html::page(self)?)?;
        Ok(RunFiles { json, html })
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

/// Writes a file atomically: under a temporary name in the same directory, which is then changed,
/// so that the file is complete or unchanged. A path that is no ordinary file, such as
/// `/dev/stdout`, is written to directly.
///
/// # Errors
/// The file cannot be written; then no part is left behind.
pub fn write_file(path: &Path, content: impl AsRef<[u8]>) -> Result<(), ReportError> {
    let failed = |source| ReportError::Write {
        path: path.to_owned(),
        source,
    };
    if fs::metadata(path).is_ok_and(|there| !there.is_file()) {
        return fs::write(path, content).map_err(failed);
    }
    // A link stays one: its target is replaced.
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    let part = target.with_file_name(format!(".{name}.{}.part", std::process::id()));
    let mut file = File::create_new(&part).map_err(failed)?;
    let written = file
        .write_all(content.as_ref())
        .and_then(|()| fs::rename(&part, &target));
    if written.is_err() {
        // The first error is the one to report.
        let _ = fs::remove_file(&part);
    }
    written.map_err(failed)
}

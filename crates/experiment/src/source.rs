//! Source of an experiment's text.

use crate::ExperimentError;
use std::fs;
use std::path::Path;
use tailbound_document::DocumentError;

/// The experiments of a kind that come with the program.
#[derive(Debug, Clone, Copy)]
pub struct Catalogue {
    /// Folder of their files in the repository.
    pub folder: &'static str,
    /// The name and the text of each, in the order of listings and runs.
    pub embedded: &'static [(&'static str, &'static str)],
}

/// The text of an experiment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// The TOML.
    pub text: String,
    /// Name of the file for messages, which is also the base of relative paths in it.
    pub file: String,
}

/// Returns the [`Catalogue`] of the files `NAME.toml` in a folder of the repository.
#[macro_export]
macro_rules! catalogue {
    ($folder:literal: $($name:literal),* $(,)?) => {
        $crate::Catalogue {
            folder: $folder,
            embedded: &[$((
                $name,
                include_str!(concat!(
                    env!("CARGO_MANIFEST_DIR"), "/../../", $folder, "/", $name, ".toml"
                )),
            )),*],
        }
    };
}

impl Catalogue {
    /// Returns the names of the experiments.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.embedded.iter().map(|(name, _)| *name)
    }

    /// Returns the text of an experiment: the embedded one of this name, or else the file at this
    /// path.
    ///
    /// # Errors
    /// There is neither.
    pub fn source(&self, name_or_path: &str) -> Result<Source, ExperimentError> {
        let mut embedded = self.embedded.iter();
        if let Some((name, text)) = embedded.find(|(name, _)| *name == name_or_path) {
            return Ok(Source {
                text: (*text).to_owned(),
                file: format!("{}/{name}.toml", self.folder),
            });
        }
        let path = Path::new(name_or_path);
        let is_path = name_or_path.contains('/') || path.extension().is_some();
        if !is_path && !path.exists() {
            return Err(ExperimentError::Unknown {
                name: name_or_path.to_owned(),
                known: self.names().collect::<Vec<_>>().join(", "),
            });
        }
        let text = fs::read_to_string(path).map_err(|source| DocumentError::Read {
            path: path.to_owned(),
            source,
        })?;
        Ok(Source {
            text,
            file: name_or_path.to_owned(),
        })
    }
}

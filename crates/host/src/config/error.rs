//! Errors of a configuration, grouped by its files.

use std::fmt;
use std::path::Path;
use tailbound_document::{DocumentError, Mistake};

/// The mistakes that make a configuration unusable: each wrong file, at least one.
#[derive(Debug)]
pub struct ConfigError(Vec<DocumentError>);

impl ConfigError {
    /// Returns true if one of the files cannot be read, so that its content is unknown.
    pub fn is_unread(&self) -> bool {
        let mut files = self.0.iter();
        files.any(|file| matches!(file, DocumentError::Read { .. }))
    }

    /// The mistakes, each with its file.
    pub(crate) fn mistakes(&self) -> impl Iterator<Item = (&Path, &Mistake)> {
        let files = self.0.iter().filter_map(|file| match file {
            DocumentError::Mistakes { path, mistakes } => Some((path.as_path(), mistakes)),
            DocumentError::Read { .. } => None,
        });
        files.flat_map(|(path, mistakes)| mistakes.iter().map(move |mistake| (path, mistake)))
    }

    /// Adds mistakes of a file, if there are any.
    pub(super) fn with(mut self, path: &Path, mistakes: Vec<Mistake>) -> Self {
        self.add(path, mistakes);
        self
    }

    fn add(&mut self, path: &Path, more: Vec<Mistake>) {
        if more.is_empty() {
            return;
        }
        let known = self.0.iter_mut().find_map(|file| match file {
            DocumentError::Mistakes {
                path: known,
                mistakes,
            } if known == path => Some(mistakes),
            _ => None,
        });
        match known {
            Some(mistakes) => {
                mistakes.extend(more);
                mistakes.sort_by_key(|mistake| mistake.location);
            }
            None => self.0.push(DocumentError::Mistakes {
                path: path.to_owned(),
                mistakes: more,
            }),
        }
    }

    /// Returns an error if there are mistakes.
    pub(super) fn of<'p>(
        files: impl IntoIterator<Item = (&'p Path, Vec<Mistake>)>,
    ) -> Result<(), Self> {
        let mut error = Self(Vec::new());
        for (path, mistakes) in files {
            error.add(path, mistakes);
        }
        if error.0.is_empty() {
            Ok(())
        } else {
            Err(error)
        }
    }
}

impl From<DocumentError> for ConfigError {
    fn from(file: DocumentError) -> Self {
        Self(vec![file])
    }
}

impl fmt::Display for ConfigError {
    /// Prints one line for each mistake, as [`DocumentError`] does.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, file) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { "\n" };
            write!(formatter, "{separator}{file}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.first().and_then(std::error::Error::source)
    }
}

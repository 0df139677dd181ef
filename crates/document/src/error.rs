//! Mistakes of a file, and their locations.

use crate::{Location, Step};
use std::fmt;
use std::path::{Path, PathBuf};

/// A mistake in a value, named by the path to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The path from the top of the file to the value.
    pub path: Vec<Step>,
    /// The mistake, and the correct value.
    pub message: String,
}

impl Problem {
    /// Returns a problem of the value at `path`.
    pub fn new(path: &[Step], message: impl Into<String>) -> Self {
        Self {
            path: path.to_vec(),
            message: message.into(),
        }
    }
}

/// A mistake in a file, at a line and a column. Prints as `LINE:COLUMN: what is wrong; what would
/// be right`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// Location of the mistake.
    pub location: Location,
    /// The mistake, and the correct value.
    pub message: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.location, self.message)
    }
}

/// Largest number of printed mistakes of a file.
const MAX_SHOWN: usize = 20;

/// Reason why a file cannot be used.
#[derive(Debug)]
pub enum DocumentError {
    /// The file cannot be read.
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The file has mistakes, at least one, in the order of their location.
    Mistakes {
        /// The file.
        path: PathBuf,
        /// The mistakes.
        mistakes: Vec<Mistake>,
    },
}

impl DocumentError {
    /// Reads the file at `path` and converts its text by `parse`.
    ///
    /// # Errors
    /// The file cannot be read, or `parse` finds mistakes.
    pub fn load<T>(
        path: &Path,
        parse: impl FnOnce(&str) -> Result<T, Vec<Mistake>>,
    ) -> Result<T, Self> {
        let text = std::fs::read_to_string(path).map_err(|source| Self::Read {
            path: path.to_owned(),
            source,
        })?;
        parse(&text).map_err(|mistakes| Self::Mistakes {
            path: path.to_owned(),
            mistakes,
        })
    }
}

impl fmt::Display for DocumentError {
    /// Writes one line for each mistake: `FILE:LINE:COLUMN: what is wrong; what would be right`. If
    /// there are many, the first are shown, and the number of the others.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read { path, source } => {
                write!(formatter, "{}: cannot be read: {source}", path.display())
            }
            Self::Mistakes { path, mistakes } => {
                for (index, mistake) in mistakes.iter().take(MAX_SHOWN).enumerate() {
                    let separator = if index == 0 { "" } else { "\n" };
                    write!(formatter, "{separator}{}:{mistake}", path.display())?;
                }
                let path = path.display();
                match mistakes.len().saturating_sub(MAX_SHOWN) {
                    0 => Ok(()),
                    1 => write!(formatter, "\n{path}: 1 more mistake was found"),
                    more => write!(formatter, "\n{path}: {more} more mistakes were found"),
                }
            }
        }
    }
}

impl std::error::Error for DocumentError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Read { source, .. } => Some(source),
            Self::Mistakes { .. } => None,
        }
    }
}

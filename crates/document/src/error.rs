//! What is wrong with a file, and where.

use crate::{Location, Step};
use std::fmt;
use std::path::{Path, PathBuf};

/// Something wrong with a value, named by the way to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The way from the top of the file to the value.
    pub path: Vec<Step>,
    /// What is wrong; what would be right.
    pub message: String,
}

impl Problem {
    /// Something wrong with the value at `path`.
    pub fn new(path: &[Step], message: impl Into<String>) -> Self {
        Self {
            path: path.to_vec(),
            message: message.into(),
        }
    }
}

/// Something wrong with a file, at a line and a column. Prints as
/// `LINE:COLUMN: what is wrong; what would be right`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// Where it stands.
    pub location: Location,
    /// What is wrong; what would be right.
    pub message: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.location, self.message)
    }
}

/// Mistakes of a file that are printed.
const MAX_SHOWN: usize = 20;

/// Why a file cannot be used.
#[derive(Debug)]
pub enum DocumentError {
    /// The file cannot be read.
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
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
    /// Reads the file at `path` and gives its text a meaning by `parse`.
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
    /// One line a mistake: `FILE:LINE:COLUMN: what is wrong; what would be right`. Of many
    /// the first are shown, and how many more were found.
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

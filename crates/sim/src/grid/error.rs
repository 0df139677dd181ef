//! What may be wrong with a grid and its rows.

use std::io;
use std::path::PathBuf;
use tailbound_experiment::ExperimentError;

/// Why a grid has no result.
#[derive(Debug, thiserror::Error)]
pub enum GridError {
    /// Its file has mistakes, or an experiment could not be run.
    #[error(transparent)]
    Experiment(#[from] ExperimentError),
    /// A point could not be run.
    #[error("point {point} ({with}): {why}")]
    Point {
        /// Which.
        point: usize,
        /// With which values.
        with: String,
        /// Why.
        why: ExperimentError,
    },
    /// A file cannot be read or written.
    #[error("{path}: {source}", path = path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A row is not what was written.
    #[error("{path}: {why}; `tailbound sim run` with this directory computes it again", path = path.display())]
    Corrupt {
        /// Its file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// A directory has the rows of another grid.
    #[error(
        "{path} has rows of another grid: another scenario, experiment or version of tailbound; \
         choose another --out, or remove it", path = path.display()
    )]
    Other {
        /// The directory.
        path: PathBuf,
    },
    /// A directory has no grid.
    #[error("{path} is no grid: name the directory that `tailbound sim run` made", path = path.display())]
    NoGrid {
        /// The directory.
        path: PathBuf,
    },
    /// Two directories have different rows of the same point.
    #[error(
        "{one} and {other} differ, and are rows of the same point: one of them was computed by \
         another program", one = one.display(), other = other.display()
    )]
    Differ {
        /// The one.
        one: PathBuf,
        /// The other.
        other: PathBuf,
    },
    /// Rows are missing.
    #[error(
        "{missing} of {all} rows are missing, point {first} first: run the shards that have them"
    )]
    Missing {
        /// How many.
        missing: usize,
        /// Of how many.
        all: usize,
        /// The first.
        first: usize,
    },
}

impl GridError {
    pub(super) fn file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { path, source }
    }
}

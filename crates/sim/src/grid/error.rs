//! Errors of grids and their rows.

use std::io;
use std::path::PathBuf;
use tailbound_experiment::ExperimentError;

/// Reason for which a grid has no result.
#[derive(Debug, thiserror::Error)]
pub enum GridError {
    /// The file has errors, or an experiment failed.
    #[error(transparent)]
    Experiment(#[from] ExperimentError),
    /// A point failed.
    #[error("point {point} ({with}): {why}")]
    Point {
        /// The number of the point.
        point: usize,
        /// The values of the point.
        with: String,
        /// The error.
        why: ExperimentError,
    },
    /// A file cannot be read or written.
    #[error("{path}: {source}", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// The content of a row differs from its checksum.
    #[error("{path}: {why}; `tailbound sim run` with this directory computes it again", path = path.display())]
    Corrupt {
        /// File of the row.
        path: PathBuf,
        /// The difference.
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
        /// One row.
        one: PathBuf,
        /// The other row.
        other: PathBuf,
    },
    /// Rows are missing.
    #[error(
        "{missing} of {all} rows are missing, point {first} first: run the shards that have them"
    )]
    Missing {
        /// Number of missing rows.
        missing: usize,
        /// Number of all rows.
        all: usize,
        /// First missing point.
        first: usize,
    },
}

impl GridError {
    pub(super) fn file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { path, source }
    }
}

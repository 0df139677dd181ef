//! Errors of reproductions.

use std::io;
use std::path::PathBuf;
use tailbound_experiment::ExperimentError;
use tailbound_report::ReportError;
use tailbound_sim::grid::GridError;

/// Reason for which items are not reproduced.
#[derive(Debug, thiserror::Error)]
pub enum ReproduceError {
    /// The registry has an error.
    #[error(transparent)]
    Registry(#[from] toml::de::Error),
    /// A word names no item.
    #[error(
        "there is no item {word:?}: name a paper ({papers}), an item such as vsnoop-12, or all; \
         --list shows them"
    )]
    UnknownItem {
        /// The word.
        word: String,
        /// The papers.
        papers: String,
    },
    /// An experiment has errors, or did not end.
    #[error(transparent)]
    Experiment(#[from] ExperimentError),
    /// A value of the paper's size does not fit the experiment.
    #[error("{file}: {why}")]
    Change {
        /// The experiment's file.
        file: String,
        /// The error.
        why: String,
    },
    /// A stored result cannot be read or written.
    #[error(transparent)]
    Stored(#[from] GridError),
    /// A result of the lab cannot be read.
    #[error(transparent)]
    Lab(#[from] ReportError),
    /// A stored result of the lab is of another program.
    #[error(
        "{experiment} in {} is of {found}, this program is tailbound {program}: results of two \
         commits are not mixed. Run tailbound {} --out {} again, or use that program",
        directory.display(),
        experiment.replacen('/', " run ", 1),
        directory.join("lab").display()
    )]
    OtherProgram {
        /// KIND/NAME.
        experiment: String,
        /// The directory of results.
        directory: PathBuf,
        /// Version and commit of the program that made the result, in words.
        found: String,
        /// Version and commit of this program.
        program: String,
    },
    /// A directory of results cannot be made.
    #[error("{}: {source}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

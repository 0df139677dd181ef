//! Every table and figure of the papers, with the papers' values and the results of experiments.
//!
//! Read [`Registry`] first, and `items.toml`, which it is read from. An item that has an experiment
//! is judged by that experiment's own checks; any other item names the command that tests it, or
//! the reason why there is none. A [`Runner`] runs experiments in virtual time; it reads results of
//! the lab from a directory, which also stores the results of runs. [`page()`] writes all items as
//! Markdown. Do not use this crate to run one experiment: `tailbound-sim` and `tailbound-lab` do.

mod error;
mod outcome;
mod page;
mod registry;
mod runner;
mod saved;
mod seeds;
#[cfg(test)]
mod tests;

pub use error::ReproduceError;
pub use outcome::{outcome, result_text};
pub use page::page;
pub use registry::{By, Checks, Item, PlannedRun, Registry, ResultsByExperiment, Size};
pub use runner::{Event, Runner};

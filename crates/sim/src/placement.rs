//! Tenants who come to data centres and leave again: whom a policy takes in,
//! and what a decision costs.
//!
//! Read [`PlacementExperiment`] first: networks, classes of tenants, and the points at
//! which they meet. What is decided follows from the experiment and the seed; how long
//! it took is told by the [`Stopwatch`] that the caller lends.

mod experiment;
mod recorder;
mod run;
#[cfg(test)]
mod tests;
mod workload;

pub use experiment::{Class, Leave, Network, PlacementExperiment, Point};
pub use run::Stopwatch;
pub(crate) use workload::{Workload, WorkloadConfig};

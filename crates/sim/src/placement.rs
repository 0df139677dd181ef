//! Simulation of placement: tenants arrive at data centres and leave; admissions under a policy,
//! and the costs of decisions.
//!
//! Read [`PlacementExperiment`] first: networks, classes of tenants, and the points that combine
//! them. Decisions follow from the experiment and the seed; the caller's [`Stopwatch`] measures
//! their time.

mod experiment;
mod recorder;
mod run;
#[cfg(test)]
mod tests;
mod workload;

pub use experiment::{Class, Leave, Network, PlacementExperiment, Point};
pub use run::Stopwatch;
pub(crate) use workload::{Inward, Workload, WorkloadConfig};

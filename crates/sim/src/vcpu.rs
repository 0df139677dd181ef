//! Guests under hypervisors' schedulers, beside the papers' figures.
//!
//! Read [`Sweep`] first: schedulers times points, and what is measured. A
//! [`Population`] is many nodes instead, each judged by Bobtail's algorithm.

mod check;
mod experiment;
mod point;
mod population;
mod recorder;
mod sweep;
#[cfg(test)]
mod tests;

pub use experiment::VcpuExperiment;
pub use population::{Neighbour, Nodes, Population};
pub use sweep::{Count, CreditSpec, EdfSpec, Guest, Measure, Point, SchedulerSpec, Sweep};

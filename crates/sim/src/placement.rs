//! Tenants who come to data centres and leave again: whom a policy takes in,
//! and what a decision costs.
//!
//! Read [`Experiment`] first: networks, classes of tenants, and the points at
//! which they meet. [`run`] takes one from its TOML to its verdict. What is
//! decided follows from the experiment and the seed; how long it took comes from
//! the [`Machine`] that the caller lends.

mod experiment;
mod recorder;
mod run;
#[cfg(test)]
mod tests;
mod workload;

pub use experiment::{
    ChartSpec, Class, EMBEDDED, Experiment, Leave, Network, Point, describe, source_text,
};
pub use run::{Machine, Options, run};

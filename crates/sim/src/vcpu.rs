//! Guests under hypervisors' schedulers, beside the papers' figures.
//!
//! Read [`Experiment`] first: schedulers times points, what is measured, and
//! what the paper says of it. [`run`] takes one from its TOML to its verdict.

mod chart;
pub(crate) mod check;
pub(crate) mod experiment;
mod point;
mod population;
mod recorder;
pub(crate) mod run;
#[cfg(test)]
mod tests;

pub use experiment::{
    At, AxisSpec, ChartSpec, Check, CheckKind, Count, CreditSpec, EMBEDDED, EdfSpec, Experiment,
    ExperimentError, Figure, Guest, Measure, Name, PaperLine, Point, SchedulerSpec, source_text,
};
pub use population::{Neighbour, Nodes, Population};
pub use run::{Options, SimError, describe, run};

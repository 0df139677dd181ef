//! Guests under hypervisors' schedulers, beside the papers' figures.
//!
//! Read [`Experiment`] first: schedulers times points, what is measured, and
//! what the paper says of it. [`run`] takes one from its TOML to its verdict.

mod chart;
mod check;
mod experiment;
mod point;
mod recorder;
mod run;

pub use experiment::{
    At, AxisSpec, ChartSpec, Check, CheckKind, Count, CreditSpec, EMBEDDED, Experiment,
    ExperimentError, Figure, Guest, Measure, Name, PaperLine, Point, SchedulerSpec, source_text,
};
pub use run::{Options, SimError, run};

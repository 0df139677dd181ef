//! Common parts of all experiments: the source of their text, their checks, and the verdict.
//!
//! Do not use this crate to run an experiment: `tailbound-lab` and `tailbound-sim` implement the
//! kinds.
//!
//! Read [`Experiment`] first: a kind of experiments implements it, and [`Loaded`] is one
//! experiment, read and checked; [`AnyExperiment`] is one of any kind. An experiment is a TOML file. Its name, title, source and
//! [`Check`]s are the same in every kind and are read here; the kind reads the rest. All names in a
//! check are validated against [`Experiment::outline`] before a run, so that a mistake costs no
//! run.

mod any;
mod chart;
mod check;
mod citation;
mod error;
mod evaluate;
mod experiment;
mod figure;
mod mistakes;
mod sentence;
mod source;
mod trace;
mod verdict;

pub use any::{AnyExperiment, read_any};
pub use chart::{AxisSpec, CdfSpec, ChartSpec, Curve, KnownLine};
pub use check::{COMPUTED, Check, CheckKind, PROMISED};
pub use citation::{Citation, Miss, PaperFigure};
pub use error::ExperimentError;
pub use experiment::{Experiment, Loaded, Progress, Run, RunOutput};
pub use figure::{Figure, figure_of};
pub use mistakes::{Mistakes, Name, Section};
pub use source::{Catalogue, Source};
pub use tailbound_document::{Document, Mistake, unknown_word};
pub use trace::{Picture, Trace, TraceError};
pub use verdict::{Cause, Disturbance, Harm, Noise};

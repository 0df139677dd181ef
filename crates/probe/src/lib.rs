//! Verdicts on a node's fitness for latency-sensitive work, from inside a guest.
//!
//! *Bobtail: Avoiding Long Tails in the Cloud* (Xu, Musgrave, Noble, Bailey; NSDI 2013), 4.2: a
//! guest that repeatedly sleeps for 100 us and often wakes after 10 ms has neighbours that take its
//! CPU. Algorithm 1 counts these late wake-ups.
//!
//! Use this crate to judge sleeps and calls that your program, or a simulation, has measured. It
//! has no clock and no I/O: sleeps and readings of `/proc` are arguments. To measure on this
//! computer, use `run` (feature `run`).
//!
//! Read [`Rule`] first: Algorithm 1, and its early end. [`Probe`] passes sleeps to a rule and
//! attributes late ones by a [`Witness`]. [`network`] judges the network test, which decides
//! undecided nodes; [`select`] selects the best of many nodes; [`calibrate`] finds marks for other
//! hypervisors; [`pairs`] attributes late calls among many nodes; [`history`] summarizes weeks;
//! [`workflow`] times several calls in sequence or in parallel.

mod boundary;
pub mod calibrate;
mod config;
pub mod history;
pub mod network;
pub mod pairs;
mod probe;
mod rule;
#[cfg(feature = "run")]
pub mod run;
pub mod select;
mod verdict;
pub mod wire;
mod witness;
pub mod workflow;

pub use config::{Config, ConfigError, Stop};
pub use probe::{Counts, Note, Probe, Sample};
pub use rule::Rule;
pub use verdict::{NodeVerdict, Reason, ReasonedVerdict, worst};
pub use witness::{CpuTime, NoWitness, QuotaTime, StealFault, ThreadTime, Witness};

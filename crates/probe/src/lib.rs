//! Whether a node is fit for latency-sensitive work, decided from inside a guest.
//!
//! *Bobtail: Avoiding Long Tails in the Cloud* (Xu, Musgrave, Noble, Bailey; NSDI
//! 2013), 4.2: a guest that sleeps for 100 us again and again and often wakes
//! after 10 ms has neighbours that keep its CPU. Algorithm 1 counts those late
//! wake-ups.
//!
//! Read [`Rule`] first: Algorithm 1 and when its answer is known before its end.
//! [`Probe`] feeds a rule with sleeps and asks a [`Witness`] whose fault the late
//! ones are. [`network`] judges the network test that decides where the sleeps do
//! not, [`select`] picks the best nodes of many, [`calibrate`] finds the marks for other hypervisors,
//! [`pairs`] tells whose the long tails among many nodes are, [`history`] what a node was over weeks,
//! [`workflow`] what several calls in a row or at once take.
//!
//! No clock and no I/O: sleeps and readings of `/proc` come in as arguments, so a
//! simulated node is judged by the same code as a real one.

mod boundary;
pub mod calibrate;
mod config;
pub mod history;
pub mod network;
pub mod pairs;
mod probe;
mod rule;
pub mod select;
mod verdict;
pub mod wire;
mod witness;
pub mod workflow;

pub use config::{Config, ConfigError, Stop};
pub use probe::{Counts, Note, Probe, Sample};
pub use rule::Rule;
pub use verdict::{Outcome, Reason, Verdict, worst};
pub use witness::{CpuTime, NoWitness, QuotaTime, StealFault, ThreadTime, Witness};

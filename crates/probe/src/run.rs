//! The I/O of the probe: threads that sleep, call and answer on this computer.
//!
//! Use this module to run the probe or the network test inside a program. It measures and passes
//! the results to the rest of the crate, which judges them.
//!
//! [`sleepers`] runs one [`sleeper`] on each vCPU until there is a verdict. [`client`] and
//! [`server`] are the two ends of the network test, and [`workflows`] calls many nodes for one
//! answer. [`launch`] starts, probes and ends nodes through a [`launcher`]. The caller provides the
//! histograms, with bounds of its choice, and merges and writes them.

pub mod client;
pub mod launch;
pub mod launcher;
pub mod server;
pub mod sleeper;
pub mod sleepers;
pub mod workflows;

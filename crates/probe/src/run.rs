//! The I/O of the probe: threads that sleep, call and answer on this computer.
//!
//! Use this module to run the probe or the network test inside a program. It measures and passes
//! the results to the rest of the crate, which judges them.
//!
//! [`sleepers`] runs one [`sleeper`] on each vCPU until there is a verdict. [`client`] and
//! [`server`] are the two ends of the network test, and [`workflows`] calls many nodes for one
//! answer; [`comparison`] measures workflows among all nodes and among selected ones. [`launch`]
//! starts, probes and selects nodes by a program, and [`results`] reads the results of other nodes.

pub mod client;
pub mod comparison;
pub mod launch;
mod launcher;
pub mod results;
pub mod server;
pub mod sleeper;
pub mod sleepers;
pub mod workflows;

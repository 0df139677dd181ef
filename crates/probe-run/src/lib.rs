//! The shell around `tailbound_probe`: what sleeps, calls and answers so that the
//! probe can judge.
//!
//! [`sleepers`] runs one [`sleeper`] on each vCPU until there is a verdict. [`client`]
//! and [`server`] are both ends of the network test, [`workflows`] calls many nodes for one answer.
//! [`launch`] starts, probes and ends nodes through a [`launcher`].
//!
//! Histograms come from the caller, who merges and writes them: all have the bounds
//! that the caller chose.

pub mod client;
pub mod launch;
pub mod launcher;
pub mod server;
pub mod sleeper;
pub mod sleepers;
pub mod workflows;

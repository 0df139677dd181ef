//! The shell around `tailbound_probe`: what sleeps, calls and answers so that the
//! probe can judge.
//!
//! [`sleeper`] is one thread on one vCPU, [`client`] one node's network test.
//! Histograms come from the caller, who merges and writes them, so that all have
//! the same bounds.

pub mod client;
pub mod sleeper;

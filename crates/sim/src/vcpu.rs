//! Guests under hypervisors' schedulers, compared with the papers' figures.
//!
//! Read [`Sweep`] first: schedulers, points and measurements. A [`Population`] is many nodes
//! instead, each judged by Bobtail's algorithm; [`Networks`] are hosts whose guests communicate
//! over TCP.

mod check;
mod experiment;
mod network;
mod point;
mod population;
mod recorder;
mod sweep;
#[cfg(test)]
mod tests;

pub use crate::scheduler::{CreditSpec, EdfSpec, SchedulerSpec};
pub use experiment::VcpuExperiment;
pub use network::{
    Conditions, Equations, HostSpec, NetworkPoint, Networks, PageSpec, Pattern, PingSpec, Receiver,
    Repeated, Sender, TransferSpec, WebSpec, Work,
};
pub use population::{Drift, Neighbour, Nodes, Pairs, Population, Workflows};
pub use sweep::{Count, Guest, Measure, Point, Sweep};

//! Messages over TCP through switches, and how long they take.
//!
//! [`Messages`] is what an experiment says: a [`Topology`], a workload, and variants of
//! transport, switches and meter. A run builds `port`s (links with the queue before them) and
//! one node of all hosts, which are nodes of the engine of [`crate::net`]; the transports are
//! those of [`crate::tcp`], the meter is the data path's own.

mod experiment;
mod hosts;
mod messages;
mod packet;
mod port;
mod run;
mod sizes;
mod tally;
#[cfg(test)]
mod tests;
mod topology;
mod workload;

pub use experiment::PacketsExperiment;
pub use messages::{Messages, MeterSpec, Setting, Switches, Transport};
pub use packet::Packet;
pub use sizes::{Empirical, Pareto, Sizes};
pub use tally::{Outcome, Totals};
pub use topology::{FatTree, Line, Star, Topology};
pub use workload::{Bursts, Flows, Peers, Queries};

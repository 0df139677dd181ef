//! Packet-level simulation of messages over TCP and UDP through switches, and of their completion
//! times.
//!
//! [`Messages`] is the experiment: a topology, a workload, and variants of transport, switches and
//! meter. A run builds `port`s (links with the queue before them) and one node of all hosts, which
//! are nodes of the engine of [`crate::net`]; the transports are those of [`crate::tcp`], the meter
//! is the data path's own.

mod attribution;
mod carrier;
mod experiment;
mod fifo;
mod figures;
mod hose;
mod hosts;
mod hull;
mod inside;
mod judged;
mod line;
mod machines;
mod messages;
mod paced;
mod packet;
mod peers;
mod piped;
mod placed;
mod pool;
mod port;
mod priorities;
mod promises;
mod racks;
mod rounds;
mod run;
mod sizes;
mod snooped;
mod streams;
mod talks;
mod tally;
mod tenants;
#[cfg(test)]
mod tests;
mod topology;
mod trace;
mod transport;
mod workload;

pub use experiment::PacketsExperiment;
pub use hull::HullPacer;
pub use line::Line;
pub use machines::{MachineSpec, NeighbourSpec};
pub use messages::{Messages, MeterSpec, On, PacerSpec, Setting, Switches};
pub use packet::{Packet, Protocol};
pub use peers::Peers;
pub use piped::PipelineSpec;
pub use port::{Phantom, Shared};
pub use racks::Racks;
pub use sizes::{Empirical, Pareto, Sizes};
pub use streams::Streams;
pub use talks::{GuestSpec, Talk};
pub use tally::{Outcome, ReceivedMessage, Totals};
pub use tenants::{Length, Pattern, TenantClass, Tenants};
pub use topology::{FatTree, Star};
pub use trace::Trace;
pub use transport::Transport;
pub use workload::{Bursts, Flows, Queries};

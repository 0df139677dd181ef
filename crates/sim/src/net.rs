//! The packet-level simulator for bounds: senders, queues and links, to the picosecond.
//!
//! [`Simulation`] is the engine and [`Node`] a component; [`Fabric`] describes a network of
//! [`Source`]s and [`Port`]s as data and runs it. A simulation is a value; the description and one
//! seed decide every byte of its outcome.

mod admitted;
mod calc;
mod event_queue;
mod experiment;
mod fabric;
mod given;
mod port;
mod random;
mod search;
mod simulation;
mod source;
#[cfg(test)]
mod tests;
mod time;

pub(crate) use admitted::ports;
pub use admitted::{Admitted, CentreOutcome, TenantClass, Worst};
pub use calc::{Calc, CalcError, Observed, Violation};
pub(crate) use calc::{as_f64, data, delay, tightness};
pub use event_queue::{NodeId, TournamentQueue};
pub use experiment::NetExperiment;
pub use fabric::{Fabric, FabricRun, FlowConfig, FlowStats, Sink};
pub use given::GivenNetwork;
pub use port::{CLASSES, Drops, Port, PortConfig, PortStats, Wire};
pub(crate) use random::exact;
pub use random::{DelayTightness, Outcome, RandomNetwork, RandomNetworks};
pub use search::Effort;
pub use simulation::{Frame, Node, Observer, Simulation, Travels};
pub use source::{Envelope, Pattern, Source, SourceConfig};
pub use time::Time;

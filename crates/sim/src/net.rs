//! The packet-level simulator: senders, queues and links, to the picosecond.
//!
//! [`Simulation`] is the engine and [`Node`] what takes part; [`Fabric`]
//! describes a network of [`Source`]s and [`Port`]s as data and runs it. A
//! simulation is a value; the description and one seed decide every byte of its
//! outcome.

mod admitted;
mod agenda;
mod calc;
mod experiment;
mod fabric;
mod port;
mod random;
mod run;
mod search;
mod simulation;
mod source;
#[cfg(test)]
mod tests;
mod time;

pub use admitted::{Admitted, CentreOutcome, TenantClass, Worst};
pub use agenda::Agenda;
pub use calc::{Calc, CalcError, Observed, Violation};
pub(crate) use calc::{as_f64, data, delay, tightness};
pub(crate) use experiment::out_of;
pub use experiment::{EMBEDDED, Experiment, GivenNetwork, source_text};
pub use fabric::{Fabric, FabricRun, FlowConfig, FlowStats, Sink};
pub use port::{CLASSES, Drops, Port, PortConfig, PortStats, Wire};
pub use random::{DelayTightness, Drawn, Outcome, RandomNetworks};
pub use run::{describe, drawn_network, run};
pub(crate) use run::{distribution, failed, percentile, sorted, value, variant};
pub use search::Effort;
pub use simulation::{Frame, Node, NodeId, Observer, Simulation};
pub use source::{Envelope, Pattern, Source, SourceConfig};
pub use time::Time;

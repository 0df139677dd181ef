//! The pacer of the data path in virtual time: `tailbound_dataplane::pacer` itself, between guests
//! with the traffic of an experiment and a wire that is its clock.
//!
//! Six kinds of experiments: the share of late messages (Silo, table 1), rates and pauses compared
//! with the configuration, the spacing on the wire, networks behind many pacers compared with their
//! bounds, guests beside attackers, and a guest that exceeds its guarantee on an idle wire. Only
//! the last has elastic flows: the others measure guaranteed traffic.

#[cfg(test)]
mod backends;
mod conformance;
mod elastic;
#[cfg(test)]
mod ends;
mod experiment;
mod host;
mod isolation;
mod limits;
mod messages;
mod spacing;
#[cfg(test)]
mod tests;

pub use conformance::Conformance;
pub use elastic::Elastic;
pub use experiment::PacerExperiment;
pub(crate) use host::Excess;
pub use isolation::Isolation;
pub use limits::{Limits, Other};
pub use messages::{Messages, PaperRow};
pub use spacing::{Load, Spacing};

/// The longest frame that the experiments send, on the wire: 1500 B of payload.
const FRAME: u64 = 1538;

//! The pacer of the data path in virtual time: `tailbound_dataplane::pacer` itself,
//! between guests that send what an experiment says and a wire that is its clock.
//!
//! Five kinds of experiments: the share of late messages (Silo, table 1), rates
//! and pauses against what is configured, the spacing on the wire, networks
//! behind many pacers against their bounds, and guests beside attackers.

mod conformance;
mod experiment;
mod host;
mod isolation;
mod limits;
mod messages;
mod run;
mod spacing;
#[cfg(test)]
mod tests;

pub use conformance::Conformance;
pub use experiment::{EMBEDDED, Experiment, source_text};
pub use isolation::Isolation;
pub use limits::{Limits, Other};
pub use messages::{Messages, PaperRow};
pub use run::{describe, run};
pub use spacing::{Load, Spacing};

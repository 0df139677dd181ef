//! A data centre of network namespaces on one computer, and experiments in it.
//!
//! Do not use this crate for results about real hardware: links, switch and hosts share this
//! computer's CPUs. `tailbound-sim` has deterministic simulations.
//!
//! Read [`experiment::LabExperiment`] first: the configuration of the data centre and its variants.
//! Hosts, guests and the switch are network namespaces ([`topology`] plans them, `build` makes
//! them); each host runs this program's own daemon; [`guest`] has the programs inside guests.
//! `variant` runs one variant; `monitor` and [`noise`] separate the mechanism's own tail from the
//! disturbances of this computer.

pub mod arrivals;
mod bounds;
mod build;
mod class;
pub mod comparison;
mod core_use;
mod cpus;
mod disturbed;
mod error;
pub mod experiment;
pub mod guest;
mod hosts;
mod lock;
mod machine;
mod measurement;
mod monitor;
pub mod noise;
mod percentile;
mod place;
mod processes;
mod refusals;
mod reservation;
mod run;
mod run_dir;
mod rounds;
mod session;
pub mod star;
mod summarise;
mod tools;
pub mod topology;
mod variant;
mod vcpu_share;
pub mod vm;
mod watcher;
mod wire;

pub use error::LabError;
pub use run::Options;
pub use run_dir::{Cleaned, clean};

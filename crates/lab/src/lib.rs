//! A data centre on one machine, and experiments in it.
//!
//! Read [`experiment::LabExperiment`] first: what is built and compared.
//! Hosts, guests and the switch are network namespaces ([`topology`] plans them,
//! `build` makes them); each host runs this program's own daemon; what runs
//! inside guests is in [`guest`]. `variant` runs one variant; `monitor` and
//! [`noise`] tell the mechanism's own tail from the machine's.

pub mod arrivals;
mod bounds;
mod build;
pub mod cards;
mod class;
mod core_use;
mod cpus;
mod disturbed;
mod error;
pub mod experiment;
pub mod forward;
pub mod guest;
mod hosts;
mod lock;
mod machine;
mod monitor;
pub mod noise;
mod pair;
mod percentile;
mod place;
mod processes;
mod refusals;
mod reservation;
mod run;
mod run_dir;
pub mod shaped;
pub mod star;
mod summarise;
mod tools;
pub mod topology;
mod turns;
mod variant;
mod vcpu_share;
pub mod vm;
mod watcher;
mod wire;

pub use error::LabError;
pub use run::Options;
pub use run_dir::{Cleaned, clean};

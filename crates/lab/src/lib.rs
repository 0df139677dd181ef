//! A data centre of network namespaces on one computer, and experiments in it.
//!
//! Do not use this crate for results about real hardware: links, switch and hosts share this
//! computer's CPUs. `tailbound-sim` has deterministic simulations.
//!
//! Two kinds of experiments implement `tailbound_experiment::Experiment`:
//! [`LabExperiment`] (in `run`) is a data centre with load and variants to compare;
//! [`comparison::Comparison`] measures backends between two guests. Read one of them first. Both
//! have the same data flow:
//!
//! ```text
//! TOML ─► Experiment::read, check, outline
//!         Session::enter        namespaces, directory, CPUs, this program
//!         rounds                A B C A B C ...: one Measurement for each variant and round
//!           variant::run          Crew (daemons, VMs, programs in guests) ─► Loads ─► Readings
//!           Bench::measure        Rig (two guests) ─► outcomes
//!         Disturbances          other use of the computer, and lost runs: the only rule of noise
//!         summarise::variant    the rounds' Measurements ─► tailbound_report::Variant
//! ```
//!
//! Hosts, guests and the switch are network namespaces (`topology` plans them, `build` makes
//! them); each host runs this program's own daemon; [`guest`] has the programs inside guests, which
//! leave an `Outcome` each. `monitor` and `noise` separate the mechanism's own tail from the
//! disturbances of this computer. `star` is no experiment: it is the reference for a simulation.

mod arrivals;
mod bounds;
mod build;
mod class;
pub mod comparison;
mod core_use;
mod cpus;
mod disturbed;
mod error;
mod experiment;
pub mod guest;
mod hosts;
mod lock;
mod machine;
mod measurement;
mod monitor;
mod noise;
mod percentile;
mod place;
mod processes;
mod refusals;
mod reservation;
mod rounds;
mod run;
mod run_dir;
mod session;
pub mod star;
mod summarise;
mod tools;
mod topology;
mod variant;
mod vcpu_share;
pub mod vm;
mod watcher;
mod wire;

pub use error::LabError;
pub use experiment::LabExperiment;
pub use run::Options;
pub use run_dir::{CleanResult, clean};

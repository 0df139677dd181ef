//! The host daemon: it stands between the guests of one machine and its uplink,
//! and every packet between them passes its pipelines.
//!
//! Read [`tailbound_switch::Switch`] first: the packet loop's core, pure but for the
//! ports it is given. [`port`] has those of a real host, [`config`] is the file that
//! says what is forwarded for whom, and [`run`] the daemon that opens ports, waits for
//! them and answers to signals and scrapes. [`control`] takes what guests are promised
//! from the placement service, [`socket`] has guests come and go, and shows them, [`libvirt`]
//! has domains do so.

pub mod config;
pub mod control;
mod daemon;
mod durable;
mod guarantees;
pub mod hose;
mod inventory;
mod lateness;
pub mod libvirt;
mod metrics;
mod places;
pub mod port;
mod reserved;
mod retire;
pub mod socket;
pub mod void_test;
mod wake;

pub use config::{ChangeError, Config, ConfigError};
pub use daemon::{HostError, Instance, InstanceError, OpenError, run, watch_vcpus};
pub use lateness::Lateness;
pub use metrics::MetricsError;

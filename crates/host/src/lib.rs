//! The host daemon: it connects the guests of one host with its uplink. Every packet between them
//! passes the daemon's pipelines.
//!
//! Read [`tailbound_switch::Switch`] first: it is the packet loop's core, without I/O of its own
//! except for its ports. [`tailbound_ports`] has the ports of a real host, [`config`] the configuration file,
//! and [`run`] the daemon that opens ports, waits for them and handles signals and scrapes.
//! [`control`] receives guests' guarantees from the placement service, [`socket`] adds, removes and
//! shows guests, and [`libvirt`] does so for domains. [`verify`] judges from the shown counters
//! whether a guest gets its guarantee, [`trace`] records the times of its frames and the waits of
//! its threads.

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
mod reserved;
mod retire;
pub mod socket;
pub mod trace;
pub mod verify;
pub mod void_test;
mod wake;

pub use config::{ChangeError, Config, ConfigError};
pub use daemon::{HostError, Instance, InstanceError, OpenError, run, watch_vcpus};
pub use lateness::Lateness;
pub use metrics::MetricsError;

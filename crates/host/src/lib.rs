//! The host daemon: it stands between the guests of one machine and its uplink,
//! and every packet between them passes its pipelines.
//!
//! Read [`switch`] first: the packet loop's core, pure but for the ports it is
//! given. [`port`] has those, [`forward`] says where a frame goes and [`guard`]
//! what a guest may send. [`config`] is the file that says all this, and [`run`]
//! the daemon that opens ports, waits for them and answers to signals and
//! scrapes. [`control`] takes what guests are promised from the placement
//! service.

pub mod config;
pub mod control;
mod daemon;
pub mod forward;
pub mod guard;
pub mod hose;
mod mac;
mod metrics;
pub mod port;
mod reason;
pub mod switch;
#[cfg(test)]
mod test_frames;
pub mod vcpu;
mod wake;

pub use config::{Config, UPLINK};
pub use daemon::{HostError, Instance, InstanceError, OpenError, VcpuSource, run, watch_vcpus};
pub use mac::{Mac, MacError};
pub use metrics::MetricsError;
pub use reason::Reason;

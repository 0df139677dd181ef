//! Experiments in virtual time: models for measurements that are impossible on one computer,
//! compared with the figures of the papers.
//!
//! [`vcpu`] runs guests under hypervisors' schedulers, [`net`] frames through queues and links,
//! [`pacer`] guests through the data path's own pacer, and [`shaper`] guests through its limits.
//! [`placement`] places tenants in data centres, and in [`flows`] they transfer their data and
//! leave. Each is a kind of [`tailbound_experiment::Experiment`]. Do not use this crate to measure
//! real hosts or networks: it has no I/O besides its files and no real clock. All results are
//! deterministic: an experiment and a seed produce the same bytes on every computer and with any
//! number of threads.

mod columnar;
mod distribution;
pub mod flows;
pub mod grid;
pub mod kinds;
pub mod net;
pub mod pacer;
pub mod packets;
mod parallel;
pub mod placement;
pub mod replay;
mod rows;
mod scenario;
mod scheduler;
pub mod shaper;
pub mod tcp;
#[cfg(test)]
mod testing;
pub mod traffic;
pub mod vcpu;
mod xen_host;

pub use parallel::Threads;

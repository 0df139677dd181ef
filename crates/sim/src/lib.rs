//! Experiments in virtual time: models of what cannot be had on one machine,
//! beside the figures of the papers.
//!
//! [`vcpu`] runs guests under hypervisors' schedulers, [`net`] frames through
//! queues and links, [`pacer`] guests through the data path's own pacer, [`shaper`] through
//! its limits, [`placement`] tenants into data centres, and [`flows`] lets them move their data
//! there and leave. Each is a kind of [`tailbound_experiment::Experiment`].
//! Everything is deterministic: an experiment and a seed give the same bytes on every
//! machine and with any number of threads.

mod columnar;
mod csv;
mod distribution;
mod fields;
pub mod flows;
pub mod grid;
pub mod net;
pub mod pacer;
pub mod packets;
mod parallel;
pub mod placement;
pub mod replay;
mod scenario;
mod scheduler;
pub mod shaper;
pub mod tcp;
pub mod vcpu;
mod xen_host;

pub use parallel::Threads;

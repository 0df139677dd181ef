//! Flow-level simulation of whole data centres: tenants arrive with data to transfer and leave
//! after the transfer, at rates that are guaranteed or shared fairly.
//!
//! Read [`FlowsExperiment`] first, then `run`: arrivals, admission by [`tailbound_placement`], ends
//! of jobs. `sharing` has the rates: max-min fair ones, of which only those that a change affects
//! are computed again. There are no packets, no queues and no transport: a rate is that of an ideal
//! transport, without delay. **Do not use it for tail latencies**; [`crate::net`] has them.

mod experiment;
mod job;
mod recorder;
mod run;
mod sharing;
#[cfg(test)]
mod tests;
mod transfers;

pub use experiment::{FlowClass, FlowPoint, FlowsExperiment, Traffic};

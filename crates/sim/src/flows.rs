//! Whole data centres at the level of flows: tenants who come with data to move and leave
//! when it is moved, at rates that are guaranteed or shared fairly.
//!
//! Read [`FlowsExperiment`] first, then `run`: arrivals, admission by
//! [`tailbound_placement`], jobs that end. `sharing` has the rates: max-min fair ones, of which
//! only those that a change reaches are computed again. There are no packets, no queues and no
//! transport: a rate is what an ideal one would reach at once. **Nothing here says anything
//! about a tail**; [`crate::net`] does.

mod experiment;
mod job;
mod recorder;
mod run;
mod sharing;
#[cfg(test)]
mod tests;
mod transfers;

pub use experiment::{FlowClass, FlowPoint, FlowsExperiment, Traffic};

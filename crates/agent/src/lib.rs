//! The vCPU agent: sets and restores the scheduling classes of guests' threads on a Linux host.
//!
//! Use this crate to find guests, to measure their waits for a CPU, and to schedule their threads.
//! Do not use it for processes without a rule: it changes only threads that a rule selects.
//! [`tailbound_hypervisor`] models schedulers without a kernel.
//!
//! The agent compares the desired state of threads ([`Desired`], which [`rule`] derives from a
//! configuration) with the state that [`observer`] reads ([`observed::Observed`]). [`plan`] turns
//! the difference into a [`plan::Plan`], which is data: [`step`] has its parts, [`admission`]
//! checks whether its reservations fit, and [`plan_error::PlanError`] is the reason for a refusal.
//! [`apply`] executes a plan through a [`kernel::Kernel`] after [`journal`] has recorded the
//! previous state.
//!
//! Read [`plan`] first, then [`class`], the possible classes. [`guest`] recognises guests by their
//! own claims, [`place`] by the managers of their control groups; [`scan`] reads both, and
//! [`calls`] makes the system calls. [`budget`] limits a rule, [`offer`] computes the CPU time that
//! the placement service may reserve. [`watch`] repeats all of this while guests start, grow and
//! end, at the times of [`Schedule`]; [`usage`] measures threads once.
//!
//! [`gauge`] measures waits into [`meters`]: [`tail`] measures each wait in the kernel, and
//! [`division`] divides a late wait among causes. [`live`] shows the result for all guests.

pub mod admission;
mod agent;
pub mod apply;
pub mod budget;
pub mod calls;
mod claim;
pub mod class;
mod config;
pub mod cri;
pub mod desired;
pub mod division;
mod entries;
pub mod gauge;
mod granted;
pub mod guest;
pub mod guidance;
mod identifier;
pub mod inventory;
pub mod journal;
pub mod kernel;
pub mod live;
pub mod look;
pub mod losses;
pub mod meters;
pub mod metrics;
pub mod observed;
pub mod observer;
pub mod offer;
pub mod path;
pub mod place;
pub mod plan;
pub mod plan_error;
mod qmp;
pub mod rule;
pub mod scan;
mod schedule;
mod standstill;
pub mod step;
mod strikes;
pub mod tail;
#[cfg(test)]
mod testing;
pub mod text;
pub mod usage;
pub mod watch;
mod worth;

pub use agent::{Agent, AgentError, thread};
pub use apply::{ApplyError, ApplyResult, Restored};
pub use claim::HostClaim;
pub use class::{Aperiodic, Bandwidth, Class, Level, Periodic};
pub use config::{AgentConfig, ConfigSource, OnDrift};
pub use desired::{Affinity, Desired, Excess};
pub use identifier::{Uuid, UuidError, Vmid, VmidError};
pub use offer::{OfferConfig, Pool};
pub use path::PathConfig;
pub use schedule::Schedule;

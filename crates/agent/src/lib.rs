//! The vCPU agent: gives the threads of guests a scheduling class, and takes it
//! back.
//!
//! It compares the desired state of threads ([`Desired`], which [`rule`] makes of a
//! configuration) with what [`observer`] sees ([`observed::Observed`]). [`plan`]
//! turns the difference into a [`plan::Plan`], which is data: [`step`] has its
//! parts, [`admission`] says whether its reservations fit, and
//! [`plan_error::PlanError`] why there is none. [`apply`] carries a plan out through
//! a [`kernel::Kernel`] after [`journal`] has written down what was there.
//!
//! Read [`plan`] first, then [`class`], which says what can be desired. [`guest`]
//! knows guests by what they say of themselves, [`place`] by what the managers of their
//! control groups say, [`scan`] reads that; [`calls`] has what no file says. [`budget`] ends
//! what a rule may give away, [`offer`] says how much CPU the placement service may reserve.
//! [`watch`] repeats all of it while guests start, grow and end, [`Schedule`] says when; [`usage`]
//! measures threads once.
//!
//! [`gauge`] measures waits into [`meters`]: [`tail`] each of them in the kernel, and
//! [`division`] says what a late one was spent on. [`live`] shows that of all guests.

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
mod identifier;
pub mod inventory;
pub mod journal;
pub mod kernel;
pub mod live;
pub mod look;
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
pub mod taken;
#[cfg(test)]
mod testing;
pub mod text;
pub mod usage;
pub mod watch;
mod worth;

pub use agent::{Agent, AgentError, thread};
pub use apply::{Applied, ApplyError, Restored};
pub use claim::HostClaim;
pub use class::{Aperiodic, Bandwidth, Class, Level, Periodic};
pub use config::{AgentConfig, ConfigSource, OnDrift};
pub use desired::{Affinity, Desired, Excess};
pub use identifier::{Uuid, UuidError, Vmid, VmidError};
pub use offer::{OfferConfig, Pool};
pub use path::PathConfig;
pub use schedule::Schedule;

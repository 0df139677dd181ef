//! Several hosts in virtual time, and what holds of them.

mod allocations;
mod bound;
mod clocks;
mod converge;
mod golden;
mod net;
mod paced;
mod secure;
mod stations;

//! Several hosts in virtual time, and what holds of them.

mod allocations;
mod bound;
mod changing;
mod classes;
mod clocks;
mod converge;
mod drained;
mod golden;
mod here;
mod inward;
mod keys;
mod net;
mod paced;
mod pieces;
mod rotating;
mod secure;
mod shuffle;
mod stations;
mod tcp;

//! Guests that communicate over TCP: packets through a driver domain, for the figures of vSnoop.
//!
//! Read [`net::Net`] first: machines, wires, and connections between them, in virtual time.
//! [`XenHost`](crate::xen_host::XenHost) is a machine under Xen: frames wait for its driver domain,
//! then in a guest's ring for the guest. [`transfers`], [`pings`], [`web`] and [`messages`] are the
//! loads, the last two over [`mail`]; [`bench`] builds hosts, [`spec`] is an experiment as data,
//! [`run`] computes its results.

mod bench;
mod frame;
mod mail;
mod messages;
mod net;
mod pings;
mod run;
mod spec;
#[cfg(test)]
mod tests;
mod transfers;
mod web;

pub use spec::{
    Conditions, Equations, HostSpec, NetworkPoint, Networks, PageSpec, Pattern, PingSpec, Receiver,
    Repeated, Sender, TransferSpec, WebSpec, Work,
};

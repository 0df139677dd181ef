//! A switch between the guests of one machine and its uplink, without clock,
//! descriptors or threads.
//!
//! Read [`Switch`] first: one turn of the packet loop. It moves frames between
//! [`port`]s, drops what a guest may not send ([`Guard`]), decides by MAC address where
//! a frame goes ([`Forwarding`]), and hands it to what stands before the port it leaves
//! by. It knows guests by [`tailbound_dataplane::GuestId`]; who they are elsewhere is
//! somebody else's matter.

mod forward;
mod guard;
mod mac;
pub mod port;
mod reason;
mod switch;
#[cfg(test)]
mod test_frames;

pub use forward::{Forwarding, Learned, NoRoute, PortIndex, Verdict};
pub use guard::Guard;
pub use mac::{Mac, MacError};
pub use reason::Reason;
pub use switch::{
    GuestPacing, HoseGuest, LinkConfig, LinkSnapshot, Pacing, Ports, Promises, Snapshot, Sojourn,
    Switch, Turn, UplinkPacing,
};

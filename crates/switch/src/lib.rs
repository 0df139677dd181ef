//! A switch between the guests of one machine and its uplink, without clock,
//! descriptors or threads.
//!
//! Read [`Switch`] first: one turn of the packet loop. It moves frames between
//! [`port`]s, drops what a guest may not send ([`SpoofFilter`]), decides by MAC address where
//! a frame goes ([`Forwarding`]), and hands it to what stands before the port it leaves
//! by. It knows guests by [`tailbound_dataplane::GuestId`]; who they are elsewhere is
//! somebody else's matter.

mod announce;
mod budget;
mod filter;
mod forward;
mod mac;
pub mod port;
mod prefix;
mod reason;
mod switch;
#[cfg(test)]
mod test_frames;

pub use budget::BudgetConfig;
pub use filter::{GuardConfig, SpoofFilter};
pub use forward::{Forwarding, Learned, NoRoute, Pinned, PortIndex, Verdict};
pub use mac::{Mac, MacError};
pub use prefix::{Prefix, PrefixError};
pub use reason::Reason;
pub use switch::{
    Applying, GuaranteeError, GuestConfig, GuestPacing, GuestSnapshot, Interest, LimitSnapshot,
    Link, PartialSnapshot, PortSnapshot, Ports, Reload, Snapshot, SnoopSnapshot, Sojourn, Spent,
    Stopwatch, Switch, SwitchConfig, SwitchPlan, Traced, TracedFrame, Turn, UPLINK, UplinkPacing,
    UplinkSnapshot, Wait,
};

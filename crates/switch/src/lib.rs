//! A switch between the guests of one host and its uplink, without clock, descriptors or threads.
//!
//! Read [`Switch`] first: one turn of the packet loop. It moves frames between [`port`]s, drops
//! forbidden frames of guests ([`SpoofFilter`]), forwards by MAC address ([`Forwarding`]), and
//! enqueues frames in front of the port they leave by. It knows guests by
//! [`tailbound_dataplane::GuestId`]; the names of guests in other parts of the system are not its
//! concern.

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
    Stopwatch, Switch, SwitchConfig, SwitchPlan, Switches, Traced, TracedFrame, Turn, UPLINK,
    UplinkPacing, UplinkSnapshot, Wait,
};

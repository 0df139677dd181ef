//! A switch between the guests of one host and its uplink, without clock, descriptors or threads.
//!
//! Read [`Switch`] first: one turn of the packet loop. The switch knows guests by
//! [`tailbound_dataplane::GuestId`]; the names of guests in other parts of the system are not its
//! concern.
//!
//! # The way of a frame
//! [`Switch::poll`] does one turn. In a turn, frames pass the parts of the switch in this order:
//!
//! ```text
//! Port::receive ► receive ► admission ► forwarding ► transmit ► Port::transmit
//!                    ▲          ▲                       │
//!                    └──────────┴─── agenda ◄───────────┘
//! ```
//!
//! | part | state | frame in | frame out |
//! |---|---|---|---|
//! | receive | bursts of ports, each port's share of the work | `Port::receive` | the next frame of a port with credit |
//! | admission | address book, budgets, guests' limits | a frame and its port | the same frame, a [`Reason`] to drop it, or later (limit) |
//! | forwarding | [`Forwarding`], places of guests | a destination | a port, all ports, or a reason |
//! | transmit | uplink with its pacer, queues of guests | a frame and its port | `Port::transmit` |
//! | agenda | ports with work now, or at a known time | – | the next port to serve |
//!
//! The port table has the state of each port and of each guest. A part's method receives it as an
//! argument, so a turn passes two parts at a time.
//!
//! Indices are types that do not mix: a [`PortIndex`] is a place among [`Ports`], a guest's index
//! its place in the configuration, a slot the number in [`tailbound_dataplane::GuestId`]. The port
//! table alone translates between them.

mod announce;
mod budget;
mod filter;
mod forward;
mod index;
mod mac;
pub mod port;
mod prefix;
mod reason;
mod switch;
#[cfg(test)]
mod test_frames;

pub use budget::BudgetConfig;
pub use filter::{GuardConfig, SpoofFilter};
pub use forward::{Forwarding, Learned, NoRoute, Pinned, Verdict};
pub use index::PortIndex;
pub use mac::{Mac, MacError};
pub use prefix::{Prefix, PrefixError};
pub use reason::Reason;
pub use switch::{
    Applying, GuaranteeError, GuestConfig, GuestPacing, GuestSnapshot, Interest, LimitSnapshot,
    Link, PartialSnapshot, PortSnapshot, Ports, Reload, Snapshot, SnoopSnapshot, Sojourn, Spent,
    Stopwatch, Switch, SwitchConfig, SwitchPlan, Switches, Traced, TracedFrame, Turn, UPLINK,
    UplinkPacing, UplinkSnapshot, Wait,
};

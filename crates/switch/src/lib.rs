//! A switch between the guests of one host and its uplink, without clock, descriptors or threads.
//!
//! Read [`Switch`] first: one turn of the packet loop. The switch knows guests by
//! [`tailbound_dataplane::GuestId`]; the names of guests in other parts of the system are not its
//! concern.
//!
//! # The way of a frame
//! [`Switch::poll`] does one turn. In a turn, frames pass the parts of the switch in this order;
//! each part is a type with private fields in a file of its own in `switch/`:
//!
//! ```text
//! Port::receive ► Receiver ► Admission ► Forwarding ► Transmitter ► Port::transmit
//!                    ▲           ▲                         │
//!                    └───────────┴──────── Agenda ◄────────┘
//! ```
//!
//! | part | state | frame in | frame out |
//! |---|---|---|---|
//! | `Receiver` | buffers, the burst, which port is next | `Port::receive` | a checked packet |
//! | `Admission` | address book, budgets, frames of ended limits | a packet and its port | the packet, or a [`Reason`] to drop it |
//! | [`Forwarding`] | places of stations and guests | a destination | a port, all ports, or a reason |
//! | `Transmitter` | uplink with its pacer, frames between guests | a packet and its port | `Port::transmit` |
//! | `Agenda` | ports with work now, or at a known time | – | the next port to serve |
//!
//! `PortTable` has the state of each port and of each guest, and the agenda. A part's method
//! receives it as an argument, so a turn passes two parts at a time. `Parts` has the loops over ports
//! (`turn.rs`) and the order of the parts: `receive.rs` for a frame from a port, `limited.rs` for
//! one that waited for its guest's limit, `snoop.rs` for one that the host sends in a guest's place.
//! [`Switch`] is the interface around them.
//!
//! Frames of one guest reach the pacer in batches. The batch is the uplink's: no caller flushes it.
//!
//! Indices are types that do not mix: a [`PortIndex`] is a place among [`Ports`], a `GuestIndex` a
//! place in the configuration, a `Slot` that of a [`tailbound_dataplane::GuestId`]. The table
//! translates between them.

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
#[cfg(feature = "testing")]
pub mod testing;

pub use budget::BudgetConfig;
pub use filter::{GuardConfig, SpoofFilter};
pub use forward::{Forwarding, Learned, NoRoute, Pinned, Verdict};
pub use index::PortIndex;
pub use mac::{Mac, MacError};
pub use prefix::{Prefix, PrefixError};
pub use reason::Reason;
pub use switch::{
    Applying, GuestConfig, GuestMut, GuestPacing, GuestRef, GuestSnapshot, Interest, LimitSnapshot,
    Link, PartialSnapshot, PortSnapshot, Ports, Reload, Snapshot, SnoopSnapshot, Sojourn, Spent,
    Stopwatch, Switch, SwitchConfig, SwitchPlan, Switches, Traced, TracedFrame, Turn, UPLINK,
    UplinkPacing, UplinkSnapshot, Wait,
};

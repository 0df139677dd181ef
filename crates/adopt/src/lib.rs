//! Protects a guest in the network that it has, and undoes it.
//!
//! Use this crate for guests behind a bridge, Open vSwitch, Docker's or a CNI plugin's plumbing: the
//! kernel goes on forwarding their frames, and programs on their devices and on the uplink guard,
//! tag and limit them. The user-space switch of `tailbound-host` forwards frames itself.
//!
//! The way of the data: [`world::World`] is what was read of a host, [`request::Request`] what is
//! asked for. [`mod@plan`] makes of both an [`Entry`] for each guest, a list of [`Step`]s with the
//! state before each, or a [`Refusal`]. [`carry`] writes the entry into a [`Journal`], then takes
//! the steps through a [`Host`], and reads each back. A release undoes the steps of an entry that
//! no other entry has, and only where the kernel's state is still the one that the step made.
//!
//! Read [`step`] first. [`mod@plan`], [`uplink`] and [`step`] are pure; [`journal`] and [`live`] have
//! the side effects.

pub mod carry;
pub mod cni;
pub mod journal;
pub mod lateness;
pub mod libvirt;
pub mod live;
pub mod mac;
pub mod plan;
pub mod policy;
pub mod refusal;
pub mod request;
pub mod step;
#[cfg(test)]
mod testing;
pub mod uplink;
pub mod world;

pub use carry::{Adopted, CarryError, Released, adopt, release};
pub use journal::{FileJournal, Journal, JournalError};
pub use mac::Mac;
pub use plan::plan;
pub use refusal::Refusal;
pub use request::{Allowance, Bucket, Devices, LONGEST_PACKET, Request, Selection, UplinkQueue};
pub use step::{Action, Attachment, Entry, Origin, Port, Rules, Step};
pub use world::{Attached, Guest, Host, HostError, PortState, World};

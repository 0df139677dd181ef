//! Hose model between hosts (Silo, SIGCOMM 2015, 4.1 and 4.3): rates of all pairs of VMs of a
//! tenant.
//!
//! The rates of all senders to a VM sum up to at most its bandwidth B, under loss, delay and
//! restarts. Do not use this crate to enforce the rates: the pacer of `tailbound-dataplane` does
//! that, and `tailbound-host` has the socket.
//!
//! docs/explanation/hose.md has the protocol, the bounds and their proof. For each active pair
//! (sender, receiver), the sender's host requests a rate from the receiver's host. That host
//! divides its VM's bandwidth B max-min fair among all senders and **grants** each a rate for a
//! **lease**. The sender's host divides its own VM's B among the receivers, within their grants. A
//! host never grants a rate that another sender may still use: it raises a grant only after another
//! sender has confirmed a lower one, or after that lease.
//!
//! Idle pairs hold nothing of B, because of **pledges**. A pledge is a lease in the other
//! direction: in every datagram a host promises the receiver that until a time in the near future
//! its VMs send only what was granted. The pledge of a silent host ends. Then each of its VMs may
//! use the **static share** B/(N-1) without a grant, and is counted with it.
//!
//! [`HoseState`] has no clock and no I/O: `now` is an argument, datagrams and rates are results. It
//! has three kinds of methods:
//!
//! - `handle_*` and `set_*` are for events: [`HoseState::handle_datagram`] for each datagram,
//!   [`HoseState::handle_waiting`] for a flow's first waiting frame, [`HoseState::handle_usage`] for
//!   each used flow and [`HoseState::handle_sample_end`] after them, [`HoseState::sample_drained`] for the data that guests took from their ports,
//!   [`HoseState::set_machines`] for changed VMs or guarantees, [`HoseState::set_keys`] for changed
//!   keys.
//! - `poll_*` return results: [`HoseState::poll_datagrams`] the datagrams to send, then
//!   [`HoseState::poll_changes`] the rates to set, [`HoseState::poll_stations`] the stations of
//!   these rates, and [`HoseState::poll_incoming`] the permitted rates of other hosts' VMs. Call
//!   all of them after each event, and at [`HoseState::poll_at`].
//! - All others are getters.
//!
//! **Loans.** Of the inward burst of a VM, its host lends a part to senders whose frames wait
//! (`receiver::pool`). A request carries the wanted bytes, a grant the lent ones.
//!
//! Long operations run in pieces (`state::agenda`). While pieces remain, [`HoseState::poll_at`]
//! returns the present.
//!
//! Read `state` first. `sender` and `receiver` are the two ends of a pair, `view` is a host's
//! knowledge of others, `schedule` its timing, `share` the division, [`wire`] the datagrams, and
//! `keys` their keys.

mod config;
mod context;
mod directory;
mod ids;
mod incoming;
mod keys;
mod machines;
mod peers;
mod receiver;
mod replay;
mod schedule;
mod sender;
mod share;
mod state;
mod stations;
mod stats;
mod table;
mod view;
pub mod wire;

pub use config::{HoseConfig, MAX_PAIRS};
pub use ids::{
    Address, ClassesCode, Destination, Epoch, FlowKey, GuestId, HostId, MachineId, PairId,
    Revision, SequenceNumber, Station, TimeOfDay,
};
pub use incoming::{Incoming, ReceiverLimits, SenderId};
pub use keys::{Key, KeyEpoch, KeyTextError, PairKeys, SHORTEST_SECRET, Secret};
pub use machines::{InwardBurst, Machine, Machines};
pub use sender::{Change, Receiver, Usage};
pub use state::HoseState;
pub use stations::StationChange;
pub use stats::{DropReason, HoseDrops, HoseStats};

#[cfg(test)]
mod tests;

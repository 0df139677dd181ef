//! The hose model between hosts (Silo, SIGCOMM 2015, 4.1 and 4.3): how fast each
//! machine may send to each other one of its tenant.
//!
//! docs/explanation/hose.md has the protocol, the bounds and their proof. In short: for each
//! pair (sender, receiver) that is in use, the sender's host requests a rate from
//! the receiver's host, which divides its machine's bandwidth B among all senders
//! (max-min fair) and **grants** each a rate on a **lease**. The sender's host
//! divides its own machine's B among the receivers, within what they granted. A host
//! never grants what another may still use: a rate is taken back first, and given to
//! the other when the first has said that it keeps to less, or its lease is over. So
//! the rates to one receiver sum up to at most its B at every moment, whatever
//! datagrams are lost, late, doubled or in disorder.
//!
//! Pairs that are not in use hold nothing of B. That is safe because of **pledges**.
//! A pledge is a lease the other way round: a host limits itself for a time, and the
//! other may count on it for that long. In every datagram a host pledges to the
//! receiver that until a moment in the near future its machines send what was
//! granted, and nothing else. When it falls silent its pledge runs out, and from
//! then on each of its machines may use the **static share** B/(N-1) unasked, and is
//! counted with that.
//!
//! [`HoseState`] is pure: `now` goes in, datagrams and rates come out. Its methods
//! are of three kinds:
//!
//! - `handle_*` take what has happened: [`HoseState::handle_datagram`] for each
//!   datagram, [`HoseState::handle_usage`] for each flow that was used and
//!   [`HoseState::handle_sample_end`] after them; [`HoseState::sample_drained`] for what
//!   guests have taken from their ports; [`HoseState::set_machines`] when
//!   the machines here or their guarantees are others, [`HoseState::set_keys`] when the
//!   keys are.
//! - `poll_*` hand over what follows: [`HoseState::poll_datagrams`] what is to be
//!   sent, then [`HoseState::poll_changes`] the rates that are to be set, and
//!   [`HoseState::poll_stations`] the stations that they are set for, and
//!   [`HoseState::poll_incoming`] what may come from others. Call all of them after any of
//!   the above, and at [`HoseState::poll_at`].
//! - All others are getters.
//!
//! What takes long is done in pieces (`state::agenda`): while there are more,
//! [`HoseState::poll_at`] asks for the next at once.
//!
//! Read `state` first; `sender` and `receiver` are the two ends of a pair, `view`
//! is what a host knows of others, `schedule` when it does what, `share` the
//! division; [`wire`] has the datagrams, `keys` what they are signed with.

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
pub use machines::{Machine, Machines};
pub use sender::{Change, Usage};
pub use state::HoseState;
pub use stations::StationChange;
pub use stats::{Dropped, HoseDrops, HoseStats};

#[cfg(test)]
mod tests;

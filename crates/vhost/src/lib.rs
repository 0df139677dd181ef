//! The port of a virtual machine: the back end of vhost-user for a virtio network card.
//!
//! The machine's monitor (QEMU, Cloud Hypervisor, DPDK's `virtio_user`) shares the guest's
//! memory over a socket, and the guest's rings are read and written there: one copy a
//! frame, and no system call but the wake-ups that the guest asks for. [`VhostPort`] is
//! that as a [`Port`](tailbound_switch::port::Port).
//!
//! ```text
//! monitor ► socket ► server (a thread) ► handler ► device: memory, features, rings
//!                                                     ▲
//! guest ◄─ memory and kicks ─► rings ◄─ port (the packet loop)
//!       ◄─ calls and errors ◄─ caller (a thread) ◄─ posts ┘
//! ```
//!
//! The first thread and the loop share the device alone. Each holds it for as long as it changes rings,
//! never while it reads the socket or maps memory; where the other has it, the loop goes
//! on without. The second thread writes to the monitor's eventfds, since only a monitor decides
//! how long such a write takes.
//!
//! Rings are split ones, with indirect descriptors and an event index (virtio 1.2, 2.7).
//! Whatever is in the guest's memory is copied before it is looked at, as the guest may
//! write meanwhile. A chain is given back in the turn in which it was taken, and in order,
//! so a ring goes on at the index of its used part, whichever side has started again. A
//! daemon that hands over gives the next one the connection, the memory and the rings
//! ([`VhostPort::go_on`]).

mod allowance;
mod caller;
mod config;
mod device;
mod estate;
mod features;
mod gate;
mod handler;
mod memory;
mod message;
mod port;
pub mod ring;
mod server;

pub use allowance::{Allowance, Charges};
pub use config::VhostConfig;
pub use port::VhostPort;
pub use server::{Mode, OpenError};

/// The guest's memory, as rings are found in it.
pub use memory::Memory;

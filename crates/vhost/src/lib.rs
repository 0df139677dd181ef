//! Switch port of a VM: a vhost-user backend for a virtio NIC.
//!
//! The VMM (QEMU, Cloud Hypervisor, DPDK's `virtio_user`) shares the guest's memory over a Unix
//! socket, and [`VhostPort`] reads and writes the guest's rings there: one copy per frame, and no
//! system call except for requested wake-ups. [`VhostPort`] implements
//! [`Port`](tailbound_switch::port::Port).
//!
//! Do not use it for other virtio devices, for packed rings, or for guests without shared memory.
//! The messages are those of the crate `vhost`; docs/explanation/vhost-user.md explains why its
//! request handler is not used.
//!
//! ```text
//! VMM     ► socket ► server (a thread) ► handler ► device: memory, features, rings
//!                                                     ▲
//! guest ◄─ memory and kicks ─► rings ◄─ port (the packet loop)
//!       ◄─ calls and errors ◄─ caller (a thread) ◄─ posts ┘
//! ```
//!
//! The server's thread and the packet loop share only the device. Each locks it while it changes
//! rings, never while it reads the socket or maps memory. If the device is locked, the loop
//! continues without it. The caller's thread writes to the VMM's eventfds, because a VMM can block
//! such a write.
//!
//! Rings are split rings with indirect descriptors and the event index (virtio 1.2, 2.7). Data in
//! the guest's memory is copied before it is checked, because the guest may change it. Chains are
//! returned in order, in the turn in which they were taken, so a ring continues at its used index
//! after a restart of either side. A handover passes the connection, the memory and the rings to
//! the next daemon ([`VhostPort::go_on`]).

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

/// Guest memory that contains rings.
pub use memory::Memory;

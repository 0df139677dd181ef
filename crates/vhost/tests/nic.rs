//! The NIC of a guest, in virtual time.

mod charged;
mod estate;
mod port;
#[path = "support/ports.rs"]
mod ports;
mod rest;
mod ring;
#[path = "support/shifting.rs"]
mod shifting;
mod support;

//! The NIC of a guest beside those that harm it, in real time.

mod hostile;
#[path = "support/ports.rs"]
mod ports;
mod stall;
mod support;

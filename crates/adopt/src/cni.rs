//! A chained CNI plugin: a container runtime adopts a container when it connects it to a network, and
//! releases it when it disconnects it (<https://www.cni.dev/docs/spec/>, CNI 1.1).
//!
//! A plugin before it in the list (bridge, ptp) makes the interface; [`run`] finds the host's end of it
//! and adopts that by the same plan and journal as `tailbound adopt`. Its result is that of the plugin
//! before. A container has the key that the host's other commands know it by: `pod/UID`, or
//! `container/ID`.
//!
//! The protection is the tightest of the wishes in the network configuration, the runtime's
//! configuration and annotations, `CNI_ARGS`, and a pod's claim: no container raises a limit that the network has.

mod act;
mod call;
mod claim;
mod config;
mod error;
#[cfg(test)]
mod tests;
mod wish;

pub use act::run;
pub use call::Environment;
pub use error::{CniError, Code};

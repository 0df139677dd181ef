//! Guests that are libvirt domains: a domain's metadata contains its guarantees, and requests to
//! the daemon's control socket ([`crate::socket`]) apply them.
//!
//! [`hook()`] implements libvirt's hook for QEMU. [`watch()`] follows changes of a running domain's
//! metadata, for which libvirt calls no hook. Both read a domain from its XML ([`Domain`]), and
//! neither has a state of its own: the state is in libvirt and in the daemon.

mod ask;
mod domain;
mod hook;
mod virsh;
mod watch;

pub use ask::AskError;
pub use domain::{Domain, DomainError, NAMESPACE};
pub use hook::{HookError, hook};
pub use watch::{WatchError, watch};

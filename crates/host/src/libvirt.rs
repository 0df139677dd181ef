//! Guests that are domains of libvirt: a domain's metadata says what it is guaranteed, and
//! the daemon is asked at its control socket ([`crate::socket`]).
//!
//! [`hook()`] does what libvirt's hook for QEMU is called for, [`watch()`] follows metadata that
//! change while a domain runs, as libvirt calls no hook for that. Both read a domain from its
//! XML ([`Domain`]), and neither keeps anything: what is so stands in libvirt and in the
//! daemon.

mod ask;
mod domain;
mod hook;
mod virsh;
mod watch;

pub use ask::AskError;
pub use domain::{Domain, DomainError, NAMESPACE};
pub use hook::{HookError, hook};
pub use watch::{WatchError, watch};

//! Exact integer units for time, size and rate.
//!
//! Read [`Nanos`] first: it is both a moment (on whatever clock the caller
//! uses) and a length of time. [`Bytes`] counts bytes, [`Rate`] bits a second.
//! Arithmetic never goes through floating point, and where a result is not
//! whole the name says which way it is rounded, so that a shaper built on these
//! types loses no remainder without saying so. [`Position`] and [`WireBytes`] count
//! what is on a wire: a moment and a length in the wire's own time.
//!
//! [`exact`] is the arithmetic of wires and token buckets on top of them.
//!
//! `Nanos`, `Bytes` and `Rate` parse from and print as text with their unit: `10ms`, `37500B`,
//! `1.5KB`, `64KiB`, `1Gbit/s`. `KB` is 1000 bytes and `KiB` 1024. Parsing is
//! exact too: `1.5KB` is 1500 bytes, `1.0005KB` is refused. How others write units is read as well
//! where it can mean one thing alone (`10Mbps`, `10mbit`, `100M` of a rate, `15kB`, `5min`); what
//! can mean several is refused with what it may mean.

mod bytes;
pub mod exact;
mod nanos;
#[cfg(feature = "openapi")]
mod openapi;
mod parse;
mod rate;
mod wire;

pub use bytes::Bytes;
pub use nanos::Nanos;
pub use parse::ParseError;
pub use rate::Rate;
pub use wire::{Position, WireBytes};

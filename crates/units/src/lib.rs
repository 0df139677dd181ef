//! Exact integer units for time, size and rate.
//!
//! Use these types for every quantity that a user configures or that a mechanism computes with. Do
//! not use them for statistics: averages and percentiles are floating point elsewhere.
//!
//! Read [`Nanos`] first: it is both a moment (on any clock) and a length of time. [`Bytes`] counts
//! bytes, [`Rate`] bits a second. Arithmetic never uses floating point. If a result is not whole,
//! the name of the method states the rounding, so a shaper built on these types loses no remainder
//! silently. [`Position`] and [`WireBytes`] are a moment and a length in a wire's own time.
//! [`Bursts`] counts the bursts of a sender.
//!
//! [`exact`] is the arithmetic of wires and token buckets on top of these types, [`rounded_up`] the
//! text of bounds.
//!
//! `Nanos`, `Bytes` and `Rate` parse from and print as text with their unit: `10ms`, `37500B`,
//! `1.5KB`, `64KiB`, `1Gbit/s`. `KB` is 1000 bytes and `KiB` 1024. Parsing is exact too: `1.5KB` is
//! 1500 bytes, and `1.0005KB` is refused. Unambiguous spellings of other programs are accepted
//! (`10Mbps`, `10mbit`, `100M` for a rate, `15kB`, `5min`). An ambiguous spelling is refused with
//! its possible meanings.
//!
//! ```
//! use tailbound_units::{Bytes, Nanos, ParseError, Rate};
//!
//! let rate: Rate = "1Gbit/s".parse()?;
//! assert_eq!(rate.time_for(Bytes(1_500)), Nanos::from_micros(12));
//! assert!("10".parse::<Nanos>().is_err(), "a unit is missing");
//! # Ok::<(), ParseError>(())
//! ```

mod bursts;
mod bytes;
pub mod exact;
mod nanos;
#[cfg(feature = "openapi")]
mod openapi;
mod parse;
mod rate;
pub mod rounded_up;
mod wire;

pub use bursts::{Bursts, BurstsError};
pub use bytes::Bytes;
pub use nanos::Nanos;
pub use parse::ParseError;
pub use rate::Rate;
pub use wire::{Position, WireBytes};

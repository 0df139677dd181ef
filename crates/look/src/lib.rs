//! Finds the cause of a guest's slow periods. Pure: evidence in, verdict out; no clock, no I/O.
//!
//! [`Evidence`] is all that was measured of one guest in a window: slow requests, frames that waited
//! in the host's queues, waits of its threads for a CPU, its limits, and what could not be examined.
//! [`judge`] divides each slow period's nanoseconds among [`Cause`]s by intervals, so that the parts
//! sum exactly to the whole, and names the cause of most of the delay if there is one
//! ([`Verdict`]). "I do not know" is an answer. [`worse_first`] is the order of the guests of a
//! host. [`History`] keeps the verdicts of the last hour, bounded.
//!
//! [`Budget`] decides when the measurement is attached, so that it costs a bounded part of a core.
//!
//! Read [`evidence`] first, then [`cause`], then [`divide`].

pub mod budget;
pub mod cause;
pub mod divide;
pub mod evidence;
pub mod history;
pub mod inside;
mod judge;
mod periods;
pub mod record;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod thin;
mod words;

pub use budget::Budget;
pub use cause::{Cause, Kind};
pub use evidence::Evidence;
pub use history::History;
pub use judge::{Basis, Doubt, Finding, Share, Verdict, judge, worse_first};
pub use words::{Remedy, percent};

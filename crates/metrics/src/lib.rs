//! What a part of the host counts, and how that becomes text.
//!
//! A [`Histogram`] counts times at the cost of a shift and an addition, a [`FineHistogram`]
//! tells quantiles. With the
//! feature `text`, [`counter`], [`gauge`], [`histogram`] and
//! [`fine_histogram`] write what was counted in
//! the forms that Prometheus reads. [`check_address`] says
//! where such text may be served.

mod address;
#[cfg(feature = "text")]
mod encode;
mod fine;
mod histogram;

pub use address::{NotLoopback, check_address};
#[cfg(feature = "text")]
pub use encode::{Buckets, Labels, counter, fine_histogram, gauge, histogram};
pub use fine::FineHistogram;
pub use histogram::Histogram;

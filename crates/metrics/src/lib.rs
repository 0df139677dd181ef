//! Histograms, and Prometheus's formats of counts.
//!
//! A [`Histogram`] counts times at the cost of a shift and an addition, a [`FineHistogram`] has
//! quantiles. With the feature `exposition`, an [`Exposition`] is written as [`text()`] or as
//! [`protobuf()`], metric by metric through an [`Encoder`]; a [`Format`] is the one that a scraper
//! requests. [`check_address`] checks the address of a server of metrics. Do not use a
//! [`Histogram`] for exact percentiles: `tailbound-report` has histograms with three significant
//! digits.

mod address;
#[cfg(feature = "exposition")]
mod encode;
mod fine;
#[cfg(feature = "exposition")]
mod format;
mod histogram;
#[cfg(feature = "exposition")]
mod protobuf;

pub use address::{NotLoopback, check_address};
#[cfg(feature = "exposition")]
pub use encode::{
    Encoder, Exposition, Family, Kind, Labels, Number, Unit, counter, gauge, protobuf, text,
};
pub use fine::FineHistogram;
#[cfg(feature = "exposition")]
pub use format::Format;
pub use histogram::Histogram;

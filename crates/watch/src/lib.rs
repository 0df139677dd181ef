//! The guests of a host: their measurement, and their verdicts for all views of them.
//!
//! [`monitor`] measures guests, [`past`] answers from a record, and [`inside`] measures a guest from
//! inside it. A [`Snapshot`] is one moment: [`text`] has its words, [`document`] its JSON, and
//! [`metrics`] its numbers for Prometheus. A [`Board`] holds the last one, and [`Views`] of it are
//! the site of a [`tailbound_serve::Server`].

pub mod counts;
pub mod document;
mod hour;
pub mod inside;
pub mod metrics;
pub mod monitor;
mod page;
pub mod past;
mod snapshot;
pub mod text;
mod views;

pub use counts::Counts;
pub use hour::{GuestHour, GuestHours};
pub use snapshot::{Row, Snapshot, SnapshotDocument};
pub use views::{Board, Views};

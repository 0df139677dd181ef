//! The guests of a host with their verdicts, for all views of them. A [`Snapshot`] is one moment:
//! [`text`] has its words, [`document`] its JSON, and [`metrics`] its numbers for Prometheus. A
//! [`Board`] holds the last one, and [`Views`] of it are the site of a [`tailbound_serve::Server`].

pub mod counts;
pub mod document;
mod hour;
pub mod metrics;
mod page;
mod snapshot;
pub mod text;
mod views;

pub use counts::Counts;
pub use hour::{GuestHour, Hours};
pub use snapshot::{Row, Snapshot, SnapshotDocument};
pub use views::{Board, Views};

//! The guests of a host with their verdicts, for all views of them: a [`Snapshot`] is one moment, [`text`] has its words and [`document`] its JSON. A [`Board`] holds the last one, and [`Views`] of it are the site of a
//! [`server::Server`].

pub mod counts;
pub mod document;
mod hour;
pub mod metrics;
mod page;
pub mod server;
mod snapshot;
pub mod text;
mod views;

pub use counts::Counts;
pub use hour::{GuestHour, Hours};
pub use snapshot::{Row, Snapshot, SnapshotDocument};
pub use views::{Board, Views};

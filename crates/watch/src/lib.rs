//! The guests of a host with their verdicts, for whoever looks: a [`Snapshot`] is what one moment
//! shows, [`text`] has its words and [`document`] its JSON.

pub mod counts;
pub mod document;
mod hour;
mod snapshot;
pub mod text;

pub use counts::Counts;
pub use hour::{GuestHour, Hours};
pub use snapshot::{Row, Snapshot, SnapshotDocument};

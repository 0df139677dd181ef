//! Grids: one experiment with some of its values varied, each several times.
//!
//! Read [`Scenario`] first: from its TOML file to the points of its grid. A point is an
//! experiment's text and a seed, so it is one deterministic call, on any computer. A [`Store`] is a
//! directory with a row for each point, each a file of its own that is written atomically and has a
//! checksum. A run that was killed therefore continues where it stopped, several computers may
//! share a grid, and the report of their rows together equals that of one run
//! ([`Store::write_report`]).

mod error;
mod file;
mod files;
mod read;
mod row;
mod run;
mod scenario;
mod store;
mod summary;
mod table;
#[cfg(test)]
mod tests;
mod vary;

pub use error::GridError;
pub use files::GridFiles;
pub use row::Row;
pub use run::{MissingPoints, Shard, run};
pub use scenario::{GridPoint, Scenario, key};
pub use store::{Manifest, Store};
use summary::summary;
use table::{csv, parquet};
pub use vary::changed;

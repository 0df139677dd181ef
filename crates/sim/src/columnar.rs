//! Parquet: whole numbers of files that anybody wrote, and tables of our own.
//!
//! Nothing that a file says of itself is believed before memory is taken for it: see [`read`].

mod pages;
mod read;
#[cfg(test)]
mod tests;
mod write;

pub use parquet::file::reader::ChunkReader;
pub use read::{Row, Wrong, read};
pub(crate) use write::{Column, table};

/// What a file of Parquet begins with.
pub(crate) const MAGIC: &[u8] = b"PAR1";

//! Parquet: whole numbers and texts of files that anybody wrote, and tables of our own.
//!
//! Nothing that a file says of itself is believed before memory is taken for it: see [`read`].

mod pages;
mod read;
#[cfg(test)]
mod tests;
mod write;

pub use parquet::file::reader::ChunkReader;
pub use read::{Kind, Row, Wrong, read};
pub(crate) use write::{Column, table};

use std::fs::File;
use std::io::{self, Read as _, Seek as _};

/// Whether a file, which is at its beginning, begins as Parquet does. It is there again then.
pub(crate) fn is_it(mut file: &File) -> io::Result<bool> {
    const MAGIC: &[u8] = b"PAR1";
    let mut head = Vec::new();
    file.take(MAGIC.len() as u64).read_to_end(&mut head)?;
    file.rewind()?;
    Ok(head == MAGIC)
}

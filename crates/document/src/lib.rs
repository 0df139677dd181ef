//! TOML files with the locations of their mistakes.
//!
//! A [`Document`] is a file with valid TOML syntax, before it is converted to a type.
//! [`Document::whole`] reads it as one type; [`Document::entries`] reads its sections one by one. A
//! mistake hides no other: a value that does not fit is left out, and the rest is read again. Do
//! not use this crate to change files: it only reads them.
//!
//! A contradiction between valid values is a [`Problem`]: it names the value by its path, and
//! [`Document::locate`] turns it into a [`Mistake`] with a line and a column. All mistakes of a
//! file are reported together, in the order of their locations, each as `FILE:LINE:COLUMN: what is
//! wrong; what would be right` ([`DocumentError`]).

mod document;
mod error;
mod location;
mod recover;
mod step;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod words;

pub use document::{Document, Entry};
pub use error::{DocumentError, Mistake, Problem};
pub use location::Location;
pub use step::Step;
pub use words::unknown_word;

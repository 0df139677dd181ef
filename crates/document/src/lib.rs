//! TOML files, and where in them something is wrong.
//!
//! A [`Document`] is a file that is TOML and has not been given a meaning yet.
//! [`Document::whole`] reads it as one type; [`Document::entries`] reads its
//! sections one by one. A mistake hides no other: a value that does not fit is left
//! out, and the rest is read again.
//! What contradicts itself in values that could be read is a [`Problem`]: it names
//! the value by its path, and [`Document::locate`] turns it into a [`Mistake`] with
//! a line and a column. All mistakes of a file are reported at once, in the order
//! in which they stand there, each as `FILE:LINE:COLUMN: what is wrong; what would
//! be right` ([`DocumentError`]).

mod document;
mod error;
mod location;
mod recover;
mod step;
mod words;

pub use document::{Document, Entry};
pub use error::{DocumentError, Mistake, Problem};
pub use location::Location;
pub use step::Step;
pub use words::unknown_word;

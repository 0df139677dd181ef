//! TOML files, and where in them something is wrong.
//!
//! A [`Document`] is a file that is TOML and has not been given a meaning yet.
//! [`Document::whole`] reads it as one type; [`Document::entries`] reads its
//! sections one by one, so that a mistake in one does not hide those in the others.
//! What contradicts itself in values that could be read is a [`Problem`]: it names
//! the value by its path, and [`Document::locate`] turns it into a [`Mistake`] with
//! a line and a column. All mistakes of a file are reported at once, in the order
//! in which they stand there, each as `FILE:LINE:COLUMN: what is wrong; what would
//! be right` ([`DocumentError`]).

mod document;
mod error;
mod location;
mod step;

pub use document::{Document, Entry, unknown_word};
pub use error::{DocumentError, Mistake, Problem};
pub use location::Location;
pub use step::Step;

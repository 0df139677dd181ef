//! The path to a value in a file.

/// A step on the path to a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Into a table, by a key that the program knows.
    Key(&'static str),
    /// Into a table, by a key that the file chose.
    Name(String),
    /// Into an array, counted from 0.
    Index(usize),
}

//! The forms of what is printed.

/// What to print.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Form {
    /// The verdict and a table for people
    #[default]
    Text,
    /// The verdict line alone
    Line,
    /// One JSON document with a schema version
    Json,
    /// Lines of JSON while it runs, the document last
    Jsonl,
}

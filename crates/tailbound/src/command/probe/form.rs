//! Output formats.

/// The output format.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Form {
    /// The verdict and a table for people
    #[default]
    Text,
    /// The verdict line alone
    Line,
    /// One JSON document with a schema version
    Json,
    /// One JSON line for each interval, then the document
    Jsonl,
}

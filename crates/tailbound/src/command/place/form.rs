//! The form of what is printed.

/// What `--output` takes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Output {
    /// Text for people
    #[default]
    Text,
    /// One JSON document with a schema version; the API's own, where it was asked
    Json,
}

//! The form of what is printed.

/// What `--output` takes. The API's documents have no schema number of their
/// own: that is the `/v1` of their paths.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Output {
    /// Text for people
    #[default]
    Text,
    /// One JSON document: the API's own, where it was asked
    Json,
}

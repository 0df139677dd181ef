//! Output formats.

/// The output formats of `tailbound place`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Output {
    /// Text for people
    #[default]
    Text,
    /// One JSON document with a schema version; for API requests, the API's document
    Json,
}

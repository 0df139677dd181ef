//! What every command that prints a table shares.

use serde::Serialize;
use std::io::{Write as _, stdout};

/// The form of a table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Output {
    /// Text for people
    #[default]
    Text,
    /// One JSON document with a schema version
    Json,
}

/// `document` as indented JSON with a final newline.
pub(super) fn json(document: &impl Serialize) -> String {
    let mut text = serde_json::to_string_pretty(document)
        .expect("documents have strings as keys and values that serialize");
    text.push('\n');
    text
}

/// To standard output; a reader that went away (`| head`) is no error.
pub(super) fn print(text: &str) {
    let _ = stdout().write_all(text.as_bytes());
}

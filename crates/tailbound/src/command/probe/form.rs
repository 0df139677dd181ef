//! The forms of what is printed.

use crate::command::output::print;
use serde::Serialize;
use std::io::{Write as _, stdout};

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

/// Prints one line of JSON at once.
pub(super) fn line(document: &impl Serialize) {
    let mut text = serde_json::to_string(document)
        .expect("documents have strings as keys and values that serialize");
    text.push('\n');
    print(&text);
    // A reader that went away is no error.
    let _ = stdout().flush();
}

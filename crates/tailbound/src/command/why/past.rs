//! `tailbound why GUEST --at TIME FILE`: the answer from a record, on any computer.

use super::SCHEMA;
use crate::command::output::{self, Output};
use crate::exit::Failure;
use serde::Serialize;
use std::path::Path;
use tailbound_agent::text::printable;
use tailbound_look::Verdict;
use tailbound_units::Nanos;
use tailbound_watch::document::VerdictDocument;
use tailbound_watch::past::{self, At};
use tailbound_watch::text;

/// A guest of a record.
#[derive(Debug, Serialize)]
struct GuestDocument<'a> {
    key: &'a str,
    name: &'a str,
    kind: &'a str,
}

/// The source of the answer.
#[derive(Debug, Serialize)]
struct RecordDocument<'a> {
    host: &'a str,
    tailbound: &'a str,
    from: String,
    until: String,
    slices: usize,
    slices_with_guest: usize,
}

#[derive(Debug, Serialize)]
struct Document<'a> {
    guest: GuestDocument<'a>,
    record: RecordDocument<'a>,
    #[serde(flatten)]
    verdict: VerdictDocument,
    notes: &'a [String],
}

/// Answers from a file, and prints the answer.
pub(super) fn answer(
    guest: &str,
    at: At,
    window: Nanos,
    path: &Path,
    form: Output,
) -> Result<Verdict, Failure> {
    let (_, record) = past::read(path).map_err(Failure::new)?;
    let named = |error: String| {
        let path = printable(&path.to_string_lossy());
        Failure::new(format!("{path}: {error}"))
    };
    let answer = past::answer(&record, guest, at, window).map_err(named)?;
    let clock = |wall| answer.shown(wall, "%H:%M:%S");
    let when = format!(
        "between {} and {} ({})",
        clock(answer.wall.0),
        clock(answer.wall.1),
        answer.shown(answer.wall.0, "%Y-%m-%d %:z")
    );
    output::print(&match form {
        Output::Text => text::why(
            &answer.verdict,
            &answer.verdict.sentence_in(&when),
            answer.notes.iter(),
        ),
        Output::Json => {
            let rfc3339 = |wall| answer.shown(wall, "%Y-%m-%dT%H:%M:%S%.9f%:z");
            let document = Document {
                guest: GuestDocument {
                    key: &answer.key,
                    name: &answer.name,
                    kind: &answer.kind,
                },
                record: RecordDocument {
                    host: &answer.host,
                    tailbound: &answer.program,
                    from: rfc3339(answer.wall.0),
                    until: rfc3339(answer.wall.1),
                    slices: answer.slices.0,
                    slices_with_guest: answer.slices.1,
                },
                verdict: VerdictDocument::when(&answer.verdict, &when),
                notes: &answer.notes,
            };
            output::json("why", SCHEMA, &document)
        }
    });
    Ok(answer.verdict)
}

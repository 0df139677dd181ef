//! The result of an adoption as text and as JSON.

use super::super::output::{self, Output};
use super::SCHEMA;
use crate::exit::Exit;
use serde::Serialize;
use std::fmt::Write as _;
use tailbound_adopt::{Entry, Step};

/// The result for one guest.
#[derive(Debug)]
pub(super) enum Outcome {
    /// `--dry-run`.
    Planned,
    /// Something was changed.
    Adopted,
    /// All was there already.
    Unchanged,
    /// The guest cannot be adopted, for this reason.
    Refused(String),
    /// A step failed.
    Failed(String),
    /// The guest does not run.
    Absent,
    /// The policy has nothing for the guest any more, or the guest has gone.
    Released,
}

impl Outcome {
    const fn word(&self) -> &'static str {
        match self {
            Self::Planned => "planned",
            Self::Adopted => "adopted",
            Self::Unchanged => "unchanged",
            Self::Refused(_) => "refused",
            Self::Failed(_) => "failed",
            Self::Absent => "absent",
            Self::Released => "released",
        }
    }

    fn reason(&self) -> Option<&str> {
        match self {
            Self::Refused(why) | Self::Failed(why) => Some(why),
            _ => None,
        }
    }

    const fn exit(&self) -> Exit {
        match self {
            Self::Planned | Self::Adopted | Self::Unchanged | Self::Absent | Self::Released => {
                Exit::Holds
            }
            Self::Refused(_) => Exit::DoesNotHold,
            Self::Failed(_) => Exit::CouldNotRun,
        }
    }
}

/// One guest.
#[derive(Debug)]
pub(super) struct GuestReport {
    pub(super) guest: String,
    pub(super) key: String,
    pub(super) outcome: Outcome,
    pub(super) entry: Option<Entry>,
    pub(super) notes: Vec<String>,
}

/// All guests.
#[derive(Debug)]
pub(super) struct Report {
    is_dry: bool,
    guests: Vec<GuestReport>,
}

#[derive(Debug, Serialize)]
struct Document<'d> {
    dry_run: bool,
    guests: Vec<GuestDocument<'d>>,
}

#[derive(Debug, Serialize)]
struct GuestDocument<'d> {
    guest: &'d str,
    key: &'d str,
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'d str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    uplink: Option<&'d str>,
    steps: &'d [Step],
    notes: &'d [String],
}

impl Report {
    pub(super) fn new(is_dry: bool, guests: Vec<GuestReport>) -> Self {
        Self { is_dry, guests }
    }

    /// Prints the report and returns the worst outcome.
    pub(super) fn print(&self, form: Output) -> Exit {
        output::print(&match form {
            Output::Json => output::json("adopt", SCHEMA, &self.document()),
            Output::Text => self.text(),
        });
        let exits = self.guests.iter().map(|guest| guest.outcome.exit());
        exits.max().unwrap_or(Exit::Holds)
    }

    fn document(&self) -> Document<'_> {
        let guests = self.guests.iter().map(|report| GuestDocument {
            guest: &report.guest,
            key: &report.key,
            outcome: report.outcome.word(),
            reason: report.outcome.reason(),
            uplink: report.entry.as_ref().and_then(|it| it.uplink.as_deref()),
            steps: report.entry.as_ref().map_or(&[], |it| &it.steps),
            notes: &report.notes,
        });
        Document {
            dry_run: self.is_dry,
            guests: guests.collect(),
        }
    }

    fn text(&self) -> String {
        let mut out = String::new();
        for report in &self.guests {
            let (name, word) = (&report.guest, report.outcome.word());
            // Writing to a String does not fail.
            let _ = match report.outcome.reason() {
                Some(why) => writeln!(out, "{name}: {word}: {why}"),
                None => writeln!(out, "{name}: {word}"),
            };
            if let Some(entry) = &report.entry {
                if let Some(uplink) = &entry.uplink {
                    let _ = writeln!(out, "  uplink: {uplink}");
                }
                for step in &entry.steps {
                    let _ = writeln!(out, "  {step}\n    undo: {}", step.undo());
                }
            }
            for note in &report.notes {
                let _ = writeln!(out, "  note: {note}");
            }
            if matches!(report.outcome, Outcome::Adopted | Outcome::Unchanged) {
                let _ = writeln!(out, "  undo: tailbound release {name}");
            }
        }
        if self.guests.is_empty() {
            out += "no guest\n";
        }
        if self.is_dry {
            out += "nothing was changed (--dry-run)\n";
        }
        out
    }
}

//! `tailbound release`: undoes adoptions.

use super::adopt::Places;
use super::output::{self, Output};
use crate::exit::{Exit, Failure};
use serde::Serialize;
use std::fmt::Write as _;
use tailbound_adopt::live::Live;
use tailbound_adopt::request::fits;
use tailbound_adopt::{Action, Entry, Journal as _, Released, Step, carry};

/// Version of the JSON document's format.
const SCHEMA: u32 = 1;

/// Arguments of `tailbound release`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Detaches the programs of adopted guests, restores the queueing disciplines of their \
    interfaces and, with the last guest, of the uplink, and removes all pins. An interface \
    that took the place of an adopted one is not touched. After a reboot nothing is left in the kernel, \
    and the guest is only forgotten. GUEST is a name or key, with * for any text. Example: tailbound \
    release db-3. Exit code: 0 all is as before; 1 a step could not be undone, and can be tried again; \
    2 no such guest is adopted, or the command could not run."
)]
pub(crate) struct Args {
    /// The guests
    #[arg(value_name = "GUEST", required_unless_present = "all")]
    guests: Vec<String>,
    /// Release all adopted guests
    #[arg(long, conflicts_with = "guests")]
    all: bool,
    #[command(flatten)]
    places: Places,
    /// The form of the output
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

#[derive(Debug, Serialize)]
struct Document {
    guests: Vec<GuestDocument>,
}

#[derive(Debug, Serialize)]
struct GuestDocument {
    guest: String,
    key: String,
    undone: Vec<Step>,
    shared: Vec<Step>,
    notes: Vec<String>,
    failed: Vec<String>,
}

impl Args {
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        let mut journal = self.places.journal()?;
        let entries = journal.entries()?;
        let selected = self.selected(&entries)?;
        let here = Live::here()?;
        let mut live = self.places.live();
        let mut guests = Vec::new();
        for entry in selected {
            let released = carry::release(&mut live, &mut journal, &here, &entry.key)?;
            guests.push(GuestDocument::of(entry, released));
        }
        let is_whole = guests.iter().all(|guest| guest.failed.is_empty());
        output::print(&match self.output {
            Output::Json => output::json("release", SCHEMA, &Document { guests }),
            Output::Text => text(&guests),
        });
        Ok(Exit::holds(is_whole))
    }

    fn selected<'e>(&self, entries: &'e [Entry]) -> Result<Vec<&'e Entry>, Failure> {
        if self.all {
            return Ok(entries.iter().collect());
        }
        let is_meant = |pattern: &String, entry: &Entry| {
            let guests = entry.steps.iter();
            let mut guests = guests.filter(|it| matches!(it.action, Action::Guest { .. }));
            fits(pattern, &entry.key)
                || fits(pattern, &entry.name)
                || guests.any(|step| step.port.name == *pattern)
        };
        for pattern in &self.guests {
            if !entries.iter().any(|entry| is_meant(pattern, entry)) {
                let names: Vec<_> = entries.iter().map(|entry| entry.name.as_str()).collect();
                let adopted = match names.as_slice() {
                    [] => "no guest is".to_owned(),
                    names => format!("adopted: {}", names.join(", ")),
                };
                return Err(Failure::new(format!(
                    "no guest \"{pattern}\" is adopted; {adopted}"
                )));
            }
        }
        let selected = entries.iter().filter(|entry| {
            let mut patterns = self.guests.iter();
            patterns.any(|pattern| is_meant(pattern, entry))
        });
        Ok(selected.collect())
    }
}

impl GuestDocument {
    fn of(entry: &Entry, released: Released) -> Self {
        Self {
            guest: entry.name.clone(),
            key: entry.key.clone(),
            undone: released.undone,
            shared: released.shared,
            notes: released.notes,
            failed: released.failed,
        }
    }
}

fn text(guests: &[GuestDocument]) -> String {
    let mut out = String::new();
    for guest in guests {
        let state = if guest.failed.is_empty() {
            "released"
        } else {
            "NOT released"
        };
        // Writing to a String does not fail.
        let _ = writeln!(out, "{}: {state}", guest.guest);
        for step in &guest.undone {
            let _ = writeln!(out, "  {}: {}", step.port.name, step.undo());
        }
        for step in &guest.shared {
            let name = &step.port.name;
            let _ = writeln!(out, "  {name}: stays, other guests need it");
        }
        for note in &guest.notes {
            let _ = writeln!(out, "  note: {note}");
        }
        for failed in &guest.failed {
            let _ = writeln!(out, "  failed: {failed}");
        }
    }
    if guests.is_empty() {
        out += "no guest is adopted\n";
    }
    out
}

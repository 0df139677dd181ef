//! `tailbound why`: the cause of a guest's slow periods.

use super::look::{GuestDocument, MIN_WAIT_OF_ONE, Sight, VerdictDocument};
use super::output::{self, Output};
use crate::exit::{Exit, Failure};
use serde::Serialize;
use std::fmt::Write as _;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tailbound_look::{Finding, Verdict};
use tailbound_units::Nanos;

/// The version of the JSON document's shape.
const SCHEMA: u32 = 1;

/// The windows that can be judged.
const WINDOWS: RangeInclusive<Nanos> = Nanos::from_secs(1)..=Nanos::from_secs(3_600);

/// Arguments of `tailbound why`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Read-only: the guest and the host stay as they are. GUEST is the name of a libvirt \
    domain, NAMESPACE/NAME of a pod, the name or id of a container, the name of a network namespace, \
    or a key as `tailbound watch` lists it. Example: tailbound why db-3 --for 30s. Exit code: 0 a \
    cause is named, or nothing was slow; 2 the cause is not known, or the guest cannot be examined."
)]
pub(crate) struct Args {
    /// The guest
    #[arg(value_name = "GUEST")]
    guest: String,
    /// The time for which the guest is examined, 1s to 1h
    #[arg(long = "for", value_name = "TIME", default_value = "60s", value_parser = window)]
    window: Nanos,
    /// The form of the output
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

/// Reads the length of a window.
pub(super) fn window(text: &str) -> Result<Nanos, String> {
    let window: Nanos = text.parse().map_err(|error| format!("{error}"))?;
    if WINDOWS.contains(&window) {
        return Ok(window);
    }
    Err(format!("use {} to {}", WINDOWS.start(), WINDOWS.end()))
}

/// The document that `--output json` prints.
#[derive(Debug, Serialize)]
struct Document<'d> {
    guest: GuestDocument<'d>,
    #[serde(flatten)]
    verdict: VerdictDocument,
    notes: Vec<&'d String>,
}

impl Args {
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        let mut sight = Sight::open(MIN_WAIT_OF_ONE)?;
        let key = Arc::clone(&sight.inventory().find(&self.guest)?.key);
        if let Some(why) = sight.blind() {
            return Err(Failure::new(why));
        }
        sight.choose(&key);
        let begin = Instant::now();
        sight.run_until(begin + Duration::from(self.window))?;
        let guest = sight.inventory().guests();
        let guest = guest.iter().find(|guest| guest.key == key);
        let Some(guest) = guest else {
            return Err(Failure::new(format!(
                "{} ended while it was examined",
                self.guest
            )));
        };
        let verdict = sight.judge(guest, self.window);
        let notes: Vec<_> = sight.notes().collect();
        output::print(&match self.output {
            Output::Json => {
                let document = Document {
                    guest: GuestDocument::of(guest),
                    verdict: VerdictDocument::of(&verdict),
                    notes,
                };
                output::json("why", SCHEMA, &document)
            }
            Output::Text => text(&verdict, guest.notes.iter().chain(notes)),
        });
        Ok(match verdict.finding {
            Finding::Unknown(_) => Exit::CouldNotRun,
            Finding::Because(_) | Finding::NothingSlow => Exit::Holds,
        })
    }
}

/// The sentence, the evidence, and the command that would help.
fn text<'n>(verdict: &Verdict, notes: impl Iterator<Item = &'n String>) -> String {
    let mut out = format!("{}\n", verdict.sentence());
    // Writing to a String does not fail.
    for line in verdict.evidence() {
        let _ = writeln!(out, "  {line}");
    }
    for note in notes {
        let _ = writeln!(out, "  Note: {note}.");
    }
    match verdict.remedy() {
        Some(remedy) => match remedy.command {
            Some(command) => {
                let _ = writeln!(out, "To fix it: {command}\n  Cost: {}.", remedy.cost);
            }
            None => {
                let _ = writeln!(out, "To fix it: {}.", remedy.cost);
            }
        },
        None if verdict.finding == Finding::NothingSlow => {}
        None => out += "To find out more: examine it for longer (--for 10m).\n",
    }
    out
}

//! `tailbound why`: the cause of a guest's slow periods.

use super::look::Sight;
use super::output::{self, Output};
use crate::exit::{Exit, Failure};
use serde::Serialize;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tailbound_look::Finding;
use tailbound_units::Nanos;
use tailbound_watch::document::{GuestDocument, VerdictDocument};
use tailbound_watch::text;

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
    guest: GuestDocument,
    #[serde(flatten)]
    verdict: VerdictDocument,
    notes: Vec<&'d String>,
}

impl Args {
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        let mut sight = Sight::open()?;
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
                    verdict: VerdictDocument::of(&verdict, usize::MAX),
                    notes,
                };
                output::json("why", SCHEMA, &document)
            }
            Output::Text => text::why(&verdict, guest.notes.iter().chain(notes)),
        });
        Ok(match verdict.finding {
            Finding::Unknown(_) => Exit::CouldNotRun,
            Finding::Because(_) | Finding::NothingSlow => Exit::Holds,
        })
    }
}

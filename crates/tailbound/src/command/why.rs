//! `tailbound why`: the cause of a guest's slow periods.

mod inside;
mod past;

use super::output::{self, Output};
use crate::exit::{Exit, Failure};
use serde::Serialize;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tailbound_look::{Finding, Verdict};
use tailbound_units::Nanos;
use tailbound_watch::document::{GuestDocument, VerdictDocument};
use tailbound_watch::monitor::{GuestMonitor, MIN_WAIT_OF_ONE};
use tailbound_watch::past::At;
use tailbound_watch::text;

/// Version of the JSON document's format.
const SCHEMA: u32 = 1;

/// Limits of the windows that can be judged.
const WINDOWS: RangeInclusive<Nanos> = Nanos::from_secs(1)..=Nanos::from_secs(3_600);

/// Arguments of `tailbound why`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Read-only: the guest and the host stay as they are. GUEST is the name of a libvirt \
    domain, NAMESPACE/NAME of a pod, the name or id of a container, the name of a network namespace, \
    or a key as `tailbound watch` lists it. Example: tailbound why db-3 --for 30s. With --at, the \
    answer is from a file that `tailbound watch --record FILE` wrote, on any machine and by any user. \
    TIME is 03:12, 2026-01-31T03:12, each by the clock of the recorded host, or a time as in RFC 3339; \
    the window begins there, and is widened to whole slices of 10 s. Exit code: 0 a cause is named, \
    or nothing was slow; 2 the cause is not known, the guest cannot be examined, or the file does \
    not have it."
)]
pub(crate) struct Args {
    /// The guest
    #[arg(value_name = "GUEST", required_unless_present = "inside")]
    guest: Option<String>,
    /// The file that has the answer, with --at
    #[arg(value_name = "FILE", requires = "at")]
    record: Option<PathBuf>,
    /// Examine this guest from inside, without privilege: late wakes, steal, quota, CPU use,
    /// retransmissions
    #[arg(long = "self", conflicts_with_all = ["guest", "record", "at"])]
    inside: bool,
    /// The begin of the window in FILE
    #[arg(long, value_name = "TIME", requires = "record")]
    at: Option<At>,
    /// The time for which the guest is examined, 1s to 1h
    #[arg(long = "for", value_name = "TIME", default_value = "60s", value_parser = window)]
    window: Nanos,
    /// The form of the output
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

/// Parses the length of a window.
pub(super) fn window(text: &str) -> Result<Nanos, String> {
    let window: Nanos = text.parse().map_err(|error| format!("{error}"))?;
    if WINDOWS.contains(&window) {
        return Ok(window);
    }
    Err(format!("use {} to {}", WINDOWS.start(), WINDOWS.end()))
}

/// JSON document of `--output json`.
#[derive(Debug, Serialize)]
struct Document<'d> {
    guest: GuestDocument,
    #[serde(flatten)]
    verdict: VerdictDocument,
    notes: Vec<&'d String>,
}

impl Args {
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        let Some(guest_name) = &self.guest else {
            return Ok(inside::answer(self.window, self.output));
        };
        if let (Some(at), Some(file)) = (self.at, &self.record) {
            let verdict = past::answer(guest_name, at, self.window, file, self.output)?;
            return Ok(exit(&verdict));
        }
        let mut monitor = GuestMonitor::open(MIN_WAIT_OF_ONE, self.window, &super::version())?;
        let key = Arc::clone(&monitor.inventory().find(guest_name)?.key);
        if let Some(why) = monitor.unmeasurable() {
            return Err(Failure::new(why));
        }
        monitor.choose(&key);
        let begin = Instant::now();
        monitor.run_window(begin + Duration::from(self.window))?;
        let judged = monitor.judge_all(self.window).pop();
        let Some((guest, verdict)) = judged else {
            return Err(Failure::new(format!(
                "{guest_name} ended while it was examined"
            )));
        };
        let notes: Vec<_> = monitor.notes().collect();
        output::print(&match self.output {
            Output::Json => {
                let document = Document {
                    guest: GuestDocument::of(guest),
                    verdict: VerdictDocument::of(&verdict, usize::MAX),
                    notes,
                };
                output::json("why", SCHEMA, &document)
            }
            Output::Text => text::why(
                &verdict,
                &verdict.sentence(),
                guest.notes.iter().chain(notes),
            ),
        });
        Ok(exit(&verdict))
    }
}

fn exit(verdict: &Verdict) -> Exit {
    match verdict.finding {
        Finding::Unknown(_) => Exit::CouldNotRun,
        Finding::Because(_) | Finding::NothingSlow => Exit::Holds,
    }
}

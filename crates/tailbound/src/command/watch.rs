//! `tailbound watch`: the guests of this host, the slowest first.

use super::look::{GuestDocument, MIN_WAIT, Sight, VerdictDocument, cpu_time};
use super::output::{self, Output};
use super::why::window;
use crate::exit::{Exit, Failure};
use serde::Serialize;
use std::fmt::Write as _;
use std::io::{IsTerminal as _, stdout};
use std::time::{Duration, Instant};
use tailbound_agent::inventory::Guest;
use tailbound_look::{Finding, Verdict, percent, rank};
use tailbound_units::Nanos;

/// The version of the JSON document's shape.
const SCHEMA: u32 = 1;

/// The time between two drawings of the table.
const DRAW: Duration = Duration::from_secs(1);

/// Clears the terminal and goes to its first column.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// Arguments of `tailbound watch`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Read-only: guests and the host stay as they are. SLOW is the number of slow periods \
    in the window (waits for a CPU of 1 ms and longer), DELAY their sum, SHARE the part of the \
    delay that the cause has. `tailbound why GUEST` has the evidence and the command that would \
    help. Ctrl-C ends it. Exit code: 0 shown; 2 the host cannot be examined, or there is no \
    terminal."
)]
pub(crate) struct Args {
    /// The window that is judged, 1s to 1h; with --once it is printed when it is over
    #[arg(long = "for", value_name = "TIME", default_value = "60s", value_parser = window)]
    window: Nanos,
    /// Print one table, after one window, and end
    #[arg(long)]
    once: bool,
    /// The form of the output; json: once
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

/// The document that `--output json` prints.
#[derive(Debug, Serialize)]
struct Document<'d> {
    window_ns: u64,
    /// The CPU time that this program took.
    cpu_time_ns: u128,
    guests: Vec<Row<'d>>,
    notes: Vec<&'d String>,
}

/// A guest with its verdict.
#[derive(Debug, Serialize)]
struct Row<'d> {
    guest: GuestDocument<'d>,
    verdict: VerdictDocument,
}

impl Args {
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        let once = self.once || self.output == Output::Json;
        if !once && !stdout().is_terminal() {
            return Err(Failure::new("there is no terminal; use --once"));
        }
        let mut sight = Sight::open(MIN_WAIT)?;
        if let Some(why) = sight.blind() {
            return Err(Failure::new(why));
        }
        let begin = Instant::now();
        if once {
            sight.run_until(begin + Duration::from(self.window))?;
            self.print(&sight, self.window);
            return Ok(Exit::Holds);
        }
        loop {
            sight.run_until(Instant::now() + DRAW)?;
            sight.forget(self.window);
            let window = Nanos::from(begin.elapsed()).min(self.window);
            let cost = cpu_time().as_secs_f64() / begin.elapsed().as_secs_f64();
            output::print(&format!(
                "{CLEAR}{}\ntailbound takes {:.1} % of a CPU. Ctrl-C ends it.\n",
                table(&sight, window),
                100.0 * cost
            ));
        }
    }

    fn print(&self, sight: &Sight, window: Nanos) {
        if self.output == Output::Text {
            return output::print(&table(sight, window));
        }
        let guests = ranked(sight, window);
        let rows = guests.iter().map(|(guest, verdict)| Row {
            guest: GuestDocument::of(guest),
            verdict: VerdictDocument::of(verdict),
        });
        let document = Document {
            window_ns: window.0,
            cpu_time_ns: cpu_time().as_nanos(),
            guests: rows.collect(),
            notes: sight.notes().collect(),
        };
        output::print(&output::json("watch", SCHEMA, &document));
    }
}

/// All guests with their verdicts, the slowest first.
fn ranked(sight: &Sight, window: Nanos) -> Vec<(&Guest, Verdict)> {
    let guests = sight.inventory().guests();
    let mut judged: Vec<_> = guests
        .iter()
        .map(|guest| (guest, sight.judge(guest, window)))
        .collect();
    // Names of verdicts are unique, so they find their guests again.
    let mut verdicts: Vec<_> = judged.iter().map(|(_, verdict)| verdict.clone()).collect();
    rank(&mut verdicts);
    let place = |name: &str| verdicts.iter().position(|verdict| verdict.guest == name);
    judged.sort_by_key(|(_, verdict)| place(&verdict.guest));
    judged
}

fn table(sight: &Sight, window: Nanos) -> String {
    let guests = ranked(sight, window);
    let mut out = String::new();
    if guests.is_empty() {
        out += "no domain, pod, container, VMM or named network namespace runs here\n";
    } else {
        let head = [
            "GUEST", "KIND", "SLOW", "DELAY", "LONGEST", "SHARE", "CAUSE",
        ];
        let mut rows = vec![head.map(str::to_owned)];
        rows.extend(guests.iter().map(|(guest, verdict)| row(guest, verdict)));
        let mut widths = [0; 7];
        for row in &rows {
            for (width, field) in widths.iter_mut().zip(row) {
                *width = (*width).max(field.chars().count());
            }
        }
        for row in &rows {
            let fields = row.iter().zip(widths);
            let mut line = String::new();
            // Writing to a String does not fail.
            for (field, width) in fields {
                let _ = write!(line, "{field:<width$}  ");
            }
            let _ = writeln!(out, "{}", line.trim_end());
        }
        let unexamined = guests.first().map(|(_, verdict)| &verdict.unexamined);
        for (part, why) in unexamined.into_iter().flatten() {
            let _ = writeln!(out, "Not examined: {part} ({why}).");
        }
    }
    for note in sight.notes() {
        let _ = writeln!(out, "Note: {note}.");
    }
    out
}

fn row(guest: &Guest, verdict: &Verdict) -> [String; 7] {
    let (cause, share) = match &verdict.finding {
        Finding::NothingSlow => ("nothing was slow".to_owned(), String::new()),
        Finding::Unknown(_) => ("not known".to_owned(), String::new()),
        Finding::Because(cause) => {
            let by = cause.by.as_ref().map(|by| format!(" {by}"));
            (
                format!("{}{}", cause.kind.name(), by.unwrap_or_default()),
                percent(verdict.time(cause.kind), verdict.judged_delay),
            )
        }
    };
    [
        verdict.guest.clone(),
        guest.identity.kind().to_owned(),
        verdict.slow.to_string(),
        format!("{:.1} ms", verdict.delay.as_millis_f64()),
        format!("{:.1} ms", verdict.longest.as_millis_f64()),
        share,
        cause,
    ]
}

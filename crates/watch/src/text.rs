//! The words about guests: cells of a table, and the answer to why a guest is slow.

use crate::hour::GuestHour;
use crate::snapshot::Row;
use std::fmt::Write as _;
use tailbound_look::{Finding, Verdict, percent};
use tailbound_units::Nanos;

/// Causes that the lines of the last hour list.
const MAX_LISTED: usize = 4;

/// The heads of the cells of a guest.
pub const HEADS: [&str; 7] = [
    "GUEST", "KIND", "SLOW", "DELAY", "LONGEST", "SHARE", "CAUSE",
];

/// A time in milliseconds.
pub fn milliseconds(time: Nanos) -> String {
    format!("{:.1} ms", time.as_millis_f64())
}

/// The cells of a guest.
pub fn cells(row: &Row) -> [String; HEADS.len()] {
    let verdict = row.verdict();
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
        row.guest().kind().to_owned(),
        verdict.slow.to_string(),
        milliseconds(verdict.delay),
        milliseconds(verdict.longest),
        share,
        cause,
    ]
}

/// A sentence, the evidence, and the command that would help.
pub fn why<'n>(
    verdict: &Verdict,
    sentence: &str,
    notes: impl Iterator<Item = &'n String>,
) -> String {
    let mut out = format!("{sentence}\n");
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

/// The cause of the delay in the last hour, in short; `None` if nothing was slow.
pub fn earlier(hour: &GuestHour) -> Option<String> {
    match &hour.summary().finding {
        Finding::NothingSlow => None,
        Finding::Unknown(_) => Some("not known (last hour)".to_owned()),
        Finding::Because(cause) => {
            let by = cause.by.as_ref().map(|by| format!(" {by}"));
            let by = by.unwrap_or_default();
            Some(format!("{}{by} (last hour)", cause.kind.name()))
        }
    }
}

/// The last hour of a guest in a few lines.
pub fn hour(hour: &GuestHour) -> String {
    let summary = hour.summary();
    let examined = hour.examined().0.div_ceil(60_000_000_000);
    let plural = if examined == 1 { "" } else { "s" };
    let mut out = format!("Last hour ({examined} minute{plural} of it were examined):");
    if summary.slow == 0 {
        return out + " nothing was slow.\n";
    }
    // Writing to a String does not fail.
    let _ = writeln!(
        out,
        " {} slow periods, {} in all, the longest {}.",
        summary.slow,
        milliseconds(summary.delay),
        milliseconds(summary.longest)
    );
    for share in summary.shares.iter().take(MAX_LISTED) {
        let by = share.cause.by.as_ref().map(|by| format!(" {by}"));
        let _ = writeln!(
            out,
            "  {} {}{}",
            percent(share.time, summary.judged_delay),
            share.cause.kind.name(),
            by.unwrap_or_default()
        );
    }
    out
}

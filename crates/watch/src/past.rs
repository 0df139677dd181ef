//! The answer about a guest from a record, on any computer.
//!
//! [`read`] reads a record, and [`answer`] judges a guest in a window of it.

use crate::monitor::contents;
use chrono::{DateTime, FixedOffset, NaiveDateTime, NaiveTime, Offset as _, TimeDelta};
use rustix::fs::{Mode, OFlags};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use tailbound_agent::text::printable;
use tailbound_look::record::{Entry, FILE_SIZE, Record, RecordError, Wall};
use tailbound_look::{Evidence, Verdict, judge};
use tailbound_units::Nanos;

/// Guests, and times, that an error lists.
const MAX_LISTED: usize = 20;
const MAX_SPANS: usize = 4;

/// A moment as a person types it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    /// A time of the day, by the recorded host's clock: the last one in the record.
    Clock(NaiveTime),
    /// A day and a time, by the recorded host's clock.
    Local(NaiveDateTime),
    /// A moment (RFC 3339).
    Exact(DateTime<FixedOffset>),
}

impl std::str::FromStr for At {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(exact) = DateTime::parse_from_rfc3339(text) {
            return Ok(Self::Exact(exact));
        }
        for form in ["%H:%M", "%H:%M:%S"] {
            if let Ok(time) = NaiveTime::parse_from_str(text, form) {
                return Ok(Self::Clock(time));
            }
        }
        for form in ["%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S"] {
            let text = text.replacen(' ', "T", 1);
            if let Ok(time) = NaiveDateTime::parse_from_str(&text, form) {
                return Ok(Self::Local(time));
            }
        }
        Err("use a time such as 03:12, 03:12:30, 2026-01-31T03:12 or 2026-01-31T03:12:00Z".into())
    }
}

/// A moment in words, in the recorded host's local time.
fn shown(wall: Wall, offset: FixedOffset, form: &str) -> String {
    let moment = DateTime::from_timestamp_nanos(wall.0).with_timezone(&offset);
    moment.format(form).to_string()
}

fn zone(seconds: i32) -> FixedOffset {
    let zone = FixedOffset::east_opt(seconds);
    zone.unwrap_or_else(|| chrono::Utc.fix())
}

/// The moment that is meant, in a record of these spans whose local time is `zone`.
fn moment(at: At, spans: &[(Wall, Wall)], zone: FixedOffset) -> Option<Wall> {
    let wall = |local: NaiveDateTime| {
        let utc = local.checked_sub_offset(zone)?.and_utc();
        utc.timestamp_nanos_opt().map(Wall)
    };
    match at {
        At::Exact(exact) => exact.timestamp_nanos_opt().map(Wall),
        At::Local(local) => wall(local),
        At::Clock(time) => {
            let (_, end) = spans.last()?;
            let end = DateTime::from_timestamp_nanos(end.0).with_timezone(&zone);
            let today = end.date_naive();
            let mut days = (0..=8).filter_map(|ago| {
                let day = today.checked_sub_signed(TimeDelta::days(ago))?;
                wall(day.and_time(time))
            });
            let is_covered = |at: &Wall| spans.iter().any(|(from, until)| from <= at && at < until);
            let first = days.clone().next();
            days.find(is_covered).or(first)
        }
    }
}

/// Reads a file, and the record that it must be.
///
/// # Errors
/// The file cannot be read, or is no record; the message names it.
pub fn read(path: &Path) -> Result<(Vec<u8>, Record), String> {
    let named = |error: &dyn Display| format!("{}: {error}", printable(&path.to_string_lossy()));
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = rustix::fs::open(path, flags, Mode::empty());
    let file = File::from(file.map_err(|error| named(&std::io::Error::from(error)))?);
    let is_file = file.metadata().is_ok_and(|seen| seen.is_file());
    if !is_file {
        return Err(named(&RecordError::Foreign));
    }
    let bytes = contents(&file).map_err(|error| named(&error))?;
    if bytes.len() > FILE_SIZE {
        return Err(named(&RecordError::Foreign));
    }
    let record = Record::parse_some(&bytes).map_err(|error| named(&error))?;
    Ok((bytes, record))
}

/// The answer about a guest from a record.
#[derive(Debug)]
pub struct Answer {
    /// The key of the guest.
    pub key: Arc<str>,
    /// The name of the guest.
    pub name: Arc<str>,
    /// The kind of the guest in a word.
    pub kind: Arc<str>,
    /// The verdict on the window.
    pub verdict: Verdict,
    /// The begin and the end of the slices.
    pub wall: (Wall, Wall),
    /// The recorded host.
    pub host: Arc<str>,
    /// The version of the program that recorded.
    pub program: Arc<str>,
    /// The facts that are not known, and why.
    pub notes: Vec<String>,
    /// Slices of the window, and those that have the guest.
    pub slices: (usize, usize),
    /// The local time of the recorded host.
    zone: FixedOffset,
}

impl Answer {
    /// Returns a moment in words, in the recorded host's local time. `form` is a format of `strftime`.
    pub fn shown(&self, wall: Wall, form: &str) -> String {
        shown(wall, self.zone, form)
    }
}

/// Returns the answer about a guest in the slices that overlap `window` from `at` on. `asked` is its
/// key, or a name that no other guest has.
///
/// # Errors
/// The record has no such guest, or nothing of that time.
pub fn answer(record: &Record, asked: &str, at: At, window: Nanos) -> Result<Answer, String> {
    find(record, asked, at, window, zone(record.offset()))
}

fn find(
    record: &Record,
    asked: &str,
    at: At,
    window: Nanos,
    zone: FixedOffset,
) -> Result<Answer, String> {
    let spans = record.spans();
    let from = moment(at, &spans, zone).ok_or("no time that a clock shows")?;
    let until = Wall(from.0.saturating_add(window.0.cast_signed()));
    let found = record.window(from, until);
    let damaged = record.damaged() + found.damaged;
    if found.entries.is_empty() {
        let at = shown(from, zone, "%Y-%m-%d %H:%M:%S %:z");
        let damaged = match damaged {
            0 => String::new(),
            count => format!("; {count} of its slices are damaged"),
        };
        let covered = covered(&spans, zone);
        return Err(format!(
            "nothing was recorded at {at}; the record covers {covered}{damaged}"
        ));
    }
    let key = guest(&found.entries, asked)?;
    Ok(collect(found.entries, &key, (from, until), (damaged, zone)))
}

/// The times that a record covers, in words: the last ones.
fn covered(spans: &[(Wall, Wall)], zone: FixedOffset) -> String {
    let begin = spans.len().saturating_sub(MAX_SPANS);
    let span = |(from, until): &(Wall, Wall)| {
        format!(
            "{} to {}",
            shown(*from, zone, "%Y-%m-%d %H:%M:%S"),
            shown(*until, zone, "%H:%M:%S %:z")
        )
    };
    let shown: Vec<_> = spans[begin..].iter().map(span).collect();
    let before = if begin > 0 { " and times before" } else { "" };
    format!("{}{before}", shown.join(", "))
}

/// The key of the guest that is meant: a key, or a name that no other guest has.
fn guest(entries: &[Entry], asked: &str) -> Result<Arc<str>, String> {
    let guests = entries.iter().flat_map(|entry| &entry.guests);
    let names: BTreeMap<_, _> = guests
        .map(|guest| (Arc::clone(&guest.key), Arc::clone(&guest.name)))
        .collect();
    if let Some((key, _)) = names.get_key_value(asked) {
        return Ok(Arc::clone(key));
    }
    // Where two had a name, each has its key behind it.
    let is_its = |key: &str, name: &str| {
        let shared = name.strip_suffix(&format!(" ({key})"));
        name == asked || shared == Some(asked)
    };
    let found: Vec<_> = names
        .iter()
        .filter(|(key, name)| is_its(key, name))
        .collect();
    let asked = printable(asked);
    match found.as_slice() {
        [(key, _)] => Ok(Arc::clone(key)),
        [] => {
            let shown: Vec<_> = names.values().take(MAX_LISTED).map(Arc::as_ref).collect();
            let more = match names.len().saturating_sub(MAX_LISTED) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            let left_out: u32 = entries.iter().map(|it| it.left_out).max().unwrap_or(0);
            let left_out = match left_out {
                0 => String::new(),
                count => format!("; {count} guests had no room"),
            };
            let listed = if shown.is_empty() {
                "it has no guest at that time".to_owned()
            } else {
                format!("it has {}{more}", shown.join(", "))
            };
            Err(format!(
                "there is no guest \"{asked}\" in the record; {listed}{left_out}"
            ))
        }
        several => {
            let keys: Vec<_> = several.iter().map(|(key, _)| key.as_ref()).collect();
            Err(format!(
                "{} guests are called \"{asked}\"; use a key: {}",
                keys.len(),
                keys.join(", ")
            ))
        }
    }
}

/// Judges the guest with this key, which is in one of the slices at least.
fn collect(
    entries: Vec<Entry>,
    key: &Arc<str>,
    asked: (Wall, Wall),
    (damaged, zone): (usize, FixedOffset),
) -> Answer {
    let wall = (
        entries.first().map_or(asked.0, |first| first.wall.0),
        entries.last().map_or(asked.1, |last| last.wall.1),
    );
    let mut answer = Answer {
        key: Arc::clone(key),
        name: Arc::clone(key),
        kind: Arc::default(),
        verdict: judge(&Evidence::default()),
        wall,
        host: Arc::default(),
        program: Arc::default(),
        notes: Vec::new(),
        slices: (entries.len(), 0),
        zone,
    };
    let missing = missing(&entries, asked) / 1_000_000_000;
    let mut parts = Vec::new();
    let mut notes: Vec<Arc<str>> = Vec::new();
    for entry in entries {
        (answer.host, answer.program) = (entry.host, entry.program);
        let its = entry.guests.into_iter().find(|guest| guest.key == *key);
        let its_notes = its.as_ref().map(|guest| guest.notes.clone());
        for note in entry.notes.into_iter().chain(its_notes.unwrap_or_default()) {
            if !notes.contains(&note) {
                notes.push(note);
            }
        }
        if let Some(guest) = its {
            (answer.name, answer.kind) = (guest.name, guest.kind);
            parts.push(guest.evidence);
        }
    }
    answer.slices.1 = parts.len();
    answer.notes = notes.iter().map(ToString::to_string).collect();
    let (all, its) = answer.slices;
    if its < all {
        answer.notes.push(format!(
            "{} of {all} slices do not have the guest",
            all - its
        ));
    }
    if missing > 0 {
        answer
            .notes
            .push(format!("{missing} s of that time were not recorded"));
    }
    if damaged > 0 {
        answer.notes.push(format!(
            "{damaged} slices of the record are damaged and left out"
        ));
    }
    answer.verdict = judge(&Evidence::join(parts));
    answer
}

/// The nanoseconds of a window that no slice has.
fn missing(entries: &[Entry], (from, until): (Wall, Wall)) -> i64 {
    let overlap = entries.iter().map(|entry| {
        let (begin, end) = (entry.wall.0.max(from), entry.wall.1.min(until));
        end.0.saturating_sub(begin.0).max(0)
    });
    let overlap = overlap.fold(0, i64::saturating_add);
    until.0.saturating_sub(from.0).saturating_sub(overlap)
}

#[cfg(test)]
mod tests;

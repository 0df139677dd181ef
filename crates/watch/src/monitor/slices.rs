//! The slices of the last hour: their verdicts, and entries of a record if a window is longer than
//! the last minute.

use super::recorder::Recorder;
use crate::GuestHours;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use tailbound_look::Verdict;
use tailbound_look::evidence::{Evidence, ExaminedParts};
use tailbound_look::history::{FIRST_SLICE, HOUR, History, Label, SLICE};
use tailbound_look::record::{Entry, GuestEntry, Record, Wall, Writer};
use tailbound_units::Nanos;

/// The last slices of all guests.
#[derive(Debug)]
pub(super) struct Slices {
    /// The begin of the slice that has not ended.
    from: Nanos,
    /// The length at which that slice ends.
    length: Nanos,
    history: History,
    /// The last hour of all guests, as of the last slice that has ended.
    hours: GuestHours,
    /// Entries in memory; `None` if no window is longer than [`super::RECENT`].
    entries: Option<Record>,
    writer: Writer,
    recorder: Option<Recorder>,
    /// The names that stay the same: the host's and the boot's.
    host: Arc<str>,
    boot: Arc<str>,
    /// The version of the program that records.
    program: Arc<str>,
}

/// A guest in a slice.
#[derive(Debug)]
pub(super) struct SliceGuest {
    pub(super) entry: GuestEntry,
    /// Its kind in one word.
    pub(super) kind: &'static str,
    /// The verdict on the slice.
    pub(super) verdict: Verdict,
}

/// The facts about the host in a slice.
#[derive(Debug)]
pub(super) struct Facts {
    pub(super) examined: ExaminedParts,
    pub(super) notes: Vec<Arc<str>>,
}

impl Slices {
    /// Begins at `now`. With `keeps_evidence` the evidence of the last hour is kept as well, in at
    /// most 50 MB.
    pub(super) fn begin(now: Nanos, keeps_evidence: bool, program: &str) -> Self {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
        let host = rustix::system::uname();
        Self {
            from: now,
            length: FIRST_SLICE,
            history: History::new(),
            hours: GuestHours::default(),
            entries: keeps_evidence.then(Record::default),
            writer: Writer::after(None),
            recorder: None,
            host: host.nodename().to_string_lossy().into(),
            boot: boot.unwrap_or_default().trim().into(),
            program: program.into(),
        }
    }

    /// Writes the evidence to a file from now on.
    ///
    /// # Errors
    /// The file cannot be written, or is no record.
    pub(super) fn record(&mut self, file: &Path) -> io::Result<()> {
        let (recorder, writer) = Recorder::open(file)?;
        (self.recorder, self.writer) = (Some(recorder), writer);
        Ok(())
    }

    /// The begin of the slice that has not ended.
    pub(super) fn from(&self) -> Nanos {
        self.from
    }

    pub(super) fn history(&self) -> &History {
        &self.history
    }

    /// The last hour of all guests, as of the last slice that has ended.
    pub(super) fn hours(&self) -> &GuestHours {
        &self.hours
    }

    /// The time until the slice is long enough to end; zero if it is.
    pub(super) fn left(&self, now: Nanos) -> Nanos {
        self.length.saturating_sub(now.saturating_sub(self.from))
    }

    /// Ends the slice: keeps its verdicts, and keeps and writes its evidence.
    ///
    /// # Errors
    /// The record cannot be written.
    pub(super) fn end(
        &mut self,
        now: Nanos,
        guests: Vec<SliceGuest>,
        facts: Facts,
    ) -> io::Result<()> {
        let from = std::mem::replace(&mut self.from, now);
        self.length = SLICE;
        for guest in &guests {
            let label = Label {
                key: Arc::clone(&guest.entry.key),
                name: Arc::clone(&guest.entry.name),
                kind: guest.kind,
            };
            self.history.add(&label, from, now, &guest.verdict);
        }
        self.history.forget(now);
        self.hours = GuestHours::of(&self.history);
        if self.entries.is_none() && self.recorder.is_none() {
            return Ok(());
        }
        let until = wall();
        let length = now.saturating_sub(from).0.cast_signed();
        let entry = Entry {
            wall: (Wall(until.0.saturating_sub(length)), until),
            offset: chrono::Local::now().offset().local_minus_utc(),
            from,
            boot: Arc::clone(&self.boot),
            host: Arc::clone(&self.host),
            program: Arc::clone(&self.program),
            examined: facts.examined,
            notes: facts.notes,
            guests: guests.into_iter().map(|guest| guest.entry).collect(),
            left_out: 0,
        };
        let (at, bytes) = self.writer.write(entry);
        if let Some(entries) = &mut self.entries {
            entries.push(&bytes);
        }
        match &mut self.recorder {
            Some(recorder) => recorder.write(at, &bytes),
            None => Ok(()),
        }
    }

    /// The evidence of whole slices of the last `window`, by guest.
    pub(super) fn evidence(&self, window: Nanos) -> BTreeMap<Arc<str>, Vec<Evidence>> {
        let mut found: BTreeMap<Arc<str>, Vec<Evidence>> = BTreeMap::new();
        let Some(entries) = &self.entries else {
            return found;
        };
        // The first slice is short, so there may be one more.
        let count = window.min(HOUR).0.div_ceil(SLICE.0) + 1;
        let begin = self.from.saturating_sub(window);
        for entry in entries
            .last(usize::try_from(count).unwrap_or(usize::MAX))
            .entries
        {
            if entry.from < begin {
                continue;
            }
            for guest in entry.guests {
                found.entry(guest.key).or_default().push(guest.evidence);
            }
        }
        found
    }
}

/// The clock on the wall.
fn wall() -> Wall {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let nanos = now.map_or(0, |since| since.as_nanos());
    Wall(i64::try_from(nanos).unwrap_or(i64::MAX))
}

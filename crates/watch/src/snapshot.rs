//! The guests of a host with their verdicts at one moment.

use crate::counts::Counts;
use crate::document::{GuestDocument, VerdictDocument};
use crate::hour::{GuestHour, HourDocument};
use serde::Serialize;
use std::cmp::Ordering;
use std::sync::Arc;
use std::time::Duration;
use tailbound_look::{Finding, Verdict, worse_first};
use tailbound_units::Nanos;

/// Causes of a guest's delay that the document of all guests lists.
const MAX_SHARES: usize = 12;

/// A guest and its verdict.
#[derive(Debug, Clone)]
pub struct Row {
    guest: GuestDocument,
    verdict: Verdict,
    counts: Counts,
    hour: Option<Arc<GuestHour>>,
}

impl Row {
    /// A guest with the verdict on the last window, the counts since the begin, and its last hour.
    pub const fn new(
        guest: GuestDocument,
        verdict: Verdict,
        counts: Counts,
        hour: Option<Arc<GuestHour>>,
    ) -> Self {
        Self {
            guest,
            verdict,
            counts,
            hour,
        }
    }

    /// The guest's key.
    pub fn key(&self) -> &Arc<str> {
        self.guest.key()
    }

    /// The facts about the guest.
    pub const fn guest(&self) -> &GuestDocument {
        &self.guest
    }

    /// The verdict on the last window.
    pub const fn verdict(&self) -> &Verdict {
        &self.verdict
    }

    /// The counts since the begin.
    pub const fn counts(&self) -> &Counts {
        &self.counts
    }

    /// The last hour; `None` before the first slice of the history is over.
    pub fn hour(&self) -> Option<&GuestHour> {
        self.hour.as_deref()
    }

    /// The order of two guests: the last window decides, and if nothing was slow then, the last hour.
    fn worse_first(&self, other: &Self) -> Ordering {
        let hour = |row: &Self| row.hour().map(|hour| hour.summary().ranked_delay);
        let is_quiet = |row: &Self| row.verdict.finding == Finding::NothingSlow;
        let by_hour = if is_quiet(self) && is_quiet(other) {
            hour(other).cmp(&hour(self))
        } else {
            Ordering::Equal
        };
        by_hour.then_with(|| worse_first(&self.verdict, &other.verdict))
    }
}

/// The guests of a host, the slowest first.
#[derive(Debug, Clone)]
pub struct Snapshot {
    window: Nanos,
    elapsed: Duration,
    cpu_time: Duration,
    rows: Vec<Row>,
    notes: Vec<String>,
}

impl Snapshot {
    /// The guests of a host with their verdicts on the last `window`; `elapsed` and `cpu_time` are the
    /// time since the begin of the measurement, and the CPU time that it took.
    pub fn new(
        window: Nanos,
        (elapsed, cpu_time): (Duration, Duration),
        mut rows: Vec<Row>,
        notes: Vec<String>,
    ) -> Self {
        rows.sort_by(Row::worse_first);
        Self {
            window,
            elapsed,
            cpu_time,
            rows,
            notes,
        }
    }

    /// The length of the window.
    pub const fn window(&self) -> Nanos {
        self.window
    }

    /// The CPU time that the measurement took.
    pub const fn cpu_time(&self) -> Duration {
        self.cpu_time
    }

    /// The share of one CPU that the measurement takes.
    pub fn cpu_share(&self) -> f64 {
        let elapsed = self.elapsed.as_secs_f64();
        self.cpu_time.as_secs_f64() / elapsed.max(f64::MIN_POSITIVE)
    }

    /// The guests, the slowest first.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// The facts that are not known, and why.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The document of all guests.
    pub fn document(&self) -> SnapshotDocument<'_> {
        let rows = self.rows.iter().map(|row| RowDocument {
            guest: &row.guest,
            verdict: VerdictDocument::of(&row.verdict, MAX_SHARES),
            last_hour: row.hour().map(GuestHour::document),
        });
        SnapshotDocument {
            window_ns: self.window.0,
            cpu_time_ns: self.cpu_time.as_nanos(),
            guests: rows.collect(),
            notes: &self.notes,
        }
    }
}

/// All guests as JSON.
#[derive(Debug, Serialize)]
pub struct SnapshotDocument<'s> {
    window_ns: u64,
    /// The CPU time that the measurement took.
    cpu_time_ns: u128,
    guests: Vec<RowDocument<'s>>,
    notes: &'s [String],
}

#[derive(Debug, Serialize)]
struct RowDocument<'s> {
    guest: &'s GuestDocument,
    verdict: VerdictDocument,
    last_hour: Option<HourDocument>,
}

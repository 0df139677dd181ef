//! The last hour of each guest, as far as the history has it.

use crate::document::{FindingDocument, ShareDocument};
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use tailbound_look::History;
use tailbound_look::history::{HOUR, Summary};
use tailbound_units::Nanos;

/// The minutes of an hour.
const MINUTES: usize = 60;
/// A minute.
const MINUTE: Nanos = Nanos::from_secs(60);
/// Largest number of causes in a document.
const MAX_SHARES: usize = 4;

/// The last hour of a guest.
#[derive(Debug, Clone)]
pub struct GuestHour {
    examined: Nanos,
    summary: Summary,
    /// The delay in each minute, the oldest first.
    minutes: [Nanos; MINUTES],
}

impl GuestHour {
    /// The part of the hour that was examined.
    pub const fn examined(&self) -> Nanos {
        self.examined
    }

    /// The slow periods.
    pub const fn summary(&self) -> &Summary {
        &self.summary
    }

    /// The delay in each minute, the oldest first.
    pub const fn minutes(&self) -> &[Nanos; MINUTES] {
        &self.minutes
    }

    pub(crate) fn document(&self) -> HourDocument {
        let summary = &self.summary;
        let shares = summary.shares.iter().take(MAX_SHARES);
        HourDocument {
            examined_ns: self.examined.0,
            finding: FindingDocument::of(&summary.finding),
            slow_periods: summary.slow,
            delay_ns: summary.delay.0,
            judged_delay_ns: summary.judged_delay.0,
            longest_ns: summary.longest.0,
            shares: shares.map(ShareDocument::of).collect(),
            minute_delays_ns: self.minutes.map(|minute| minute.0).to_vec(),
        }
    }
}

/// The last hour of a guest as JSON.
#[derive(Debug, Serialize)]
pub(crate) struct HourDocument {
    examined_ns: u64,
    #[serde(flatten)]
    finding: FindingDocument,
    slow_periods: u64,
    delay_ns: u64,
    judged_delay_ns: u64,
    longest_ns: u64,
    /// The causes with the largest times.
    shares: Vec<ShareDocument>,
    /// The delay in each minute of the hour, the oldest first.
    minute_delays_ns: Vec<u64>,
}

/// The last hour of all guests, by key.
#[derive(Debug, Clone, Default)]
pub struct GuestHours(BTreeMap<Arc<str>, Arc<GuestHour>>);

impl GuestHours {
    /// Sums up a history.
    pub fn of(history: &History) -> Self {
        let (from, end) = history.span().unwrap_or_default();
        let summaries = history.recent(HOUR).into_iter();
        let hours = summaries.map(|summary| {
            let key = Arc::clone(&summary.label.key);
            let mut minutes = [Nanos::ZERO; MINUTES];
            for slice in history.series(&key) {
                let ago = end.saturating_sub(slice.until).0 / MINUTE.0;
                let ago = usize::try_from(ago).unwrap_or(usize::MAX);
                if let Some(minute) = MINUTES.checked_sub(ago.saturating_add(1)) {
                    minutes[minute] = minutes[minute].saturating_add(slice.delay);
                }
            }
            let hour = GuestHour {
                examined: end.saturating_sub(from),
                summary,
                minutes,
            };
            (key, Arc::new(hour))
        });
        Self(hours.collect())
    }

    /// The last hour of a guest; `None` before its first slice is over.
    pub fn of_guest(&self, key: &str) -> Option<Arc<GuestHour>> {
        self.0.get(key).cloned()
    }
}

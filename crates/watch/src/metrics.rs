//! The guests of a host as metrics.

use crate::snapshot::{Row, Snapshot};
use std::fmt::Error;
use std::sync::Arc;
use tailbound_metrics::{Encoder, Exposition, Family, Kind, Number, Unit, gauge};

/// Guests that have metrics: the slowest. The others are counted.
const MAX_GUESTS: usize = 1_024;

/// Returns a snapshot as `OpenMetrics` text.
///
/// # Errors
/// A count cannot be written.
pub fn text(snapshot: &Arc<Snapshot>) -> Result<String, Error> {
    tailbound_metrics::text(Metrics(Arc::clone(snapshot)))
}

#[derive(Debug)]
struct Metrics(Arc<Snapshot>);

/// A metric of guests: name, help, unit and kind.
type Head = (&'static str, &'static str, Unit, Kind);

const SLOW: Head = (
    "tailbound_guest_slow_periods",
    "Slow periods of a guest (requests, frames, waits for a CPU), counted each 10 s",
    Unit::None,
    Kind::Counter,
);
const DELAY: Head = (
    "tailbound_guest_delay",
    "Time of a guest's slow periods by cause, counted each 10 s; not-judged has those that were not among the 60 slowest of 10 s",
    Unit::Seconds,
    Kind::Counter,
);
const RECENT: Head = (
    "tailbound_guest_recent_delay",
    "Time of a guest's slow periods in the last window",
    Unit::Seconds,
    Kind::Gauge,
);
const LATE_WAITS: Head = (
    "tailbound_guest_late_wait",
    "Waits of a guest's threads for a CPU that took 1 ms or longer",
    Unit::Seconds,
    Kind::Histogram,
);

impl Metrics {
    fn rows(&self) -> &[Row] {
        let rows = self.0.rows();
        &rows[..rows.len().min(MAX_GUESTS)]
    }

    /// Writes a metric with a sample for each guest.
    fn of_guests(
        &self,
        encoder: &mut Encoder<'_>,
        (name, help, unit, kind): Head,
        write: impl Fn(&mut Family<'_>, &Row) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut family = encoder.family(name, help, unit, kind)?;
        for row in self.rows() {
            write(&mut family.with(&labels(row))?, row)?;
        }
        Ok(())
    }

    fn write_host(&self, encoder: &mut Encoder<'_>) -> Result<(), Error> {
        let snapshot = &self.0;
        let all = snapshot.rows().len();
        let left_out = all - self.rows().len();
        for (name, help, value) in [
            ("tailbound_watch_guests", "Guests of this host", all),
            (
                "tailbound_watch_guests_left_out",
                "Guests without metrics, as there are too many",
                left_out,
            ),
        ] {
            let mut family = encoder.family(name, help, Unit::None, Kind::Gauge)?;
            family.number(value as u64)?;
        }
        let missing = snapshot.rows().first().map(|row| &row.verdict().unexamined);
        let missing = missing.into_iter().flatten();
        let missing: Vec<_> = missing
            .map(|(part, _)| ([("part", (*part).to_owned())], 1))
            .collect();
        let help = "Parts that cannot be examined on this host";
        gauge(encoder, "tailbound_watch_unexamined", help, &missing)?;
        let help = "CPU time that the measurement took";
        let name = "tailbound_watch_cpu";
        let mut family = encoder.family(name, help, Unit::Seconds, Kind::Counter)?;
        family.number(Number::Real(snapshot.cpu_time().as_secs_f64()))
    }
}

fn labels(row: &Row) -> [(&'static str, &str); 2] {
    [("guest", row.key()), ("kind", row.guest().kind())]
}

impl Exposition for Metrics {
    fn write(&self, encoder: &mut Encoder<'_>) -> Result<(), Error> {
        self.write_host(encoder)?;
        self.of_guests(encoder, SLOW, |family, row| {
            family.number(row.counts().slow())
        })?;
        let (name, help, unit, kind) = DELAY;
        let mut family = encoder.family(name, help, unit, kind)?;
        for row in self.rows() {
            let [guest, kind] = labels(row);
            for (cause, time) in row.counts().delay() {
                let labels = [guest, kind, ("cause", cause)];
                family.with(&labels)?.number(time.as_secs_f64())?;
            }
        }
        self.of_guests(encoder, RECENT, |family, row| {
            family.number(row.verdict().delay.as_secs_f64())
        })?;
        self.of_guests(encoder, LATE_WAITS, |family, row| {
            family.sparse_histogram(row.counts().waits())
        })
    }
}

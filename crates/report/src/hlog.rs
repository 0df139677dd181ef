//! `HdrHistogram` interval logs, version 1.3: the input of `HistogramLogProcessor` and the
//! project's plotters.

use crate::error::ReportError;
use crate::results::Results;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};
use std::io::{self, Write};
use std::ops::Range;
use std::time::Duration;

/// A log that is being written, one interval a line, tagged with its subject.
#[derive(Debug)]
pub struct IntervalLog<W>(W);

impl<W: Write> IntervalLog<W> {
    /// Writes the head: the subject in a few words, and the origin of its times, in seconds since
    /// 1970.
    ///
    /// # Errors
    /// The head cannot be written.
    pub fn begin(mut out: W, what: &str, start: f64) -> io::Result<Self> {
        writeln!(out, "#[{what}: times in ns]")?;
        writeln!(out, "#[Histogram log format version 1.3]")?;
        writeln!(out, "#[StartTime: {start:.3} (seconds since epoch)]")?;
        writeln!(out, "#[BaseTime: {start:.3} (seconds since epoch)]")?;
        let columns = "StartTimestamp,Interval_Length,Interval_Max,Interval_Compressed_Histogram";
        writeln!(out, "\"{}\"", columns.replace(',', "\",\""))?;
        Ok(Self(out))
    }

    /// Writes the times of one interval, counted from the start; an empty histogram writes no line.
    /// Characters that a tag cannot have become `_`.
    ///
    /// # Errors
    /// The line cannot be written.
    pub fn write(
        &mut self,
        tag: &str,
        span: Range<Duration>,
        times: &Histogram<u64>,
    ) -> io::Result<()> {
        if times.is_empty() {
            return Ok(());
        }
        let length = span.end.saturating_sub(span.start);
        let tag = tag.replace([',', ' ', '\t', '\n', '\r'], "_");
        // Without a head: the log already has it.
        IntervalLogWriterBuilder::new()
            .begin_log_with(&mut self.0, &mut V2DeflateSerializer::new())
            .and_then(|mut log| {
                log.write_histogram(times, span.start, length, Tag::new(&tag))
                    .map_err(|error| io::Error::other(error.to_string()))
            })
    }
}

impl Results {
    /// Returns all series of all variants as an interval log: one line each, tagged
    /// `VARIANT/SERIES`, of the undisturbed samples; a second one, `VARIANT/SERIES/all`, of all
    /// samples if some were disturbed. A series with another unit than time has its unit in the
    /// tag: `VARIANT/SERIES(UNIT)`.
    ///
    /// # Errors
    /// A histogram is damaged.
    pub fn hlog(&self) -> Result<String, ReportError> {
        let mut text = Vec::new();
        let what = format!("tailbound {}", self.experiment);
        let mut log = IntervalLog::begin(&mut text, &what, 0.0).map_err(ReportError::Log)?;
        for variant in &self.variants {
            for (name, series) in &variant.series {
                let unit = match series.unit.as_str() {
                    "ns" => String::new(),
                    other => format!("({other})"),
                };
                let tag = format!("{}/{name}{unit}", variant.name);
                let is_hit = series.stats.count != series.all.count;
                let all = is_hit.then(|| (format!("{tag}/all"), &series.all));
                for (tag, stats) in [(tag, &series.stats)].into_iter().chain(all) {
                    let histogram = stats.histogram().map_err(|source| ReportError::Histogram {
                        place: tag.clone(),
                        source,
                    })?;
                    // The time within the run is not stored.
                    let none = Duration::ZERO..Duration::ZERO;
                    log.write(&tag, none, &histogram)
                        .map_err(ReportError::Log)?;
                }
            }
        }
        Ok(String::from_utf8_lossy(&text).into_owned())
    }
}

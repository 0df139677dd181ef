//! `HdrHistogram` interval logs, version 1.3: what `HistogramLogProcessor` and the
//! project's plotters read.

use crate::error::ReportError;
use crate::results::Results;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};
use std::io::{self, Write};
use std::ops::Range;
use std::time::Duration;

/// A log that is being written, one interval a line, tagged with what it is of.
#[derive(Debug)]
pub struct IntervalLog<W>(W);

impl<W: Write> IntervalLog<W> {
    /// Writes the head: what it is of, in a few words, and the moment that its times count from, in
    /// seconds since 1970.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn begin(mut out: W, what: &str, start: f64) -> io::Result<Self> {
        writeln!(out, "#[{what}: times in ns]")?;
        writeln!(out, "#[Histogram log format version 1.3]")?;
        writeln!(out, "#[StartTime: {start:.3} (seconds since epoch)]")?;
        writeln!(out, "#[BaseTime: {start:.3} (seconds since epoch)]")?;
        let columns = "StartTimestamp,Interval_Length,Interval_Max,Interval_Compressed_Histogram";
        writeln!(out, "\"{}\"", columns.replace(',', "\",\""))?;
        Ok(Self(out))
    }

    /// Writes the times of one interval, counted from the start; nothing if there are none. What a
    /// tag cannot have becomes `_`.
    ///
    /// # Errors
    /// It cannot be written.
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
        // Without a head: that is there already.
        IntervalLogWriterBuilder::new()
            .begin_log_with(&mut self.0, &mut V2DeflateSerializer::new())
            .and_then(|mut log| {
                log.write_histogram(times, span.start, length, Tag::new(&tag))
                    .map_err(|error| io::Error::other(error.to_string()))
            })
    }
}

impl Results {
    /// All series of all variants as an interval log: one line each, tagged `VARIANT/SERIES`, of the
    /// samples that were not disturbed; a second one, `VARIANT/SERIES/all`, of all samples where
    /// some were. What is no time has its unit in the tag: `VARIANT/SERIES(UNIT)`.
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
                    // When it was within the run is not kept.
                    let none = Duration::ZERO..Duration::ZERO;
                    log.write(&tag, none, &histogram)
                        .map_err(ReportError::Log)?;
                }
            }
        }
        Ok(String::from_utf8_lossy(&text).into_owned())
    }
}

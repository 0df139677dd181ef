//! Samples of a run, collected into series and counts.

use super::sweep::{Guest, Measure, Sweep};
use hdrhistogram::Histogram;
use std::collections::BTreeMap;
use tailbound_hypervisor::{Sample, Task};
use tailbound_report::{Series, Value, empty_histogram};
use tailbound_units::Nanos;

/// Destination of a vCPU's samples: indexes in [`Recorder::series`].
#[derive(Debug, Clone, Copy)]
enum Sink {
    Nowhere,
    Latency(usize),
    Rtp {
        delta: usize,
        jitter: usize,
        period: Nanos,
        last: Option<Nanos>,
        /// Jitter of RFC 3550, section 6.4.1, in nanoseconds.
        estimate: f64,
    },
}

struct Recording {
    name: String,
    histogram: Histogram<u64>,
    /// Indexes in [`Recorder::counts`].
    counts: Vec<usize>,
}

struct Counter {
    name: String,
    ranges: Vec<(Nanos, Nanos)>,
    share_of: Option<String>,
    count: u64,
}

/// Counts a time.
pub(crate) fn record(histogram: &mut Histogram<u64>, time: Nanos) {
    // The histogram begins at 1 ns.
    let counted = histogram.record(time.as_nanos().max(1));
    counted.expect("it grows to the whole of 64 bits");
}

/// Sums of a run's samples.
pub(crate) struct Recorder {
    /// Destinations, by vCPU.
    sinks: Vec<Sink>,
    series: Vec<Recording>,
    counts: Vec<Counter>,
}

impl Recorder {
    /// Returns a recorder for a run with these guests, one a vCPU.
    pub(crate) fn new(sweep: &Sweep, guests: &[&Guest]) -> Self {
        let mut recorder = Self {
            sinks: Vec::new(),
            series: Vec::new(),
            counts: Vec::new(),
        };
        for guest in guests {
            let sink = recorder.sink(guest);
            recorder.sinks.push(sink);
        }
        for count in &sweep.count {
            let name = count.series.get_ref();
            let series = recorder.series.iter_mut().find(|it| it.name == *name);
            let Some(series) = series else {
                continue;
            };
            series.counts.push(recorder.counts.len());
            recorder.counts.push(Counter {
                name: count.name.get_ref().clone(),
                ranges: count.ranges.clone(),
                share_of: count.share_of.as_ref().map(|name| name.get_ref().clone()),
                count: 0,
            });
        }
        recorder
    }

    fn sink(&mut self, guest: &Guest) -> Sink {
        let places: Vec<_> = guest
            .series_names()
            .into_iter()
            .map(|name| self.place(name))
            .collect();
        match (guest.measure, guest.task, places.as_slice()) {
            (Measure::Latency, _, &[place]) => Sink::Latency(place),
            (Measure::Rtp, Task::Sender { period, .. }, &[delta, jitter]) => Sink::Rtp {
                delta,
                jitter,
                period,
                last: None,
                estimate: 0.0,
            },
            _ => Sink::Nowhere,
        }
    }

    fn place(&mut self, name: String) -> usize {
        let known = self.series.iter().position(|series| series.name == name);
        known.unwrap_or_else(|| {
            self.series.push(Recording {
                name,
                histogram: empty_histogram(),
                counts: Vec::new(),
            });
            self.series.len() - 1
        })
    }

    /// Records a sample.
    pub(crate) fn take(&mut self, sample: Sample) {
        match &mut self.sinks[sample.vcpu.index()] {
            Sink::Nowhere => {}
            &mut Sink::Latency(place) => self.record(place, sample.took),
            Sink::Rtp {
                delta,
                jitter,
                period,
                last,
                estimate,
            } => {
                let Some(before) = last.replace(sample.at) else {
                    return;
                };
                // Frames are stamped with their due time, so transit times differ by the gap less
                // the period.
                let gap = sample.at - before;
                let difference = (gap.as_nanos() as f64 - period.as_nanos() as f64).abs();
                *estimate += (difference - *estimate) / 16.0;
                let (delta, jitter, estimate) = (*delta, *jitter, *estimate);
                self.record(delta, gap);
                self.record(jitter, Nanos(estimate.round() as u64));
            }
        }
    }

    fn record(&mut self, place: usize, took: Nanos) {
        let series = &mut self.series[place];
        record(&mut series.histogram, took);
        for &count in &series.counts {
            let counter = &mut self.counts[count];
            let counts = |(from, to): &(Nanos, Nanos)| (*from..*to).contains(&took);
            counter.count += u64::from(counter.ranges.iter().any(counts));
        }
    }

    /// Discards all measurements, as after a warm-up.
    pub(crate) fn clear(&mut self) {
        for series in &mut self.series {
            series.histogram.clear();
        }
        for counter in &mut self.counts {
            counter.count = 0;
        }
    }

    /// Returns each series by its name.
    pub(crate) fn series(&self) -> BTreeMap<String, Series> {
        let series = |recording: &Recording| {
            let series = Series::of("ns", &recording.histogram);
            (recording.name.clone(), series)
        };
        self.series.iter().map(series).collect()
    }

    /// Returns each count by its name.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (String, Value)> {
        self.counts.iter().map(|counter| {
            let count = counter.count as f64;
            let whole = counter.share_of.as_ref().map(|name| {
                let whole = self.counts.iter().find(|it| it.name == *name);
                whole.map_or(0.0, |whole| whole.count as f64)
            });
            let value = match whole {
                None => Value::new("", count),
                Some(whole) => Value::new("%", 100.0 * count / whole),
            };
            (counter.name.clone(), value)
        })
    }
}

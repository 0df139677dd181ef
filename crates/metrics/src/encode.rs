//! Prometheus's formats of counts: text (`OpenMetrics` 1.0) and protobuf.

use crate::protobuf::{
    BucketSpan, Counter, Gauge, Histogram as NativeHistogram, LabelPair, Metric, MetricFamily,
    MetricType,
};
use crate::{FineHistogram, Histogram};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeLabelValue, MetricEncoder, NoLabelSet, text,
};
use prometheus_client::metrics::MetricType as TextType;
use prometheus_client::registry::{Registry, Unit as TextUnit};
use prost::Message as _;
use std::fmt::{self, Error};

/// The labels of a sample, each a name and a value.
pub type Labels<const N: usize> = [(&'static str, String); N];

/// Counts that can be written in each format.
pub trait Exposition: fmt::Debug + Send + Sync + 'static {
    /// Writes all metrics.
    ///
    /// # Errors
    /// A metric cannot be written.
    fn write(&self, encoder: &mut Encoder<'_>) -> Result<(), Error>;
}

/// Returns counts as `OpenMetrics` text. A histogram has all buckets above its first count.
///
/// # Errors
/// A count cannot be written.
pub fn text(exposition: impl Exposition) -> Result<String, Error> {
    #[derive(Debug)]
    struct Text<E>(E);

    impl<E: Exposition> Collector for Text<E> {
        fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
            self.0.write(&mut Encoder(Form::Text(encoder)))
        }
    }

    let mut registry = Registry::default();
    registry.register_collector(Box::new(Text(exposition)));
    let mut page = String::new();
    text::encode(&mut page, &registry)?;
    Ok(page)
}

/// Returns counts in Prometheus's protobuf form, each metric after its length. A histogram is a
/// native one: it has the buckets with a count and no others.
///
/// # Errors
/// A count cannot be written.
pub fn protobuf(exposition: &impl Exposition) -> Result<Vec<u8>, Error> {
    let mut families = Vec::new();
    exposition.write(&mut Encoder(Form::Protobuf(&mut families)))?;
    let mut page = Vec::new();
    for family in families {
        // A vector has room for everything.
        family
            .encode_length_delimited(&mut page)
            .map_err(|_| Error)?;
    }
    Ok(page)
}

/// The page that metrics are written to, in one of the two forms.
#[derive(Debug)]
pub struct Encoder<'p>(Form<'p>);

#[derive(Debug)]
enum Form<'p> {
    Text(DescriptorEncoder<'p>),
    Protobuf(&'p mut Vec<MetricFamily>),
}

/// The type of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A number that only rises. The name of the metric ends in `_total`.
    Counter,
    /// A number that rises and falls.
    Gauge,
    /// A histogram of times.
    Histogram,
}

/// The unit of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// A plain number, or a unit that the name has already.
    None,
    /// Seconds. The name of the metric has `_seconds` after it.
    Seconds,
}

impl Encoder<'_> {
    /// Begins a metric, to which samples are then written.
    ///
    /// # Errors
    /// The name or the help cannot be written.
    pub fn family<'f>(
        &'f mut self,
        name: &'f str,
        help: &str,
        unit: Unit,
        kind: Kind,
    ) -> Result<Family<'f>, Error> {
        let family = match &mut self.0 {
            Form::Text(encoder) => {
                let unit = match unit {
                    Unit::None => None,
                    Unit::Seconds => Some(&TextUnit::Seconds),
                };
                let text_type = match kind {
                    Kind::Counter => TextType::Counter,
                    Kind::Gauge => TextType::Gauge,
                    Kind::Histogram => TextType::Histogram,
                };
                Samples::Text(encoder.encode_descriptor(name, help, unit, text_type)?)
            }
            Form::Protobuf(families) => {
                families.push(family(name, help, unit, kind));
                let last = families.last_mut().ok_or(Error)?;
                Samples::Protobuf(&mut last.metrics, Vec::new())
            }
        };
        Ok(Family(family, kind))
    }
}

/// Returns the head of a metric in protobuf, whose name has its unit and its type in it.
fn family(name: &str, help: &str, unit: Unit, kind: Kind) -> MetricFamily {
    let (unit_name, unit_suffix) = match unit {
        Unit::None => ("", ""),
        Unit::Seconds => ("seconds", "_seconds"),
    };
    let (metric_type, type_suffix) = match kind {
        Kind::Counter => (MetricType::Counter, "_total"),
        Kind::Gauge => (MetricType::Gauge, ""),
        Kind::Histogram => (MetricType::Histogram, ""),
    };
    MetricFamily {
        name: [name, unit_suffix, type_suffix].concat(),
        help: help.to_owned(),
        kind: metric_type.into(),
        metrics: Vec::new(),
        unit: unit_name.to_owned(),
    }
}

/// A metric that samples are written to.
#[derive(Debug)]
pub struct Family<'f>(Samples<'f>, Kind);

#[derive(Debug)]
enum Samples<'f> {
    Text(MetricEncoder<'f>),
    /// The samples, and the labels of the next one.
    Protobuf(&'f mut Vec<Metric>, Vec<LabelPair>),
}

/// The value of a counter or of a gauge.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Number {
    /// A count.
    Whole(u64),
    /// Any other number.
    Real(f64),
}

impl From<u64> for Number {
    fn from(value: u64) -> Self {
        Self::Whole(value)
    }
}

impl From<f64> for Number {
    fn from(value: f64) -> Self {
        Self::Real(value)
    }
}

impl Family<'_> {
    /// Returns the metric with labels for the next sample.
    ///
    /// # Errors
    /// The labels cannot be written.
    pub fn with<'s, V: EncodeLabelValue + AsRef<str>, const N: usize>(
        &'s mut self,
        labels: &'s [(&'static str, V); N],
    ) -> Result<Family<'s>, Error> {
        let samples = match &mut self.0 {
            Samples::Text(encoder) => Samples::Text(encoder.encode_family(labels)?),
            Samples::Protobuf(metrics, _) => {
                let pair = |(name, value): &(&'static str, V)| LabelPair {
                    name: (*name).to_owned(),
                    value: value.as_ref().to_owned(),
                };
                Samples::Protobuf(metrics, labels.iter().map(pair).collect())
            }
        };
        Ok(Family(samples, self.1))
    }

    /// Writes a sample of a counter or of a gauge.
    ///
    /// # Errors
    /// The sample cannot be written, or the metric is a histogram.
    pub fn number(&mut self, value: impl Into<Number>) -> Result<(), Error> {
        let value = value.into();
        let (metrics, labels) = match &mut self.0 {
            Samples::Text(encoder) => return text_number(encoder, self.1, value),
            Samples::Protobuf(metrics, labels) => (metrics, labels),
        };
        let value = match value {
            Number::Whole(value) => value as f64,
            Number::Real(value) => value,
        };
        let (counter, gauge) = match self.1 {
            Kind::Counter => (Some(Counter { value }), None),
            Kind::Gauge => (None, Some(Gauge { value })),
            Kind::Histogram => return Err(Error),
        };
        metrics.push(Metric {
            labels: labels.clone(),
            counter,
            gauge,
            histogram: None,
        });
        Ok(())
    }

    /// Writes a histogram of times, in seconds.
    ///
    /// # Errors
    /// The histogram cannot be written.
    pub fn histogram(&mut self, histogram: &Histogram) -> Result<(), Error> {
        match &mut self.0 {
            Samples::Text(encoder) => text_histogram(encoder, histogram),
            Samples::Protobuf(..) => self.push(native(histogram)),
        }
    }

    /// Writes a histogram of times in seconds with fewer buckets: a bound is four times the one
    /// below it. The metrics of hundreds of guests stay small.
    ///
    /// # Errors
    /// The histogram cannot be written.
    pub fn sparse_histogram(&mut self, histogram: &Histogram) -> Result<(), Error> {
        match &mut self.0 {
            Samples::Text(encoder) => {
                let (sum, count) = (histogram.sum().as_secs_f64(), histogram.count());
                encoder.encode_histogram::<NoLabelSet>(sum, count, &sparse(histogram), None)
            }
            Samples::Protobuf(..) => self.push(native(histogram)),
        }
    }

    /// Writes a finer histogram of times, in seconds; as text in the coarser one's buckets.
    ///
    /// # Errors
    /// The histogram cannot be written.
    pub fn fine_histogram(&mut self, fine: &FineHistogram) -> Result<(), Error> {
        match &mut self.0 {
            Samples::Text(encoder) => text_histogram(encoder, &fine.coarse()),
            Samples::Protobuf(..) => self.push(native_fine(fine)),
        }
    }

    fn push(&mut self, histogram: NativeHistogram) -> Result<(), Error> {
        let Samples::Protobuf(metrics, labels) = &mut self.0 else {
            return Err(Error);
        };
        metrics.push(Metric {
            labels: labels.clone(),
            histogram: Some(histogram),
            ..Metric::default()
        });
        Ok(())
    }
}

fn text_number(encoder: &mut MetricEncoder<'_>, kind: Kind, value: Number) -> Result<(), Error> {
    match (kind, value) {
        (Kind::Counter, Number::Whole(value)) => {
            encoder.encode_counter::<NoLabelSet, _, u64>(&value, None)
        }
        (Kind::Counter, Number::Real(value)) => {
            encoder.encode_counter::<NoLabelSet, _, u64>(&value, None)
        }
        (Kind::Gauge, Number::Whole(value)) => encoder.encode_gauge(&value),
        (Kind::Gauge, Number::Real(value)) => encoder.encode_gauge(&value),
        (Kind::Histogram, _) => Err(Error),
    }
}

fn text_histogram(encoder: &mut MetricEncoder<'_>, histogram: &Histogram) -> Result<(), Error> {
    let (sum, count) = (histogram.sum().as_secs_f64(), histogram.count());
    encoder.encode_histogram::<NoLabelSet>(sum, count, &classic(histogram), None)
}

/// Writes a counter: one sample for each of `samples`, its labels and its value.
///
/// # Errors
/// The counter cannot be written.
pub fn counter<const N: usize>(
    encoder: &mut Encoder<'_>,
    name: &str,
    help: &str,
    samples: &[(Labels<N>, u64)],
) -> Result<(), Error> {
    let mut family = encoder.family(name, help, Unit::None, Kind::Counter)?;
    for (labels, value) in samples {
        family.with(labels)?.number(*value)?;
    }
    Ok(())
}

/// Writes a gauge: one sample for each of `samples`, its labels and its value.
///
/// # Errors
/// The gauge cannot be written.
pub fn gauge<const N: usize>(
    encoder: &mut Encoder<'_>,
    name: &str,
    help: &str,
    samples: &[(Labels<N>, u64)],
) -> Result<(), Error> {
    let mut family = encoder.family(name, help, Unit::None, Kind::Gauge)?;
    for (labels, value) in samples {
        family.with(labels)?.number(*value)?;
    }
    Ok(())
}

/// Returns bounds and counts, from the first bucket with a count on. A sum over histograms treats a
/// missing bucket as empty, so no later bucket may be left out.
fn classic(histogram: &Histogram) -> Vec<(f64, u64)> {
    // Times above all bounds are in the bucket without a bound.
    let bounds = (0..Histogram::BUCKETS).map(Histogram::bound);
    let bounds = bounds.chain([f64::INFINITY]);
    let buckets = bounds.zip(histogram.counts().iter().copied());
    let used = buckets.skip_while(|(bound, count)| *count == 0 && bound.is_finite());
    used.collect()
}

/// Returns bounds and counts like [`classic`], with powers of four only.
fn sparse(histogram: &Histogram) -> Vec<(f64, u64)> {
    let mut kept = Vec::new();
    let mut sum = 0;
    for (index, count) in histogram.counts().iter().enumerate() {
        sum += count;
        let bound = if index == Histogram::BUCKETS {
            f64::INFINITY
        } else if Histogram::exponent(index) % 4 == 0 {
            Histogram::bound(index)
        } else {
            continue;
        };
        if sum > 0 || !kept.is_empty() || bound.is_infinite() {
            kept.push((bound, sum));
            sum = 0;
        }
    }
    kept
}

/// Runs of buckets that have counts: the number of left out buckets before each run, and its
/// length; and the difference of each count to the previous one.
type Runs = (Vec<BucketSpan>, Vec<i64>);

fn native(histogram: &Histogram) -> NativeHistogram {
    let counts = histogram.counts().iter().copied().enumerate();
    let used = counts.skip(1).filter(|(_, count)| *count > 0);
    let (spans, deltas) = runs(used.map(|(index, count)| (Histogram::exponent(index), count)));
    NativeHistogram {
        count: histogram.count(),
        sum: histogram.sum().as_secs_f64(),
        schema: Histogram::SCHEMA,
        zero_threshold: Histogram::bound(0),
        zero_count: histogram.counts()[0],
        spans,
        deltas,
    }
}

fn native_fine(fine: &FineHistogram) -> NativeHistogram {
    let zero = fine.used().find(|(index, _)| *index == 0);
    let used = fine.used().filter(|(index, _)| *index > 0);
    let (spans, deltas) = runs(used.map(|(index, count)| (FineHistogram::exponent(index), count)));
    NativeHistogram {
        count: fine.count(),
        sum: fine.sum().as_secs_f64(),
        schema: FineHistogram::SCHEMA,
        zero_threshold: FineHistogram::bound(0),
        zero_count: zero.map_or(0, |(_, count)| count),
        spans,
        deltas,
    }
}

/// Returns runs of the indices of buckets that have a count, ascending, and the differences of
/// counts.
///
/// The first bucket is the one around zero, and not among them. Times above all bounds are in the
/// bucket above the last.
fn runs(used: impl Iterator<Item = (i32, u64)>) -> Runs {
    let (mut spans, mut deltas) = (Vec::<BucketSpan>::new(), Vec::new());
    let (mut next, mut before) = (0, 0);
    for (index, count) in used {
        match spans.last_mut() {
            Some(span) if index == next => span.length += 1,
            _ => spans.push(BucketSpan {
                offset: index - next,
                length: 1,
            }),
        }
        next = index + 1;
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        deltas.push(count - before);
        before = count;
    }
    (spans, deltas)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tailbound_units::Nanos;

    fn histogram_of(times: &[(u64, u64)]) -> Histogram {
        let mut histogram = Histogram::default();
        for (micros, count) in times {
            histogram.record_many(Nanos::from_micros(*micros), *count);
        }
        histogram
    }

    #[test]
    fn a_sparse_histogram_has_the_same_counts_in_fewer_buckets() {
        assert_eq!(sparse(&histogram_of(&[])), [(f64::INFINITY, 0)]);
        let second = 1_000_000;
        let times = [(800, 1), (977, 2), (3 * second, 4), (100 * second, 1)];
        let expected = [
            (1.0 / 1_024.0, 1),
            (1.0 / 256.0, 2),
            (1.0 / 64.0, 0),
            (1.0 / 16.0, 0),
            (0.25, 0),
            (1.0, 0),
            (4.0, 4),
            (16.0, 0),
            (f64::INFINITY, 1),
        ];
        assert_eq!(sparse(&histogram_of(&times)), expected);
    }

    #[test]
    fn a_native_histogram_has_the_buckets_that_were_used() {
        let runs = |histogram: &Histogram| {
            let native = native(histogram);
            let spans = native.spans.into_iter();
            let spans = spans.map(|span| (span.offset, span.length));
            (spans.collect::<Vec<_>>(), native.deltas)
        };
        assert_eq!(runs(&histogram_of(&[])), (vec![], vec![]));
        // (707 ms, 1 s], (1 s, 1.41 s], (2 s, 2.83 s], and beyond 32 s.
        let second = 1_000_000;
        let histogram = histogram_of(&[
            (0, 9),
            (second, 5),
            (second + 1, 2),
            (2 * second + 1, 3),
            (100 * second, 1),
        ]);
        let spans = vec![(0, 2), (1, 1), (7, 1)];
        assert_eq!(runs(&histogram), (spans, vec![5, -3, 1, -2]));
        assert_eq!(histogram.counts()[0], 9);
    }

    /// A counter with a label, a gauge in seconds, and a histogram.
    #[derive(Debug)]
    struct Three;

    impl Exposition for Three {
        fn write(&self, encoder: &mut Encoder<'_>) -> Result<(), Error> {
            counter(encoder, "a", "b", &[([("p", "x".to_owned())], 3)])?;
            encoder
                .family("g", "h", Unit::Seconds, Kind::Gauge)?
                .number(0.5)?;
            let second = 1_000_000;
            let times = histogram_of(&[(0, 2), (second, 3), (2 * second, 1)]);
            encoder
                .family("w", "i", Unit::Seconds, Kind::Histogram)?
                .histogram(&times)
        }
    }

    /// The bytes are written by hand from the protobuf encoding: a tag is the number of a field
    /// times 8, and 0 for a whole number, 1 for a double, or 2 for bytes with their length before
    /// them. Signed numbers are zigzag: 0, -1, 1, -2, 2.
    #[test]
    fn protobuf_is_as_prometheus_defines_it() {
        let expected: [&[u8]; 13] = [
            b"\x21\x0a\x07a_total\x12\x01b",
            b"\x22\x13\x0a\x06\x0a\x01p\x12\x01x\x1a\x09\x09\0\0\0\0\0\0\x08\x40",
            b"\x26\x0a\x09g_seconds\x12\x01h\x18\x01",
            b"\x22\x0b\x12\x09\x09\0\0\0\0\0\0\xe0\x3f",
            b"\x2a\x07seconds",
            b"\x43\x0a\x09w_seconds\x12\x01i\x18\x04",
            b"\x22\x28\x3a\x26",
            // Count 6, sum 5 s, schema 1.
            b"\x08\x06\x11\0\0\0\0\0\0\x14\x40\x28\x02",
            // 2^-20 s and less: 2.
            b"\x31\0\0\0\0\0\0\xb0\x3e\x38\x02",
            // The bucket up to 2^0 s, one left out, and the bucket up to 2^(2/2) s.
            b"\x62\x02\x10\x01",
            b"\x62\x04\x08\x02\x10\x01",
            // 3, and 2 less.
            b"\x6a\x02\x06\x03",
            b"\x2a\x07seconds",
        ];
        assert_eq!(protobuf(&Three).unwrap(), expected.concat());
    }

    #[test]
    fn text_is_as_openmetrics_defines_it() {
        let page = text(Three).unwrap();
        let lines: Vec<&str> = page.lines().collect();
        assert_eq!(
            lines[..9],
            [
                "# HELP a b",
                "# TYPE a counter",
                "a_total{p=\"x\"} 3",
                "# HELP g_seconds h",
                "# TYPE g_seconds gauge",
                "# UNIT g_seconds seconds",
                "g_seconds 0.5",
                "# HELP w_seconds i",
                "# TYPE w_seconds histogram",
            ]
        );
        assert!(
            page.ends_with("w_seconds_bucket{le=\"+Inf\"} 6\n# EOF\n"),
            "{page}"
        );
    }

    #[test]
    fn text_histograms_keep_all_buckets_after_the_first_used_one() {
        assert_eq!(classic(&histogram_of(&[])), [(f64::INFINITY, 0)]);
        let used = classic(&histogram_of(&[(16_000_000, 4)]));
        let expected = [
            (16.0, 4),
            (512_f64.sqrt(), 0),
            (32.0, 0),
            (f64::INFINITY, 0),
        ];
        assert_eq!(used, expected);
    }
}

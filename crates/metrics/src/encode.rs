//! The forms of what was counted that Prometheus reads: text (`OpenMetrics` 1.0) and
//! protobuf.

use crate::{FineHistogram, Histogram};
use prometheus_client::encoding::{
    DescriptorEncoder, MetricEncoder, NativeHistogram, NativeHistogramBuckets, NoLabelSet,
};
use prometheus_client::metrics::MetricType;
use std::fmt::Error;

/// The labels of a sample, each a name and a value.
pub type Labels<const N: usize> = [(&'static str, String); N];

/// Writes a counter: one sample for each of `samples`, its labels and its value.
///
/// # Errors
/// The text cannot be written.
pub fn counter<const N: usize>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    samples: &[(Labels<N>, u64)],
) -> Result<(), Error> {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for (labels, value) in samples {
        family
            .encode_family(labels)?
            .encode_counter::<NoLabelSet, _, u64>(value, None)?;
    }
    Ok(())
}

/// Writes a gauge: one sample for each of `samples`, its labels and its value.
///
/// # Errors
/// The text cannot be written.
pub fn gauge<const N: usize>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    samples: &[(Labels<N>, u64)],
) -> Result<(), Error> {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (labels, value) in samples {
        // A gauge is a signed number here; no count of packets reaches its end.
        let value = i64::try_from(*value).unwrap_or(i64::MAX);
        family.encode_family(labels)?.encode_gauge(&value)?;
    }
    Ok(())
}

/// How a histogram's buckets are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Buckets {
    /// Each with its upper bound, those below the first that has a count left out: all
    /// that the text form knows.
    Classic,
    /// Those that have a count and no others (Prometheus, *Native Histograms*), for the
    /// protobuf form.
    Native,
}

/// Writes a histogram of times, in seconds.
///
/// # Errors
/// It cannot be written.
pub fn histogram(
    mut family: MetricEncoder<'_>,
    histogram: &Histogram,
    buckets: Buckets,
) -> Result<(), Error> {
    let (sum, count) = (histogram.sum().as_secs_f64(), histogram.count());
    match buckets {
        Buckets::Classic => {
            let buckets = classic(histogram);
            family.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
        }
        Buckets::Native => {
            let native = Native {
                schema: Histogram::SCHEMA,
                zero_threshold: Histogram::bound(0),
                zero_count: histogram.counts()[0],
                runs: native(histogram),
            };
            native.write(family, sum, count)
        }
    }
}

/// Writes a finer histogram of times, in seconds; as text in the coarser one's buckets.
///
/// # Errors
/// It cannot be written.
pub fn fine_histogram(
    family: MetricEncoder<'_>,
    fine: &FineHistogram,
    buckets: Buckets,
) -> Result<(), Error> {
    match buckets {
        Buckets::Classic => histogram(family, &fine.coarse(), buckets),
        Buckets::Native => {
            let used = fine.used().filter(|(index, _)| *index > 0);
            let native = Native {
                schema: FineHistogram::SCHEMA,
                zero_threshold: FineHistogram::bound(0),
                zero_count: fine
                    .used()
                    .find(|(index, _)| *index == 0)
                    .map_or(0, |it| it.1),
                runs: runs(used.map(|(index, count)| (FineHistogram::exponent(index), count))),
            };
            native.write(family, fine.sum().as_secs_f64(), fine.count())
        }
    }
}

/// A native histogram of times.
struct Native {
    schema: i32,
    zero_threshold: f64,
    zero_count: u64,
    runs: Runs,
}

impl Native {
    fn write(&self, mut family: MetricEncoder<'_>, sum: f64, count: u64) -> Result<(), Error> {
        let (spans, deltas) = &self.runs;
        let none = NativeHistogramBuckets {
            spans: &[],
            deltas: &[],
        };
        let native = NativeHistogram {
            schema: self.schema,
            zero_threshold: self.zero_threshold,
            zero_count: self.zero_count,
            negative: none,
            positive: NativeHistogramBuckets { spans, deltas },
            created: None,
        };
        family.encode_histogram_with_native::<NoLabelSet>(sum, count, &[], None, native)
    }
}

/// Bounds and counts, from the first bucket on that has one. A sum over histograms takes a
/// bucket that is not there as empty, so none after that may be left out.
fn classic(histogram: &Histogram) -> Vec<(f64, u64)> {
    // What is beyond all bounds goes to the bucket without one.
    let bounds = (0..Histogram::BUCKETS).map(Histogram::bound);
    let bounds = bounds.chain([f64::INFINITY]);
    let buckets = bounds.zip(histogram.counts().iter().copied());
    let used = buckets.skip_while(|(bound, count)| *count == 0 && bound.is_finite());
    used.collect()
}

/// Runs of buckets that have counts: how many are left out before each, and how many it
/// has; and by how much each count is more than the one before.
type Runs = (Vec<(i32, u32)>, Vec<i64>);

fn native(histogram: &Histogram) -> Runs {
    let counts = histogram.counts().iter().copied().enumerate();
    let used = counts.skip(1).filter(|(_, count)| *count > 0);
    runs(used.map(|(index, count)| (Histogram::exponent(index), count)))
}

/// Makes runs of the indices of buckets that have a count, ascending, and these.
///
/// The first bucket is the one around zero, and not among them. What is beyond all bounds
/// goes to the bucket above the last.
fn runs(used: impl Iterator<Item = (i32, u64)>) -> Runs {
    let (mut spans, mut deltas) = (Vec::<(i32, u32)>::new(), Vec::new());
    let (mut next, mut before) = (0, 0);
    for (index, count) in used {
        match spans.last_mut() {
            Some((_, len)) if index == next => *len += 1,
            _ => spans.push((index - next, 1)),
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
    fn a_native_histogram_has_the_buckets_that_were_used() {
        assert_eq!(native(&histogram_of(&[])), (vec![], vec![]));
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
        assert_eq!(native(&histogram), (spans, vec![5, -3, 1, -2]));
        assert_eq!(histogram.counts()[0], 9);
    }

    #[test]
    fn in_text_no_bucket_is_left_out_behind_one_that_has_a_count() {
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

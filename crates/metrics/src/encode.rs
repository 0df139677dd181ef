//! The text form of what was counted: `OpenMetrics` 1.0.

use crate::Histogram;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
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

/// Writes a histogram of times, in seconds.
///
/// # Errors
/// The text cannot be written.
pub fn histogram(mut family: MetricEncoder<'_>, histogram: &Histogram) -> Result<(), Error> {
    // What is beyond all bounds goes to the bucket without one.
    let bounds = (0..Histogram::BUCKETS)
        .map(|index| Histogram::bound(index).as_secs_f64())
        .chain([f64::MAX]);
    let buckets: Vec<_> = bounds.zip(histogram.counts().iter().copied()).collect();
    family.encode_histogram::<NoLabelSet>(
        histogram.sum().as_secs_f64(),
        histogram.count(),
        &buckets,
        None,
    )
}

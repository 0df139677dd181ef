//! What the agent has measured, in the forms that Prometheus reads.

use crate::text::printable;
use crate::watch::{AgentSnapshot, Meter, MeterKey};
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;
use std::collections::BTreeMap;
use std::fmt::Error;
use tailbound_metrics::{Buckets, counter, gauge, histogram};

/// Writes a snapshot, its histograms with such buckets.
///
/// # Errors
/// It cannot be written.
pub fn encode(
    vcpus: &AgentSnapshot,
    buckets: Buckets,
    encoder: &mut DescriptorEncoder<'_>,
) -> Result<(), Error> {
    let mut family = encoder.encode_descriptor(
        "tailbound_vcpu_wait",
        "How long a guest's thread that could run waited for a CPU; each wait is entered with \
         the mean of its sampling interval",
        Some(&Unit::Seconds),
        MetricType::Histogram,
    )?;
    for (key, meter) in &vcpus.meters {
        let labels = labels(key);
        histogram(family.encode_family(&labels)?, &meter.waits, buckets)?;
    }
    let mut family = encoder.encode_descriptor(
        "tailbound_vcpu_cpu",
        "How long a guest's threads ran",
        Some(&Unit::Seconds),
        MetricType::Counter,
    )?;
    for (key, meter) in &vcpus.meters {
        let labels = labels(key);
        family
            .encode_family(&labels)?
            .encode_counter::<NoLabelSet, _, u64>(&meter.cpu.as_secs_f64(), None)?;
    }
    gauge(
        encoder,
        "tailbound_vcpu_class",
        "1 while all threads of that name have the class that is wanted, 0 while not",
        &vcpus.meters.iter().map(class).collect::<Vec<_>>(),
    )?;
    let mut family = encoder.encode_descriptor(
        "tailbound_vcpu_throttled",
        "How long a CPU quota held up a guest's control group, summed up over CPUs",
        Some(&Unit::Seconds),
        MetricType::Counter,
    )?;
    for ((guest, group), throttled) in &vcpus.throttled {
        let group = printable(&group.display().to_string());
        let labels = [("guest", guest.clone()), ("group", group)];
        family
            .encode_family(&labels)?
            .encode_counter::<NoLabelSet, _, u64>(&throttled.time.as_secs_f64(), None)?;
    }
    counter(
        encoder,
        "tailbound_vcpu_drift",
        "Threads and groups that had drifted: found changed by somebody else",
        &per_guest(&vcpus.drift),
    )?;
    counter(
        encoder,
        "tailbound_vcpu_errors",
        "Rounds in which a guest's class could not be applied; errors of the agent as a whole have \
         an empty guest",
        &per_guest(&vcpus.errors),
    )
}

fn labels(key: &MeterKey) -> [(&'static str, String); 2] {
    [("guest", key.guest.clone()), ("thread", key.thread.clone())]
}

fn class((key, meter): (&MeterKey, &Meter)) -> ([(&'static str, String); 3], u64) {
    let [guest, thread] = labels(key);
    let class = ("class", meter.class.to_owned());
    ([guest, thread, class], meter.in_force.into())
}

fn per_guest(counts: &BTreeMap<String, u64>) -> Vec<([(&'static str, String); 1], u64)> {
    let sample = |(guest, count): (&String, &u64)| ([("guest", guest.clone())], *count);
    counts.iter().map(sample).collect()
}

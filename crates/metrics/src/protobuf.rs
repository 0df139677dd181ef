//! The written part of Prometheus's protobuf format.
//!
//! The numbers are those of `metrics.proto` (package `io.prometheus.client`). Fields that this
//! crate never sets are left out: readers see their defaults.

use prost::Message;

/// A metric with all its samples.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct MetricFamily {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "2")]
    pub(crate) help: String,
    /// The number of a [`MetricType`].
    #[prost(enumeration = "MetricType", tag = "3")]
    pub(crate) kind: i32,
    #[prost(message, repeated, tag = "4")]
    pub(crate) metrics: Vec<Metric>,
    #[prost(string, tag = "5")]
    pub(crate) unit: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum MetricType {
    Counter = 0,
    Gauge = 1,
    Histogram = 4,
}

/// A sample: its labels, and the value of the family's type.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Metric {
    #[prost(message, repeated, tag = "1")]
    pub(crate) labels: Vec<LabelPair>,
    #[prost(message, optional, tag = "2")]
    pub(crate) gauge: Option<Gauge>,
    #[prost(message, optional, tag = "3")]
    pub(crate) counter: Option<Counter>,
    #[prost(message, optional, tag = "7")]
    pub(crate) histogram: Option<Histogram>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct LabelPair {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "2")]
    pub(crate) value: String,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct Gauge {
    #[prost(double, tag = "1")]
    pub(crate) value: f64,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct Counter {
    #[prost(double, tag = "1")]
    pub(crate) value: f64,
}

/// A native histogram (Prometheus, *Native Histograms*) of non-negative numbers.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Histogram {
    #[prost(uint64, tag = "1")]
    pub(crate) count: u64,
    #[prost(double, tag = "2")]
    pub(crate) sum: f64,
    /// The bound of each bucket is 2^(2^-schema) times the previous one.
    #[prost(sint32, tag = "5")]
    pub(crate) schema: i32,
    /// The bound of the bucket around zero.
    #[prost(double, tag = "6")]
    pub(crate) zero_threshold: f64,
    /// The count of that bucket.
    #[prost(uint64, tag = "7")]
    pub(crate) zero_count: u64,
    /// The runs of buckets that have counts.
    #[prost(message, repeated, tag = "12")]
    pub(crate) spans: Vec<BucketSpan>,
    /// For each of these buckets the difference to the previous count.
    #[prost(sint64, repeated, tag = "13")]
    pub(crate) deltas: Vec<i64>,
}

/// A run of buckets.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct BucketSpan {
    /// The number of buckets left out before it; the index of its first bucket in the first run.
    #[prost(sint32, tag = "1")]
    pub(crate) offset: i32,
    #[prost(uint32, tag = "2")]
    pub(crate) length: u32,
}

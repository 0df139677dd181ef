//! Sends traces and metrics to an OpenTelemetry collector, by OTLP 1: protobuf over HTTP.
//!
//! Use this crate in a daemon that has its metrics as Prometheus text already. Do not use it for
//! logs, or if every span must arrive: spans beyond its bounds are dropped and counted.
//!
//! A [`Span`], and the metrics in the text that Prometheus reads, become messages of the crate
//! `opentelemetry-proto`. [`Exporter`] is the thread that sends both, so the caller never waits for
//! a collector. The exporters of OpenTelemetry's SDK are not used: they have a second HTTP client,
//! and send only metrics of the SDK's own instruments. The messages alone add 12 crates to the 139
//! of `tailbound-host`, among them the SDK, but no async runtime, gRPC or HTTP client.

mod endpoint;
mod exporter;
mod metrics;
mod span;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use endpoint::{Endpoint, EndpointError};
pub use exporter::{AskMetrics, Exporter, Settings};
pub use span::{Context, Kind, Span, Value};

use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};

/// Returns an attribute: a name and its value.
fn attribute(name: &str, value: Value) -> KeyValue {
    KeyValue {
        key: name.to_owned(),
        value: Some(AnyValue { value: Some(value) }),
        ..KeyValue::default()
    }
}

fn text(value: &str) -> Value {
    Value::StringValue(value.to_owned())
}

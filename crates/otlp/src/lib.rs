//! Sends traces and metrics to an OpenTelemetry collector, by OTLP 1: JSON over HTTP.
//!
//! Use this crate in a daemon that has its metrics as Prometheus text already. Do not use it for
//! logs, or if every span must arrive: spans beyond its bounds are dropped and counted.
//!
//! A [`Span`] becomes OTLP's JSON, and metrics are converted from the text that Prometheus reads.
//! [`Exporter`] is the thread that sends both, so the caller never waits for a collector.

mod endpoint;
mod exporter;
mod metrics;
mod span;

pub use endpoint::{Endpoint, EndpointError};
pub use exporter::{AskMetrics, Exporter, Settings};
pub use span::{Context, Kind, Span, Status, Value};

use serde_json::json;

/// Attributes in OTLP's form: names and values.
fn attributes<'a>(all: impl Iterator<Item = (&'a str, serde_json::Value)>) -> serde_json::Value {
    let pair = |(key, value): (&str, serde_json::Value)| json!({"key": key, "value": value});
    all.map(pair).collect()
}

fn text(value: &str) -> serde_json::Value {
    json!({ "stringValue": value })
}

/// The sender, as OTLP describes it.
fn scope() -> serde_json::Value {
    json!({"name": "tailbound", "version": env!("CARGO_PKG_VERSION")})
}

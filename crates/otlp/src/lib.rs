//! Traces and metrics to a collector, by OTLP 1: JSON over HTTP.
//!
//! A [`Span`] is told as OTLP's JSON has it, metrics are read from the text that Prometheus reads;
//! [`Exporter`] is the thread that tells them. Whoever makes spans never waits for a collector.

mod endpoint;
mod exporter;
mod metrics;
mod span;

pub use endpoint::{Endpoint, EndpointError};
pub use exporter::{AskMetrics, Exporter, Settings};
pub use span::{Context, Kind, Span, Status, Value};

use serde_json::json;

/// `name` and value of each, as OTLP has attributes.
fn attributes<'a>(all: impl Iterator<Item = (&'a str, serde_json::Value)>) -> serde_json::Value {
    let pair = |(key, value): (&str, serde_json::Value)| json!({"key": key, "value": value});
    all.map(pair).collect()
}

fn text(value: &str) -> serde_json::Value {
    json!({ "stringValue": value })
}

/// Who tells.
fn scope() -> serde_json::Value {
    json!({"name": "tailbound", "version": env!("CARGO_PKG_VERSION")})
}

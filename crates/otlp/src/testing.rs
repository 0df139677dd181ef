//! A stand-in for a collector, for tests.

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::metrics::v1::{Metric, NumberDataPoint, metric, number_data_point};
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};

/// A request to the collector.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Request {
    /// Attributes of the sender.
    pub resource: Vec<KeyValue>,
    /// The spans of a request to `/v1/traces`.
    pub spans: Vec<Span>,
    /// The metrics of a request to `/v1/metrics`.
    pub metrics: Vec<Metric>,
}

impl Request {
    /// Returns the data points of a counter or a gauge.
    pub fn points(&self, name: &str) -> &[NumberDataPoint] {
        let metric = self.metrics.iter().find(|metric| metric.name == name);
        match metric.and_then(|metric| metric.data.as_ref()) {
            Some(metric::Data::Sum(sum)) => &sum.data_points,
            Some(metric::Data::Gauge(gauge)) => &gauge.data_points,
            _ => &[],
        }
    }
}

/// Returns the number of a data point.
pub fn number(point: &NumberDataPoint) -> f64 {
    match point.value {
        Some(number_data_point::Value::AsDouble(number)) => number,
        Some(number_data_point::Value::AsInt(number)) => number as f64,
        None => f64::NAN,
    }
}

/// Returns an attribute as text, or `None` if it is missing.
pub fn attribute(attributes: &[KeyValue], name: &str) -> Option<String> {
    let found = attributes.iter().find(|attribute| attribute.key == name)?;
    match found.value.as_ref()?.value.as_ref()? {
        Value::StringValue(text) => Some(text.clone()),
        Value::IntValue(number) => Some(number.to_string()),
        other => Some(format!("{other:?}")),
    }
}

/// Answers each request with the next of these statuses, and with 200 after the last. Returns the
/// collector's address, and its requests.
///
/// # Panics
/// The computer has no free port.
pub fn collector(statuses: &'static [u16]) -> (String, Receiver<Request>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    let (seen, requests) = channel();
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let status = statuses.get(number).copied().unwrap_or(200);
            let request = answer(stream.expect("a connection"), status);
            if seen.send(request).is_err() {
                return;
            }
        }
    });
    (format!("http://{address}"), requests)
}

/// Reads a request and answers it.
fn answer(mut stream: TcpStream, status: u16) -> Request {
    let mut lines = BufReader::new(stream.try_clone().expect("a descriptor"));
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        lines.read_line(&mut line).expect("a line");
        if line.trim().is_empty() {
            break;
        }
        head.push(line);
    }
    let value = |name: &str| {
        let mut fields = head.iter().filter_map(|line| line.split_once(':'));
        let field = fields.find(|(field, _)| field.eq_ignore_ascii_case(name));
        field.map_or("", |(_, value)| value).trim()
    };
    assert_eq!(value("content-type"), "application/x-protobuf", "{head:?}");
    let mut body = vec![0; value("content-length").parse().expect("a length")];
    lines.read_exact(&mut body).expect("the body");
    let answer = format!("HTTP/1.1 {status} x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    stream.write_all(answer.as_bytes()).expect("written");
    match head[0].split(' ').nth(1) {
        Some("/v1/traces") => traces(&body),
        Some("/v1/metrics") => metrics(&body),
        other => panic!("no collector has {other:?}"),
    }
}

fn traces(body: &[u8]) -> Request {
    let message = ExportTraceServiceRequest::decode(body).expect("traces");
    let mut request = Request::default();
    for part in message.resource_spans {
        request.resource = part.resource.expect("a sender").attributes;
        let scopes = part.scope_spans.into_iter();
        request.spans.extend(scopes.flat_map(|scope| scope.spans));
    }
    request
}

fn metrics(body: &[u8]) -> Request {
    let message = ExportMetricsServiceRequest::decode(body).expect("metrics");
    let mut request = Request::default();
    for part in message.resource_metrics {
        request.resource = part.resource.expect("a sender").attributes;
        let scopes = part.scope_metrics.into_iter();
        let metrics = scopes.flat_map(|scope| scope.metrics);
        request.metrics.extend(metrics);
    }
    request
}

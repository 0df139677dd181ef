//! Spans, and the trace that they belong to.

use crate::{attributes, text};
use serde_json::json;
use std::fmt::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The trace and the parent span of an operation (W3C Trace Context).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Context {
    trace: [u8; 16],
    span: [u8; 8],
}

impl Context {
    /// Returns the root of a new trace, or `None` if the system has no random numbers.
    pub fn root() -> Option<Self> {
        Some(Self {
            trace: random()?,
            span: random()?,
        })
    }

    /// Returns a child of this context.
    pub fn child(&self) -> Option<Self> {
        Some(Self {
            trace: self.trace,
            span: random()?,
        })
    }

    /// Returns the caller's context from a `traceparent` header, and whether the caller records it;
    /// `None` if the header is invalid.
    pub fn of_header(header: &str) -> Option<(Self, bool)> {
        let mut parts = header.trim().split('-');
        let (version, trace) = (parts.next()?, parts.next()?);
        let (span, flags) = (parts.next()?, parts.next()?);
        let [version]: [u8; 1] = hex(version)?;
        // A later version may have more, the first has not.
        if version == 0xff || version == 0 && parts.next().is_some() {
            return None;
        }
        let context = Self {
            trace: hex(trace)?,
            span: hex(span)?,
        };
        let [flags]: [u8; 1] = hex(flags)?;
        let is_valid = context.trace != [0; 16] && context.span != [0; 8];
        is_valid.then_some((context, flags & 1 == 1))
    }
}

fn random<const N: usize>() -> Option<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).ok()?;
    // All zeros is no number of a trace.
    bytes[N - 1] |= 1;
    Some(bytes)
}

fn hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    if text.len() != 2 * N || !text.bytes().all(is_hex) {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    }
    Some(bytes)
}

fn digits(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The side of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// An internal operation.
    Internal = 1,
    /// The server.
    Server = 2,
}

/// The result of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Status {
    /// No result was set.
    Unset,
    /// An error, with its reason.
    Failed(String),
}

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// A text.
    Text(String),
    /// A whole number.
    Number(i64),
}

/// An operation with a duration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// Its own context.
    pub context: Context,
    /// The parent span.
    pub parent: Option<Context>,
    /// The name of the operation; only few different names exist.
    pub name: String,
    /// The side of a call.
    pub kind: Kind,
    /// Start time.
    pub begin: SystemTime,
    /// Duration of the operation.
    pub took: Duration,
    /// Attributes of the operation: name and value.
    pub attributes: Vec<(&'static str, Value)>,
    /// The result of an operation.
    pub status: Status,
}

/// Nanoseconds since 1970, in protobuf's JSON form of 64-bit numbers.
pub(crate) fn nanos(at: SystemTime) -> String {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_nanos().to_string()
}

impl Span {
    pub(crate) fn json(&self) -> serde_json::Value {
        let value = |value: &Value| match value {
            Value::Text(value) => text(value),
            Value::Number(value) => json!({ "intValue": value.to_string() }),
        };
        let all = self.attributes.iter().map(|(key, of)| (*key, value(of)));
        let mut span = json!({
            "traceId": digits(&self.context.trace),
            "spanId": digits(&self.context.span),
            "name": self.name,
            "kind": self.kind as u8,
            "startTimeUnixNano": nanos(self.begin),
            "endTimeUnixNano": nanos(self.begin + self.took),
            "attributes": attributes(all),
            "status": match &self.status {
                Status::Unset => json!({}),
                Status::Failed(why) => json!({"code": 2, "message": why}),
            },
        });
        if let Some(parent) = &self.parent {
            span["parentSpanId"] = digits(&parent.span).into();
        }
        span
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HEADER: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_span_is_part_of_what_its_caller_says() {
        let (caller, is_kept) = Context::of_header(HEADER).expect("the one of the standard");
        assert!(is_kept);
        let context = caller.child().expect("random numbers");
        let span = Span {
            context,
            parent: Some(caller),
            name: "GET /v1/tenants".to_owned(),
            kind: Kind::Server,
            begin: UNIX_EPOCH + Duration::from_secs(3),
            took: Duration::from_micros(7),
            attributes: vec![
                ("http.request.method", Value::Text("GET".to_owned())),
                ("http.response.status_code", Value::Number(200)),
            ],
            status: Status::Unset,
        };
        let json = span.json();
        assert_eq!(json["traceId"], "0af7651916cd43dd8448eb211c80319c");
        assert_eq!(json["parentSpanId"], "b7ad6b7169203331");
        assert_ne!(json["spanId"], json["parentSpanId"]);
        assert_eq!(json["startTimeUnixNano"], "3000000000");
        assert_eq!(json["endTimeUnixNano"], "3000007000");
        assert_eq!(json["attributes"][1]["value"]["intValue"], "200");
    }

    #[test]
    fn what_is_no_header_of_the_standard_begins_a_trace_of_its_own() {
        let unkept = HEADER.replace("-01", "-00");
        assert!(Context::of_header(&unkept).is_some_and(|(_, is_kept)| !is_kept));
        // A later version with more is read as this one.
        assert!(Context::of_header(&format!("01{}-more", &HEADER[2..])).is_some());
        let zeros = HEADER.replace("b7ad6b7169203331", "0000000000000000");
        for wrong in [
            "",
            "00",
            &zeros,
            &format!("ff{}", &HEADER[2..]),
            &format!("{HEADER}-more"),
            &HEADER.to_uppercase(),
            &HEADER.replace('7', "+"),
        ] {
            assert_eq!(Context::of_header(wrong), None, "{wrong}");
        }
        assert_ne!(Context::root(), Context::root());
    }

    proptest! {
        #[test]
        fn any_header_is_read_or_not(text in ".{0,80}") {
            let _ = Context::of_header(&text);
        }
    }
}

//! Spans, and the trace that they belong to.

use crate::attribute;
use opentelemetry_proto::tonic::trace::v1::{self as trace, status::StatusCode};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Value of an attribute.
pub use opentelemetry_proto::tonic::common::v1::any_value::Value;
/// Side of a call.
pub use opentelemetry_proto::tonic::trace::v1::span::SpanKind as Kind;

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

/// An operation with a duration.
#[derive(Debug, Clone, PartialEq)]
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
    /// Reason of a failure; `None` if the operation succeeded or refused its request.
    pub failure: Option<String>,
}

/// Returns the nanoseconds since 1970.
pub(crate) fn nanos(at: SystemTime) -> u64 {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

impl From<&Span> for trace::Span {
    fn from(span: &Span) -> Self {
        let status = span.failure.as_ref().map(|failure| trace::Status {
            code: StatusCode::Error.into(),
            message: failure.clone(),
        });
        let attributes = span.attributes.iter();
        let attributes = attributes.map(|(name, value)| attribute(name, value.clone()));
        Self {
            trace_id: span.context.trace.into(),
            span_id: span.context.span.into(),
            parent_span_id: span.parent.map_or(Vec::new(), |parent| parent.span.into()),
            name: span.name.clone(),
            kind: span.kind.into(),
            start_time_unix_nano: nanos(span.begin),
            end_time_unix_nano: nanos(span.begin + span.took),
            attributes: attributes.collect(),
            status,
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{testing, text};
    use proptest::prelude::*;

    const HEADER: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_span_belongs_to_the_callers_trace() {
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
                ("http.request.method", text("GET")),
                ("http.response.status_code", Value::IntValue(200)),
            ],
            failure: None,
        };
        let message = trace::Span::from(&span);
        let [.., trace, parent, _] = &*HEADER.split('-').collect::<Vec<_>>() else {
            panic!("four parts");
        };
        assert_eq!(Some(message.trace_id), hex::<16>(trace).map(Vec::from));
        assert_eq!(message.parent_span_id, caller.span);
        assert_eq!(hex(parent), Some(caller.span));
        assert_ne!(message.span_id, message.parent_span_id);
        let times = (message.start_time_unix_nano, message.end_time_unix_nano);
        assert_eq!(times, (3_000_000_000, 3_000_007_000));
        let status = testing::attribute(&message.attributes, "http.response.status_code");
        assert_eq!(status.as_deref(), Some("200"));
        assert_eq!(message.status, None);
    }

    #[test]
    fn an_invalid_traceparent_header_is_ignored() {
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

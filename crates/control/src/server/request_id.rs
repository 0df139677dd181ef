//! The id of each request, in its answer and in the audit log.

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::middleware::Next;
use axum::response::Response;
use sha2::{Digest as _, Sha256};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// The header of the id, in requests and answers.
pub(super) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Limit on the length of a caller's own id.
const MAX_LENGTH: usize = 128;

/// The id of a request: the caller's own, or one of this process.
#[derive(Debug, Clone)]
pub(super) struct RequestId(HeaderValue);

impl RequestId {
    /// Returns the caller's id if it is 1 to 128 of A-Z, a-z, 0-9, -, _, . and :, else a new one.
    fn of(headers: &HeaderMap) -> Self {
        let own = headers.get(REQUEST_ID).filter(|value| {
            let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(byte);
            (1..=MAX_LENGTH).contains(&value.len()) && value.as_bytes().iter().all(plain)
        });
        Self(own.cloned().unwrap_or_else(new))
    }

    pub(super) fn text(&self) -> &str {
        self.0.to_str().unwrap_or_default()
    }
}

/// Returns an id that no other process and no other request has: a hash of the process, and a number.
fn new() -> HeaderValue {
    static PROCESS: OnceLock<String> = OnceLock::new();
    static NUMBER: AtomicU64 = AtomicU64::new(1);
    let process = PROCESS.get_or_init(|| {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let since = since.unwrap_or_default().as_nanos();
        let hash = Sha256::digest(format!("{since} {}", std::process::id()));
        let first = hash[..6].iter();
        first.fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
    });
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    HeaderValue::try_from(format!("{process}-{number}")).expect("it has plain letters only")
}

/// Adds an id to each request and to its answer.
pub(super) async fn attach(mut request: Request, next: Next) -> Response {
    let id = RequestId::of(request.headers());
    // A follower passes it on to the leader.
    request.headers_mut().insert(REQUEST_ID, id.0.clone());
    request.extensions_mut().insert(id.clone());
    let mut response = next.run(request).await;
    response.headers_mut().insert(REQUEST_ID, id.0);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_callers_request_id_is_kept_if_it_is_plain() {
        let of = |text: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(REQUEST_ID, HeaderValue::from_static(text));
            RequestId::of(&headers).text().to_owned()
        };
        assert_eq!(of("deploy-7.a:b_c"), "deploy-7.a:b_c");
        let long: &'static str = Box::leak("a".repeat(MAX_LENGTH + 1).into_boxed_str());
        for wrong in ["", "a b", "a\"b", long] {
            let made = of(wrong);
            assert!(made != wrong && made.len() > 12, "{made}");
        }
        assert_ne!(new(), new());
    }
}

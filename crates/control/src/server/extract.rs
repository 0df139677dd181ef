//! The extractors of handlers. They replace axum's own, which would answer errors in plain text.

use super::App;
use super::problem::ApiError;
use super::request_id::RequestId;
use super::tokens::{Caller, Identity};
use crate::ledger::{Call, Command, Quota};
use axum::body::{Bytes, to_bytes};
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::header::{CONTENT_TYPE, IF_MATCH};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName};
use serde::de::DeserializeOwned;
use sha2::{Digest as _, Sha256};
use std::error::Error as _;
use std::sync::Arc;
use tailbound_api::{
    Adoption, AuditCaller, Batch, CandidateQuestions, Code, HostMachines, HostReport, MachinePut,
    MoveVm, NewReservation, NewTenant, NewToken, ReservationId, TIME_HEADER, TenantPatch, VmLimit,
};
use tailbound_placement::{Request as PlacementRequest, Spec, TenantId};

/// The header by which a retried write is recognised as the same write (an IETF draft).
pub(super) const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Bodies above this length in bytes are parsed on a separate thread.
const LONG_BODY: usize = 64 * 1024;

/// The query. Unknown parameters are refused.
pub(super) struct Params<T>(pub(super) T);

impl<T: DeserializeOwned + Send> FromRequestParts<Arc<App>> for Params<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<App>) -> Result<Self, ApiError> {
        Query::try_from_uri(&parts.uri)
            .map(|Query(params)| Self(params))
            .map_err(|rejection| {
                // Below what the library says of itself is what is wrong with the query.
                let why = rejection.source().map(ToString::to_string);
                let why = why.unwrap_or_else(|| rejection.body_text());
                ApiError::malformed(format!("the query is not as it has to be: {why}"))
            })
    }
}

/// A tenant's number in the path.
pub(super) struct Id(pub(super) TenantId);

impl FromRequestParts<Arc<App>> for Id {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, ApiError> {
        let PathName(text) = PathName::from_request_parts(parts, app).await?;
        tenant_number(&text).map(Self)
    }
}

fn tenant_number(text: &str) -> Result<TenantId, ApiError> {
    // `parse` also accepts a sign.
    match text.parse() {
        Ok(id) if text.bytes().all(|byte| byte.is_ascii_digit()) => Ok(TenantId(id)),
        _ => Err(ApiError::malformed(format!(
            "{text:?} is not a tenant's number; those are in the list at /v1/tenants"
        ))),
    }
}

/// The name of a host, rack or pod in the path.
pub(super) struct PathName(pub(super) String);

impl FromRequestParts<Arc<App>> for PathName {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, ApiError> {
        Path::from_request_parts(parts, app)
            .await
            .map(|Path(name)| Self(name))
            .map_err(|rejection| ApiError::malformed(rejection.body_text()))
    }
}

/// The time of day at which a host sent its report, in milliseconds since 1970, if it is known.
pub(super) struct SentAt(pub(super) Option<u64>);

impl FromRequestParts<Arc<App>> for SentAt {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<App>) -> Result<Self, ApiError> {
        let Some(value) = parts.headers.get(TIME_HEADER) else {
            return Ok(Self(None));
        };
        let time = value.to_str().ok().and_then(|text| text.parse().ok());
        time.map(|time| Self(Some(time))).ok_or_else(|| {
            ApiError::malformed(format!(
                "the header {TIME_HEADER} is {value:?}; it has milliseconds since 1970"
            ))
        })
    }
}

/// A reservation's number in the path.
pub(super) struct ReservationPath(pub(super) ReservationId);

impl FromRequestParts<Arc<App>> for ReservationPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, ApiError> {
        let PathName(text) = PathName::from_request_parts(parts, app).await?;
        text.parse().map(Self).map_err(ApiError::malformed)
    }
}

/// A tenant's number and the name of a host in the path.
pub(super) struct TenantHost(pub(super) TenantId, pub(super) String);

impl FromRequestParts<Arc<App>> for TenantHost {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<App>) -> Result<Self, ApiError> {
        let path = Path::<(String, String)>::from_request_parts(parts, &()).await;
        let Path((id, host)) = path.map_err(|it| ApiError::malformed(it.body_text()))?;
        Ok(Self(tenant_number(&id)?, host))
    }
}

/// Returns the caller's identity, as the guard has established it.
fn identity(parts: &Parts) -> Result<Identity, ApiError> {
    parts
        .extensions
        .get()
        .cloned()
        .ok_or_else(|| ApiError::new(Code::Unauthenticated, "the request has no valid token"))
}

/// The caller.
pub(super) struct By(pub(super) Identity);

impl FromRequestParts<Arc<App>> for By {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<App>) -> Result<Self, ApiError> {
        identity(parts).map(Self)
    }
}

impl Identity {
    /// Returns the owner whose tenants the caller sees; None for all.
    pub(super) fn owner(&self) -> Option<&str> {
        match &self.caller {
            Caller::Tenant { owner } => Some(owner),
            Caller::Operator
            | Caller::Maintenance
            | Caller::Viewer
            | Caller::Metrics
            | Caller::Host { .. } => None,
        }
    }
}

/// A type that can be read from a body.
pub(super) trait Content: Send + Sized + 'static {
    /// Reads it.
    fn read(headers: &HeaderMap, body: &[u8]) -> Result<Self, ApiError>;
}

impl Content for () {
    fn read(_: &HeaderMap, _: &[u8]) -> Result<Self, ApiError> {
        Ok(())
    }
}

macro_rules! json_content {
    ($($type:ty),+) => {$(
        impl Content for $type {
            fn read(headers: &HeaderMap, body: &[u8]) -> Result<Self, ApiError> {
                json(headers, body)
            }
        }
    )+};
}

json_content!(
    NewTenant,
    TenantPatch,
    MoveVm,
    VmLimit,
    PlacementRequest,
    Spec,
    HostReport,
    HostMachines,
    MachinePut,
    CandidateQuestions,
    NewReservation,
    Batch,
    Adoption,
    NewToken
);

fn json<T: DeserializeOwned>(headers: &HeaderMap, body: &[u8]) -> Result<T, ApiError> {
    let content_type = headers.get(CONTENT_TYPE).map(|value| value.to_str());
    let essence = |text: &str| {
        let (essence, _) = text.split_once(';').unwrap_or((text, ""));
        essence.trim().to_ascii_lowercase()
    };
    match content_type {
        Some(Ok(text)) if essence(text) == "application/json" => {}
        content_type => {
            let content_type = match content_type {
                Some(Ok(text)) => format!("{text:?}"),
                Some(Err(_)) => "not readable".to_owned(),
                None => "missing".to_owned(),
            };
            return Err(ApiError::new(
                Code::MediaType,
                format!("the Content-Type is {content_type}; it has to be application/json"),
            ));
        }
    }
    read(body)
        .or_else(|error| match whole_numbers(body) {
            Some(body) => read(&body),
            None => Err(error),
        })
        .map_err(|Unreadable { field, why }| {
            let detail = format!("the body is not as it has to be: {why}");
            ApiError::malformed(detail).at_field(field)
        })
}

/// Reason why a body cannot be read.
#[derive(Debug)]
struct Unreadable {
    /// The wrong field; None if the text is not JSON.
    field: Option<String>,
    why: String,
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Unreadable> {
    let mut reader = serde_json::Deserializer::from_slice(body);
    let value = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        match error.path().to_string().as_str() {
            // The error is about the text, not about one field.
            "." | "?" => Unreadable {
                field: None,
                why: error.into_inner().to_string(),
            },
            field => Unreadable {
                field: Some(field.to_owned()),
                why: error.to_string(),
            },
        }
    })?;
    reader.end().map_err(|error| Unreadable {
        field: None,
        why: error.to_string(),
    })?;
    Ok(value)
}

/// Returns the text with `8` in place of `8.0`, which is a whole number for JSON schemas but not
/// for serde. Returns None if there is no such number.
fn whole_numbers(text: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let (mut at, mut quoted) = (0, false);
    while let Some(&byte) = text.get(at) {
        let after_digit = out.last().is_some_and(u8::is_ascii_digit);
        if quoted && byte == b'\\' {
            // What is escaped ends no text.
            out.push(byte);
            at += 1;
        } else if byte == b'"' {
            quoted = !quoted;
        } else if !quoted && byte == b'.' && after_digit {
            let rest = &text[at + 1..];
            let zeros = rest.iter().take_while(|byte| **byte == b'0').count();
            let next = rest.get(zeros).copied().unwrap_or(b' ');
            if zeros > 0 && !next.is_ascii_digit() && !matches!(next, b'e' | b'E') {
                at += 1 + zeros;
                continue;
            }
        }
        out.extend(text.get(at));
        at += 1;
    }
    (out.len() < text.len()).then_some(out)
}

/// The body, which the guard has read.
async fn bytes(body: axum::body::Body) -> Result<Bytes, ApiError> {
    to_bytes(body, usize::MAX)
        .await
        .map_err(|error| ApiError::malformed(error.to_string()))
}

async fn content<T: Content>(headers: HeaderMap, body: Bytes) -> Result<T, ApiError> {
    if body.len() <= LONG_BODY {
        return T::read(&headers, &body);
    }
    tokio::task::spawn_blocking(move || T::read(&headers, &body))
        .await
        .map_err(|error| {
            ApiError::new(Code::Store, format!("the body could not be read: {error}"))
        })?
}

/// The body of a request that changes nothing.
pub(super) struct Body<T>(pub(super) T);

impl<T: Content> FromRequest<Arc<App>> for Body<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &Arc<App>) -> Result<Self, ApiError> {
        let (parts, body) = request.into_parts();
        Ok(Self(content(parts.headers, bytes(body).await?).await?))
    }
}

/// A request that changes something.
pub(super) struct Write<T> {
    pub(super) body: T,
    pub(super) author: Author,
}

/// The author of a write, with the key and the fingerprint that make a retry the same write.
pub(super) struct Author {
    by: Identity,
    request: Option<RequestId>,
    key: Option<String>,
    fingerprint: [u8; 32],
    /// The change of the tenant, or the revision of the topology, that the author knows.
    expected: Option<u64>,
}

impl<T: Content> FromRequest<Arc<App>> for Write<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &Arc<App>) -> Result<Self, ApiError> {
        let (parts, body) = request.into_parts();
        let by = identity(&parts)?;
        let request = parts.extensions.get::<RequestId>().cloned();
        let key = key(&parts.headers)?;
        let expected = if_match(&parts.headers)?;
        let mut hash = Sha256::new();
        // With the length of each part, so that no part can be taken for another's beginning.
        for part in [
            parts.method.as_str().as_bytes(),
            parts.uri.path().as_bytes(),
            parts
                .headers
                .get(IF_MATCH)
                .map_or(&[], |value| value.as_bytes()),
        ] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        if let Some(query) = parts.uri.query() {
            hash.update((query.len() as u64).to_be_bytes());
            hash.update(query.as_bytes());
        }
        let body = bytes(body).await?;
        hash.update(&body);
        Ok(Self {
            body: content(parts.headers, body).await?,
            author: Author {
                by,
                request,
                key,
                fingerprint: hash.finalize().into(),
                expected,
            },
        })
    }
}

impl Author {
    /// Returns the caller's identity.
    pub(super) fn by(&self) -> &Identity {
        &self.by
    }

    /// Returns the author as the audit names it.
    pub(super) fn caller(&self) -> AuditCaller {
        AuditCaller {
            token: self.by.name.clone(),
            role: self.by.caller.to_string(),
            request: self.request.as_ref().map_or("", RequestId::text).to_owned(),
        }
    }

    /// Returns the owner whose tenants the author may change; None for all.
    pub(super) fn owner(&self) -> Option<&str> {
        self.by.owner()
    }

    /// Returns the change or the revision that the author knows, if a condition was sent.
    pub(super) const fn expected(&self) -> Option<u64> {
        self.expected
    }

    /// Returns the author's call of `command`.
    pub(super) fn call(self, quota: Quota, command: Command) -> Call {
        let caller = self.caller();
        Call {
            owner: self.by.owner().map(str::to_owned),
            quota,
            key: self.key,
            fingerprint: self.fingerprint,
            expected: self.expected,
            caller,
            command,
        }
    }
}

/// Returns the idempotency key, if there is one: 1 to 128 printable ASCII characters.
fn key(headers: &HeaderMap) -> Result<Option<String>, ApiError> {
    let mut keys = headers.get_all(IDEMPOTENCY_KEY).iter();
    let (Some(key), more) = (keys.next(), keys.next()) else {
        return Ok(None);
    };
    let printable = |byte: &u8| (b' '..=b'~').contains(byte);
    match key.to_str() {
        Ok(text)
            if more.is_none()
                && (1..=128).contains(&text.len())
                && text.as_bytes().iter().all(printable) =>
        {
            Ok(Some(text.to_owned()))
        }
        _ => Err(ApiError::malformed(
            "the Idempotency-Key is not one of 1 to 128 printable ASCII characters",
        )),
    }
}

/// Returns the revision that `If-Match` names; None if any revision is accepted.
fn if_match(headers: &HeaderMap) -> Result<Option<u64>, ApiError> {
    let Some(value) = headers.get(IF_MATCH) else {
        return Ok(None);
    };
    let text = value.to_str().unwrap_or_default().trim();
    if text == "*" {
        return Ok(None);
    }
    // Without quotes it is no ETag, but clear enough.
    let bare = text
        .strip_prefix('"')
        .map_or(Some(text), |text| text.strip_suffix('"'));
    bare.filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))
        .and_then(|text| text.parse().ok())
        .map(Some)
        .ok_or_else(|| {
            ApiError::malformed(format!(
                "the If-Match of {text:?} is no ETag of this service, such as \"3\", nor *"
            ))
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::Value;

    /// Returns whether two values are equal, with numbers compared by value.
    fn same(one: &Value, other: &Value) -> bool {
        match (one, other) {
            (Value::Number(one), Value::Number(other)) => one.as_f64() == other.as_f64(),
            (Value::Array(one), Value::Array(other)) => {
                one.len() == other.len()
                    && one.iter().zip(other).all(|(one, other)| same(one, other))
            }
            (one, other) => one == other,
        }
    }

    #[test]
    fn whole_floats_become_integers_and_strings_are_kept() {
        let text = br#"{"a": 8.0, "b": "8.0", "c\\\"8.0": [1.50, 2.000, -3.0], "d": 1.0e3}"#;
        let whole = whole_numbers(text).unwrap();
        let expected = r#"{"a": 8, "b": "8.0", "c\\\"8.0": [1.50, 2, -3], "d": 1.0e3}"#;
        assert_eq!(String::from_utf8(whole).unwrap(), expected);
        assert_eq!(whole_numbers(br#"{"a": 8, "b": "8.0"}"#), None);
    }

    proptest! {
        #[test]
        fn whole_number_conversion_preserves_json_values(
            values in prop::collection::vec(
                prop_oneof![
                    any::<i32>().prop_map(|i| Value::from(f64::from(i))),
                    any::<f64>().prop_map(Value::from),
                    ".*".prop_map(Value::from),
                ],
                0..8,
            ),
        ) {
            let values = Value::from(values);
            let text = values.to_string();
            let whole = whole_numbers(text.as_bytes()).unwrap_or(text.into_bytes());
            let read: Value = serde_json::from_slice(&whole).unwrap();
            prop_assert!(same(&read, &values), "{read} {values}");
        }

        #[test]
        fn any_bytes_are_read_or_refused(body in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = whole_numbers(&body);
            let _ = read::<NewTenant>(&body);
        }
    }
}

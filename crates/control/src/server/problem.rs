//! Errors as the callers of the API receive them (RFC 9457).

use crate::ledger::{LedgerError, Reply};
use crate::service::ServiceError;
use axum::http::header::{ALLOW, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use std::time::Duration;
use tailbound_api::{Code, Problem, RefusalDetail};
use utoipa::openapi::{ContentBuilder, Ref, RefOr, ResponseBuilder, ResponsesBuilder};

/// RFC 9457.
const PROBLEM_JSON: &str = "application/problem+json";

/// The error of a handler: a [`Problem`], and the header that belongs to it.
#[derive(Debug)]
pub(super) struct ApiError {
    /// Boxed, so that results are small.
    problem: Box<Problem>,
    /// Boxed, since most have none.
    header: Option<Box<(HeaderName, HeaderValue)>>,
}

impl ApiError {
    /// Makes an error of this kind. `detail` describes the mistake, its place, and a correct value.
    pub(super) fn new(code: Code, detail: impl Into<String>) -> Self {
        let header = match code {
            Code::Unauthenticated => Some((WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))),
            Code::Unavailable => Some((RETRY_AFTER, HeaderValue::from_static("1"))),
            _ => None,
        };
        let header = header.map(Box::new);
        Self {
            problem: Box::new(Problem::new(code, detail)),
            header,
        }
    }

    /// Makes the error for a caller above its rate, which may retry after this time.
    pub(super) fn too_many(subject: &str, wait: Duration) -> Self {
        let seconds = wait.as_secs_f64().ceil().max(1.0);
        let mut error = Self::new(
            Code::TooMany,
            format!("{subject} exceeds the rate limit; retry in {seconds} s"),
        );
        error.header = HeaderValue::try_from(format!("{seconds}"))
            .ok()
            .map(|value| Box::new((RETRY_AFTER, value)));
        error
    }

    /// Makes the error for a path that exists and a method that does not.
    pub(super) fn method(method: &str, allowed: &str) -> Self {
        let mut error = Self::new(
            Code::MethodNotAllowed,
            format!("{method} is not possible here; {allowed} is"),
        );
        error.header = HeaderValue::from_str(allowed)
            .ok()
            .map(|value| Box::new((ALLOW, value)));
        error
    }

    /// Sets the wrong field of the body.
    pub(super) fn at_field(mut self, field: Option<String>) -> Self {
        self.problem.field = field;
        self
    }

    /// Returns the rule that refused, to add to it.
    pub(super) fn refusal_mut(&mut self) -> Option<&mut RefusalDetail> {
        self.problem.refusal.as_deref_mut()
    }

    pub(super) fn code(&self) -> Code {
        self.problem.code
    }

    pub(super) fn malformed(detail: impl Into<String>) -> Self {
        Self::new(Code::Malformed, detail)
    }

    pub(super) fn not_found(detail: impl Into<String>) -> Self {
        Self::new(Code::NotFound, detail)
    }

    pub(super) fn forbidden(detail: impl Into<String>) -> Self {
        Self::new(Code::Forbidden, detail)
    }
}

impl From<LedgerError> for ApiError {
    fn from(error: LedgerError) -> Self {
        let refusal = error.refusal().map(Box::new);
        let mut answer = Self::new(error.code(), error.to_string());
        answer.problem.refusal = refusal;
        answer
    }
}

impl From<ServiceError> for ApiError {
    fn from(error: ServiceError) -> Self {
        match error {
            ServiceError::Ledger(error) => error.into(),
            error => Self::new(error.code(), error.to_string()),
        }
    }
}

/// Makes the error for an idempotency key whose kept reply belongs to another kind of call. A
/// fingerprint covers the method and the path, so another program has changed the store.
pub(super) fn unexpected(reply: &Reply) -> ApiError {
    let kind = match reply {
        Reply::Tenant(_) => "a tenant",
        Reply::Deleted => "a deletion",
        Reply::Reservation(_) => "a reservation",
        Reply::Machine(_) => "a machine",
        Reply::Batch(_) => "a batch",
        Reply::Adopted(_) => "an adoption",
        Reply::Hosts(_) => "a change of hosts",
        Reply::Noted => "a host's report",
        Reply::Token(_) => "a token",
        Reply::Topology(_) => "a change of the topology",
    };
    ApiError::new(
        Code::Store,
        format!("the store has {kind} as the answer to this request"),
    )
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status =
            StatusCode::from_u16(self.problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = serde_json::to_vec(&self.problem).unwrap_or_default();
        let mut response = (status, [(CONTENT_TYPE, PROBLEM_JSON)], body).into_response();
        response
            .headers_mut()
            .extend(self.header.map(|header| *header));
        response
    }
}

/// Defines, for the `OpenAPI` document, the error answers of operations.
macro_rules! answers {
    ($($(#[$doc:meta])* $name:ident: $($status:literal $text:literal),+;)+) => {$(
        $(#[$doc])*
        pub(super) struct $name;
        impl utoipa::IntoResponses for $name {
            fn responses() -> std::collections::BTreeMap<String, RefOr<utoipa::openapi::Response>> {
                ResponsesBuilder::new()
                    $(.response(stringify!($status), problem($text)))+
                    .build()
                    .responses
            }
        }
    )+};
}

answers! {
    /// Errors of every operation that needs a role.
    Guarded:
        400 "`malformed`: a bad path, query or header, or a body that does not fit",
        401 "`unauthenticated`: no token, or one that is not known",
        429 "`too-many`: the rate limit of this token, or of this address without a token, is \
            exceeded",
        403 "`forbidden`: the token's role may not do this, or not to this";
    /// Answers of an operation on an entry named in the path or query.
    Absent: 404 "`not-found`: there is no such thing, or it is another's";
    /// Answers of an operation with a body.
    Body:
        413 "`too-large`: the body is too long",
        415 "`media-type`: the content type of the body is not JSON",
        422 "`absurd`: well formed, but zero, absurd or contradicting";
    /// Answers of a question without a body.
    Absurd: 422 "`absurd`: well formed, but incomplete or contradicting";
    /// Answers of a write.
    Stored:
        422 "`absurd`: well formed, but zero, out of range or contradictory; `key-reused`: \
            the idempotency key was used for another request",
        500 "`store`: the store failed; nothing changed",
        503 "`unavailable`: no leader is known, or it did not answer; try again with the same \
            idempotency key",
        507 "`no-space`: the store has no space; nothing changed";
    /// Errors of admissions.
    Refused: 409 "`refused`: no placement keeps every guarantee; `exists`: the owner has a \
        tenant of this name";
    /// Errors of new tokens.
    Taken: 409 "`exists`: there is a token of this name";
    /// Errors of reservations that are not open any more.
    Settled: 409 "`refused`: the reservation is confirmed";
    /// Errors of bounds.
    Unbounded: 409 "`refused`: the fabric has no class that can guarantee a delay";
    /// Errors of changes with a condition.
    Outdated: 412 "`changed`: the tenant was changed since; its ETag is not that of If-Match";
    /// Errors of streams and pages that continue from a point.
    Forgotten:
        409 "`future`: `since` was not issued",
        410 "`expired`: the changes after `since` are forgotten; read the present state";
    /// Errors of changes of the topology.
    Breaks:
        409 "`breaks`: an existing guarantee would no longer hold",
        412 "`changed`: the topology is not the one that was compared with";
    /// Answers of an operation with a limit on its concurrent calls.
    Busy: 503 "`unavailable`: there are too many of them; try again later";
}

/// Describes an error answer.
pub(super) fn problem(text: &str) -> utoipa::openapi::Response {
    ResponseBuilder::new()
        .description(text)
        .content(
            PROBLEM_JSON,
            ContentBuilder::new()
                .schema(Some(Ref::from_schema_name("Problem")))
                .build(),
        )
        .build()
}

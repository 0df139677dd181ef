//! Errors in the format of RFC 9457, and their kinds.

use crate::types::Nearest;
use serde::{Deserialize, Serialize};
use std::fmt;
use tailbound_placement::pinned::Rule;

/// An error in the format of RFC 9457 (`application/problem+json`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Problem {
    /// The kind of the error as a URI: `urn:tailbound:problem:` and the code. Services of earlier
    /// versions send none.
    #[serde(rename = "type", default)]
    pub kind: String,
    /// The kind of the error in some words, the same for all errors of the kind.
    #[serde(default)]
    pub title: String,
    /// The kind of the error, for programs.
    pub code: Code,
    /// The HTTP status.
    pub status: u16,
    /// The error, its place, and the remedy.
    pub detail: String,
    /// The wrong field of the body, such as `guarantee.bandwidth`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// The rule that refused, for `refused`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<Box<RefusalDetail>>,
}

/// The rule that refused a placement, and what would help.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RefusalDetail {
    /// The rule.
    pub rule: Rule,
    /// The host that has too little, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The port that would carry too much, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
    /// The missing amount with its unit, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub excess: Option<String>,
    /// The operation of the batch that was refused, from 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<u32>,
    /// The revision at which `port`, `excess` and `nearest` were computed, if the caller asked for
    /// them. The decision may have seen an earlier one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<u64>,
    /// Requests that would be admitted at that revision and differ in one number each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nearest: Vec<Nearest>,
}

impl Problem {
    /// Makes an error of a kind.
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Self {
            kind: format!("urn:tailbound:problem:{}", code.word()),
            title: code.title().to_owned(),
            code,
            status: code.status(),
            detail: detail.into(),
            field: None,
            refusal: None,
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)
    }
}

/// The kinds of errors; each has one HTTP status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Code {
    /// 400: not JSON, an unknown field, a wrong type; a bad query or header.
    Malformed,
    /// 401: no token, or an unknown one.
    Unauthenticated,
    /// 403: the token's role does not allow this.
    Forbidden,
    /// 403: the owner would exceed its quota.
    Quota,
    /// 404: the object does not exist, or belongs to another owner.
    NotFound,
    /// 405: the path is right, the method is not.
    MethodNotAllowed,
    /// 409: no placement keeps every guarantee.
    Refused,
    /// 409: the owner has a tenant of this name.
    Exists,
    /// 409: the topology would break guarantees.
    Breaks,
    /// 412: the topology or the tenant has changed since the caller read it.
    Changed,
    /// 409: the requested revision was never issued: the store is an older one, or the revision is
    /// another service's.
    Future,
    /// 410: the changes after the point from which the stream should continue are forgotten.
    Expired,
    /// 413: the body is too long.
    TooLarge,
    /// 415: the content type of the body is not JSON.
    MediaType,
    /// 422: well formed, but zero, out of range or contradictory.
    Absurd,
    /// 422: the idempotency key was used for another request.
    KeyReused,
    /// 429: this token, or this address without a token, exceeds its request rate.
    TooMany,
    /// 503: no leader is known, or it does not answer. The outcome may be unknown: repeat the
    /// request with the same idempotency key.
    Unavailable,
    /// 504: this replica has not reached the requested revision in time; repeat the query, or
    /// send it to another replica.
    Behind,
    /// 507: the store has no space; nothing changed.
    NoSpace,
    /// 500: the store failed for another reason; nothing changed.
    Store,
}

impl Code {
    /// Returns the word of this kind in JSON.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::Unauthenticated => "unauthenticated",
            Self::Forbidden => "forbidden",
            Self::Quota => "quota",
            Self::NotFound => "not-found",
            Self::MethodNotAllowed => "method-not-allowed",
            Self::Refused => "refused",
            Self::Exists => "exists",
            Self::Breaks => "breaks",
            Self::Changed => "changed",
            Self::Future => "future",
            Self::Expired => "expired",
            Self::TooLarge => "too-large",
            Self::MediaType => "media-type",
            Self::Absurd => "absurd",
            Self::KeyReused => "key-reused",
            Self::TooMany => "too-many",
            Self::Unavailable => "unavailable",
            Self::Behind => "behind",
            Self::NoSpace => "no-space",
            Self::Store => "store",
        }
    }

    /// Returns a short description of this kind.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Malformed => "The request is malformed",
            Self::Unauthenticated => "The token is missing or unknown",
            Self::Forbidden => "The role does not allow this",
            Self::Quota => "The owner's quota is exceeded",
            Self::NotFound => "The object does not exist",
            Self::MethodNotAllowed => "The path has no such method",
            Self::Refused => "No placement keeps every guarantee",
            Self::Exists => "The name is taken",
            Self::Breaks => "The topology would break guarantees",
            Self::Changed => "The object has changed",
            Self::Future => "The service has not reached the revision",
            Self::Expired => "The history does not go back as far",
            Self::TooLarge => "The body is too long",
            Self::MediaType => "The body is not JSON",
            Self::Absurd => "The values make no sense",
            Self::KeyReused => "The idempotency key was used for another request",
            Self::TooMany => "The rate limit is exceeded",
            Self::Unavailable => "The service cannot answer now",
            Self::Behind => "The replica is behind",
            Self::NoSpace => "The store has no space",
            Self::Store => "The store failed",
        }
    }

    /// The HTTP status of this kind.
    pub const fn status(self) -> u16 {
        match self {
            Self::Malformed => 400,
            Self::Unauthenticated => 401,
            Self::Forbidden | Self::Quota => 403,
            Self::NotFound => 404,
            Self::MethodNotAllowed => 405,
            Self::Refused | Self::Exists | Self::Breaks | Self::Future => 409,
            Self::Expired => 410,
            Self::Changed => 412,
            Self::TooLarge => 413,
            Self::MediaType => 415,
            Self::Absurd | Self::KeyReused => 422,
            Self::TooMany => 429,
            Self::Unavailable => 503,
            Self::Behind => 504,
            Self::NoSpace => 507,
            Self::Store => 500,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_codes_name_is_its_json_and_its_urn_suffix() {
        let words = [
            (Code::MethodNotAllowed, "method-not-allowed"),
            (Code::KeyReused, "key-reused"),
            (Code::Future, "future"),
            (Code::Behind, "behind"),
        ];
        for (code, word) in words {
            assert_eq!(serde_json::to_value(code).unwrap(), word);
            assert_eq!(code.word(), word);
            let problem = Problem::new(code, "");
            assert_eq!(problem.kind, format!("urn:tailbound:problem:{word}"));
        }
        let old = r#"{"code": "refused", "status": 409, "detail": "no"}"#;
        let old: Problem = serde_json::from_str(old).unwrap();
        assert_eq!((old.code, old.refusal), (Code::Refused, None));
    }
}

//! Requests that issue, list and revoke tokens.

use super::App;
use super::extract::{By, Params, PathName, Write};
use super::problem::{self, Absent, ApiError, Guarded, Stored, Taken};
use super::tenants::Limit;
use super::tokens::{Caller, Identity, hash_of};
use crate::expiry::Expiry;
use crate::ledger::token::check_scope;
use crate::ledger::tokens::after;
use crate::ledger::{Command, Reply, TokenHash, TokenRecord};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use tailbound_api::{AuditCaller, Code, IssuedToken, NewToken, Page, Token, TokenRole};
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(super) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(issue, list))
        .routes(routes!(revoke))
}

/// The tokens of a page.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct TokensQuery {
    /// The maximum number of tokens on the page.
    #[serde(default)]
    #[param(value_type = u32, minimum = 1, maximum = 1000, default = 100, required = false)]
    limit: Limit,
    /// The position of the page: the `next` of the previous page.
    after: Option<String>,
}

/// Issues a token. The answer has its secret, which is not kept.
///
/// All replicas know the token within a second. It has no more rights than the caller's own, and
/// does not outlive it. A repeated request with the same Idempotency-Key gets `exists`.
#[utoipa::path(
    post, path = "/v1/tokens", tag = "service", operation_id = "issue_token",
    request_body = NewToken,
    responses(
        (status = 201, description = "The token with its secret", body = IssuedToken),
        Guarded, problem::Body, Stored, Taken,
    )
)]
pub(super) async fn issue(
    State(app): State<Arc<App>>,
    Write { body, author }: Write<NewToken>,
) -> Result<(StatusCode, Json<IssuedToken>), ApiError> {
    let secret = secret()?;
    let hash = TokenHash(hash_of(secret.as_bytes()));
    let record = record(author.by(), author.caller(), body, hash)?;
    if app.tokens().is_some_and(|file| file.has_name(&record.name)) {
        return Err(ApiError::new(
            Code::Exists,
            format!(
                "the tokens file has a token {:?}; take another name",
                record.name
            ),
        ));
    }
    let owner = author.owner().map(str::to_owned);
    let command = Command::IssueToken(Arc::new(record));
    match app.decide(author, command).await? {
        Reply::Token(token) if token.sha256 == hash => {
            let token = shown(&token, owner.as_deref());
            Ok((StatusCode::CREATED, Json(IssuedToken { token, secret })))
        }
        Reply::Token(token) => Err(ApiError::new(
            Code::Exists,
            format!(
                "the token {:?} was issued to an earlier request with this idempotency key, and its \
                 secret was in that answer alone; revoke it, and issue another",
                token.name
            ),
        )),
        other => Err(problem::unexpected(&other)),
    }
}

/// Lists the issued tokens by name, without their secrets and without the tokens of the file.
///
/// A tenant's token gets the tokens of its owner.
#[utoipa::path(
    get, path = "/v1/tokens", tag = "service", operation_id = "list_tokens",
    params(TokensQuery),
    responses((status = 200, description = "A page of tokens", body = Page<Token>), Guarded)
)]
pub(super) async fn list(
    State(app): State<Arc<App>>,
    By(by): By,
    Params(query): Params<TokensQuery>,
) -> Json<Page<Token>> {
    let Limit(limit) = query.limit;
    let owner = by.owner();
    let page = app.service.read(|ledger| {
        let mut tokens = after(ledger, query.after.as_deref(), owner);
        let items: Vec<_> = tokens
            .by_ref()
            .take(limit)
            .map(|token| shown(token, owner))
            .collect();
        let next = items.last().filter(|_| tokens.next().is_some());
        let next = next.map(|token| token.name.clone());
        Page { items, next }
    });
    Json(page)
}

/// Revokes an issued token: within a second no replica accepts it, and its streams end.
#[utoipa::path(
    delete, path = "/v1/tokens/{name}", tag = "service", operation_id = "revoke_token",
    params(("name" = String, Path, description = "The token's name", example = "acme-ci")),
    responses((status = 204, description = "The token is revoked"), Guarded, Absent, Stored)
)]
pub(super) async fn revoke(
    State(app): State<Arc<App>>,
    PathName(name): PathName,
    Write { author, .. }: Write<()>,
) -> Result<StatusCode, ApiError> {
    match app.decide(author, Command::RevokeToken(name)).await? {
        Reply::Deleted => Ok(StatusCode::NO_CONTENT),
        other => Err(problem::unexpected(&other)),
    }
}

/// Returns 64 unpredictable hexadecimal digits.
fn secret() -> Result<String, ApiError> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes)
        .map_err(|error| ApiError::new(Code::Unavailable, format!("no random numbers: {error}")))?;
    Ok(TokenHash(bytes).to_string())
}

/// Returns the record of a new token, whose rights are at most its issuer's.
fn record(
    by: &Identity,
    issued_by: AuditCaller,
    new: NewToken,
    sha256: TokenHash,
) -> Result<TokenRecord, ApiError> {
    let NewToken {
        name,
        role,
        owner,
        host,
        expires,
    } = new;
    let absurd = |field: &str, why: String| {
        ApiError::new(Code::Absurd, why).at_field(Some(field.to_owned()))
    };
    let own = by.owner().filter(|_| role == TokenRole::Tenant);
    let owner = owner.or_else(|| own.map(str::to_owned));
    check_scope(role, owner.as_deref(), host.as_deref())
        .map_err(|(field, why)| absurd(field, why.to_owned()))?;
    let expires = match expires {
        None => by.expires,
        Some(text) => Some(Expiry::parse(&text).ok_or_else(|| {
            let why = format!(
                "{text:?} is no date and time with an offset, such as 2027-01-31T00:00:00Z"
            );
            absurd("expires", why)
        })?),
    };
    if let Some(end) = expires.filter(|end| end.is_past()) {
        let now = Expiry::after(std::time::Duration::ZERO);
        let why = format!("the token would have expired at {end}, and it is {now} now");
        return Err(absurd("expires", why));
    }
    check_rights(by, role, owner.as_deref(), expires).map_err(ApiError::forbidden)?;
    let issued = SystemTime::now().duration_since(UNIX_EPOCH);
    Ok(TokenRecord {
        name,
        role,
        owner,
        host,
        sha256,
        expires: expires.map(Expiry::seconds),
        issued: issued.unwrap_or_default().as_secs(),
        issued_by,
    })
}

/// Checks that a token has no more rights than its issuer's.
fn check_rights(
    by: &Identity,
    role: TokenRole,
    owner: Option<&str>,
    expires: Option<Expiry>,
) -> Result<(), String> {
    match &by.caller {
        Caller::Operator => {}
        Caller::Tenant { owner: own } if role == TokenRole::Tenant && owner == Some(own) => {}
        Caller::Tenant { owner: own } => {
            return Err(format!(
                "a token of {own:?} issues tokens of the role tenant and this owner only"
            ));
        }
        Caller::Maintenance | Caller::Viewer | Caller::Metrics | Caller::Host { .. } => {
            return Err("only an operator's or a tenant's token issues tokens".to_owned());
        }
    }
    match by.expires {
        Some(end) if expires.is_none_or(|expires| expires > end) => Err(format!(
            "the token would outlive the one that issues it, which expires at {end}"
        )),
        _ => Ok(()),
    }
}

/// Returns a token as an owner, or an operator (None), sees it.
fn shown(token: &TokenRecord, owner: Option<&str>) -> Token {
    let AuditCaller {
        token: by, role, ..
    } = &token.issued_by;
    let is_own = owner.is_none_or(|owner| *role == format!("tenant {owner}"));
    Token {
        name: token.name.clone(),
        role: token.role,
        owner: token.owner.clone(),
        host: token.host.clone(),
        expires: token.expires.map(|end| Expiry::at(end).to_string()),
        issued: Expiry::at(token.issued).to_string(),
        issued_by: if is_own { by.clone() } else { String::new() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::tokens::Origin;

    const ROLES: [TokenRole; 6] = [
        TokenRole::Operator,
        TokenRole::Maintenance,
        TokenRole::Viewer,
        TokenRole::Metrics,
        TokenRole::Tenant,
        TokenRole::Host,
    ];

    fn identity(caller: Caller, expires: Option<u64>) -> Identity {
        Identity {
            name: "issuer".to_owned(),
            caller,
            origin: Origin::Open,
            expires: expires.map(Expiry::at),
        }
    }

    #[test]
    fn no_token_issues_one_with_more_rights_than_its_own() {
        let acme = Caller::Tenant {
            owner: "acme".to_owned(),
        };
        let host = Caller::Host {
            host: "a".to_owned(),
        };
        let all = [
            Caller::Operator,
            Caller::Maintenance,
            Caller::Viewer,
            Caller::Metrics,
            acme.clone(),
            host,
        ];
        for caller in all {
            for role in ROLES {
                for owner in [None, Some("acme"), Some("globex")] {
                    let may = check_rights(&identity(caller.clone(), None), role, owner, None);
                    let expected = match &caller {
                        Caller::Operator => true,
                        Caller::Tenant { .. } => role == TokenRole::Tenant && owner == Some("acme"),
                        _ => false,
                    };
                    assert_eq!(may.is_ok(), expected, "{caller:?} {role:?} {owner:?}");
                }
            }
        }
        for caller in [Caller::Operator, acme] {
            let by = identity(caller, Some(100));
            let may = |end: Option<u64>| {
                check_rights(&by, TokenRole::Tenant, Some("acme"), end.map(Expiry::at)).is_ok()
            };
            assert!(may(Some(99)) && may(Some(100)));
            assert!(!may(Some(101)) && !may(None), "it would outlive its issuer");
        }
    }

    #[test]
    fn each_contradiction_is_one_error_that_names_its_field() {
        let now = Expiry::after(std::time::Duration::from_hours(1)).to_string();
        for (role, owner, host, expires, field) in [
            (TokenRole::Viewer, Some("acme"), None, None, "role"),
            (TokenRole::Tenant, Some("acme"), Some("a"), None, "role"),
            (TokenRole::Tenant, None, None, None, "role"),
            (TokenRole::Tenant, Some("-a"), None, None, "owner"),
            (TokenRole::Host, Some("acme"), Some("a"), None, "role"),
            (
                TokenRole::Metrics,
                None,
                None,
                Some("2020-01-01T00:00:00Z"),
                "expires",
            ),
            (TokenRole::Metrics, None, None, Some("soon"), "expires"),
        ] {
            let new = NewToken {
                name: "new".to_owned(),
                role,
                owner: owner.map(str::to_owned),
                host: host.map(str::to_owned),
                expires: expires.map(str::to_owned),
            };
            let by = identity(Caller::Operator, None);
            let error = record(&by, AuditCaller::default(), new, TokenHash([0; 32]));
            let error = format!("{:?}", error.unwrap_err());
            assert!(error.contains("Absurd"), "{error}");
            assert!(
                error.contains(&format!("field: Some({field:?})")),
                "{error}"
            );
        }
        let new = NewToken {
            name: "new".to_owned(),
            role: TokenRole::Tenant,
            owner: None,
            host: None,
            expires: Some(now),
        };
        let acme = Caller::Tenant {
            owner: "acme".to_owned(),
        };
        let made = record(
            &identity(acme, None),
            AuditCaller::default(),
            new,
            TokenHash([0; 32]),
        );
        assert_eq!(made.unwrap().owner.as_deref(), Some("acme"));
    }
}

//! Who may do what: one table, and the one place where it is enforced.

use super::App;
use super::problem::Error;
use super::tokens::{Caller, Identity};
use axum::extract::{MatchedPath, Request, State};
use axum::http::header::{AUTHORIZATION, HOST, ORIGIN};
use axum::http::{HeaderMap, Method};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::sync::Arc;
use tailbound_client::Code;

/// Who may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// Everybody who reaches the address.
    Open,
    /// Operators.
    Operator,
    /// Operators, and each tenant for what is its own.
    Tenant,
    /// Operators, and each host for itself.
    Host,
}

/// What is done with a request at a follower.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Answered from what it knows.
    Read,
    /// Sent to the leader. At most so many bytes of it.
    Write(usize),
}

/// A method of a path.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rule {
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    pub(super) access: Access,
    pub(super) kind: Kind,
}

const fn rule(method: &'static str, path: &'static str, access: Access, kind: Kind) -> Rule {
    Rule {
        method,
        path,
        access,
        kind,
    }
}

/// Every method of every path. What is not here cannot be reached.
pub(super) const RULES: &[Rule] = {
    use Access::{Host, Open, Operator, Tenant};
    use Kind::Read;
    const WRITE: Kind = Kind::Write(1_000_000);
    &[
        rule("POST", "/v1/tenants", Tenant, WRITE),
        rule("GET", "/v1/tenants", Tenant, Read),
        rule("GET", "/v1/tenants/{id}", Tenant, Read),
        rule("PATCH", "/v1/tenants/{id}", Tenant, WRITE),
        rule("DELETE", "/v1/tenants/{id}", Tenant, WRITE),
        rule("POST", "/v1/tenants/{id}/relocate", Operator, WRITE),
        rule("GET", "/v1/tenants/{id}/bound", Tenant, Read),
        rule("POST", "/v1/fit", Tenant, Read),
        rule("POST", "/v1/explain", Tenant, Read),
        rule("GET", "/v1/hosts", Operator, Read),
        rule("GET", "/v1/hosts/{name}", Operator, Read),
        rule("POST", "/v1/hosts/{name}/drain", Operator, WRITE),
        rule("POST", "/v1/hosts/{name}/fail", Operator, WRITE),
        rule("POST", "/v1/hosts/{name}/restore", Operator, WRITE),
        rule("GET", "/v1/hosts/{name}/guarantees", Host, Read),
        rule("GET", "/v1/hosts/{name}/guarantees/stream", Host, Read),
        rule("GET", "/v1/topology", Operator, Read),
        rule("PUT", "/v1/topology", Operator, Kind::Write(64_000_000)),
        rule("POST", "/v1/topology/diff", Operator, Read),
        rule("GET", "/v1/map", Operator, Read),
        rule("GET", "/v1/map/paths", Operator, Read),
        rule("GET", "/v1/status", Tenant, Read),
        rule("GET", "/metrics", Operator, Read),
        rule("GET", "/healthz", Open, Read),
        rule("GET", "/readyz", Open, Read),
        rule("GET", "/openapi.json", Open, Read),
        rule("GET", "/", Open, Read),
        rule("GET", "/page/{file}", Open, Read),
    ]
};

impl Access {
    /// Whether this caller may, and why not. Whose a tenant or a host is, is
    /// known only later; see the handlers.
    pub(super) fn allows(self, caller: &Caller) -> Result<(), &'static str> {
        match (self, caller) {
            (Self::Open, _)
            | (_, Caller::Operator)
            | (Self::Tenant, Caller::Tenant { .. })
            | (Self::Host, Caller::Host { .. }) => Ok(()),
            (Self::Operator, _) => Err("only an operator's token may do this"),
            (Self::Tenant, Caller::Host { .. }) => {
                Err("a host's token reads the host's guarantees and nothing else")
            }
            (Self::Host, Caller::Tenant { .. }) => {
                Err("only an operator's token or the host's own may do this")
            }
        }
    }
}

/// Lets through what the table allows; sends a follower's writes to the leader.
pub(super) async fn guard(
    State(app): State<Arc<App>>,
    path: MatchedPath,
    mut request: Request,
    next: Next,
) -> Response {
    let rule = match admit(&app, path.as_str(), &mut request) {
        Ok(rule) => rule,
        Err(error) => return error.into_response(),
    };
    match rule.kind {
        Kind::Write(limit) => super::forward::unless_leader(&app, limit, request, next).await,
        Kind::Read => next.run(request).await,
    }
}

fn admit(app: &App, path: &str, request: &mut Request) -> Result<&'static Rule, Error> {
    let rule = rule_of(request.method(), path)?;
    same_site(request.headers())?;
    if rule.access == Access::Open {
        return Ok(rule);
    }
    let identity = authenticate(app, request.headers())?;
    if let Err(why) = rule.access.allows(&identity.caller) {
        return Err(Error::forbidden(why));
    }
    request.extensions_mut().insert(identity);
    Ok(rule)
}

fn rule_of(method: &Method, path: &str) -> Result<&'static Rule, Error> {
    // The answer to HEAD is that to GET, without its body.
    let wanted = match method.as_str() {
        "HEAD" => "GET",
        other => other,
    };
    let mut allowed = Vec::new();
    for rule in RULES.iter().filter(|rule| rule.path == path) {
        if rule.method == wanted {
            return Ok(rule);
        }
        allowed.push(rule.method);
        if rule.method == "GET" {
            allowed.push("HEAD");
        }
    }
    Err(Error::method(method.as_str(), &allowed.join(", ")))
}

/// Refuses what another site's page has a browser send. Where no token is asked
/// for, the address alone would let it in; so its name is checked too, which
/// that site could have made to mean this address (DNS rebinding).
fn same_site(headers: &HeaderMap) -> Result<(), Error> {
    let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or(""));
    let Some(origin) = text(ORIGIN) else {
        return Ok(());
    };
    let authority = origin.split_once("://").map(|(_, authority)| authority);
    if authority.is_some() && authority == text(HOST) {
        return Ok(());
    }
    Err(Error::forbidden(format!(
        "pages of {origin:?} may not call this service"
    )))
}

fn authenticate(app: &App, headers: &HeaderMap) -> Result<Identity, Error> {
    let Some(tokens) = app.tokens() else {
        local_name(headers)?;
        return Ok(Identity {
            name: "loopback".to_owned(),
            caller: Caller::Operator,
        });
    };
    let unauthenticated = |text: &str| Error::new(Code::Unauthenticated, text);
    let value = headers.get(AUTHORIZATION).ok_or_else(|| {
        unauthenticated("there is no token; send it as Authorization: Bearer TOKEN")
    })?;
    let (scheme, token) = value
        .as_bytes()
        .iter()
        .position(|byte| *byte == b' ')
        .map(|space| value.as_bytes().split_at(space))
        .ok_or_else(|| unauthenticated("the Authorization is not of the form Bearer TOKEN"))?;
    if !scheme.eq_ignore_ascii_case(b"bearer") {
        return Err(unauthenticated(
            "the Authorization is not of the form Bearer TOKEN",
        ));
    }
    tokens
        .identify(token.trim_ascii())
        .cloned()
        .ok_or_else(|| unauthenticated("the token is not known"))
}

fn local_name(headers: &HeaderMap) -> Result<(), Error> {
    let host = headers.get(HOST).map(|value| value.to_str().unwrap_or(""));
    let Some(host) = host else {
        // HTTP/1.0 or a client that is no browser.
        return Ok(());
    };
    let authority: Option<axum::http::uri::Authority> = host.parse().ok();
    let name = authority.as_ref().map_or("", |authority| authority.host());
    let address = name.trim_start_matches('[').trim_end_matches(']');
    let local = name.eq_ignore_ascii_case("localhost")
        || address
            .parse::<std::net::IpAddr>()
            .is_ok_and(|address| address.is_loopback());
    if local {
        Ok(())
    } else {
        Err(Error::forbidden(format!(
            "this service answers as localhost or a loopback address, not as {host:?}; anything \
             else needs tokens"
        )))
    }
}

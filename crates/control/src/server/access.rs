//! Authorization: the table of roles for each operation, and its enforcement.

use super::problem::ApiError;
use super::tokens::{Caller, Identity, Origin, Tokens, hash_of};
use super::{App, body, revisions};
use crate::ledger::{Ledger, tokens};
use crate::replica::Replica;
use axum::body::{Body, Bytes};
use axum::extract::{ConnectInfo, MatchedPath, Request, State};
use axum::http::header::{AUTHORIZATION, HOST, ORIGIN};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tailbound_api::Code;

/// The longest wait until a token's end is compared with the clock again, which may be set.
const CLOCK_INTERVAL: Duration = Duration::from_secs(1);

/// Callers that may use a method of a path. An operator may use all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// Every client that reaches the address.
    Open,
    /// Operators only.
    Operator,
    /// Maintenance, which drains and restores hosts.
    Maintenance,
    /// Viewers and maintenance.
    Viewer,
    /// Viewers, maintenance, and collectors of metrics.
    Metrics,
    /// Each tenant for what is its own; to read, also viewers and maintenance.
    Tenant,
    /// Each tenant for its own machines, and each host for those on it.
    Machine,
    /// Each host for itself.
    Host,
}

/// Handling of a request by a follower.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The follower answers from its own ledger.
    Read,
    /// The follower forwards the request to the leader.
    Write,
}

/// A method of a path.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rule {
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    pub(super) access: Access,
    pub(super) kind: Kind,
    /// Limit on the length of the body in bytes.
    pub(super) body: usize,
}

const fn rule(
    method: &'static str,
    path: &'static str,
    access: Access,
    kind: Kind,
    body: usize,
) -> Rule {
    Rule {
        method,
        path,
        access,
        kind,
        body,
    }
}

/// All methods of all paths. Other methods and paths cannot be reached.
pub(super) const RULES: &[Rule] = {
    use Access::{Host, Machine, Maintenance, Metrics, Open, Operator, Tenant, Viewer};
    use Kind::{Read, Write};
    const SMALL: usize = 1_000_000;
    /// A list of the names of 100,000 hosts.
    const HOST_NAMES: usize = 4_000_000;
    const TREE: usize = 64_000_000;
    &[
        rule("POST", "/v1/tenants", Tenant, Write, SMALL),
        rule("GET", "/v1/tenants", Tenant, Read, 0),
        rule("GET", "/v1/tenants/{id}", Tenant, Read, 0),
        rule("PATCH", "/v1/tenants/{id}", Tenant, Write, SMALL),
        rule("DELETE", "/v1/tenants/{id}", Tenant, Write, 0),
        rule("POST", "/v1/tenants/{id}/relocate", Operator, Write, 0),
        rule("POST", "/v1/tenants/{id}/move", Operator, Write, SMALL),
        rule("POST", "/v1/tenants/{id}/limit", Operator, Write, SMALL),
        rule("GET", "/v1/tenants/{id}/bound", Tenant, Read, 0),
        rule("PUT", "/v1/tenants/{id}/hosts/{host}", Tenant, Write, SMALL),
        rule("POST", "/v1/candidates", Tenant, Read, HOST_NAMES),
        rule("POST", "/v1/reservations", Tenant, Write, SMALL),
        rule("GET", "/v1/reservations", Tenant, Read, 0),
        rule("GET", "/v1/reservations/{id}", Tenant, Read, 0),
        rule("DELETE", "/v1/reservations/{id}", Tenant, Write, 0),
        rule("POST", "/v1/reservations/{id}/confirm", Tenant, Write, 0),
        rule("GET", "/v1/machines", Tenant, Read, 0),
        rule("GET", "/v1/machines/{name}", Tenant, Read, 0),
        rule("PUT", "/v1/machines/{name}", Machine, Write, SMALL),
        rule("DELETE", "/v1/machines/{name}", Machine, Write, 0),
        rule("POST", "/v1/batch", Tenant, Write, SMALL),
        rule("POST", "/v1/adopt", Operator, Write, TREE),
        rule("GET", "/v1/events", Tenant, Read, 0),
        rule("GET", "/v1/changes/tenants", Tenant, Read, 0),
        rule("GET", "/v1/changes/hosts", Viewer, Read, 0),
        rule("GET", "/v1/changes/audit", Tenant, Read, 0),
        rule("GET", "/v1/audit", Tenant, Read, 0),
        rule("GET", "/v1/quota", Tenant, Read, 0),
        rule("GET", "/v1/faults", Viewer, Read, 0),
        rule("POST", "/v1/tokens", Tenant, Write, SMALL),
        rule("GET", "/v1/tokens", Tenant, Read, 0),
        rule("DELETE", "/v1/tokens/{name}", Tenant, Write, 0),
        rule("POST", "/v1/fit", Tenant, Read, SMALL),
        rule("POST", "/v1/explain", Tenant, Read, SMALL),
        rule("GET", "/v1/hosts", Viewer, Read, 0),
        rule("GET", "/v1/hosts/{name}", Viewer, Read, 0),
        rule("POST", "/v1/hosts/{name}/drain", Maintenance, Write, 0),
        rule("POST", "/v1/hosts/{name}/fail", Operator, Write, 0),
        rule("POST", "/v1/hosts/{name}/restore", Maintenance, Write, 0),
        rule("GET", "/v1/hosts/{name}/guarantees", Host, Read, 0),
        rule("GET", "/v1/hosts/{name}/guarantees/stream", Host, Read, 0),
        rule("GET", "/v1/hosts/{name}/hose-keys", Host, Read, 0),
        rule("POST", "/v1/hosts/{name}/report", Host, Write, SMALL),
        rule("GET", "/v1/topology", Viewer, Read, 0),
        rule("PUT", "/v1/topology", Operator, Write, TREE),
        rule("POST", "/v1/topology/diff", Viewer, Read, TREE),
        rule("GET", "/v1/map", Viewer, Read, 0),
        rule("GET", "/v1/map/paths", Viewer, Read, 0),
        rule("GET", "/v1/status", Tenant, Read, 0),
        rule("GET", "/v1/backup", Operator, Read, 0),
        rule("GET", "/metrics", Metrics, Read, 0),
        rule("GET", "/healthz", Open, Read, 0),
        rule("GET", "/readyz", Open, Read, 0),
        rule("GET", "/openapi.json", Open, Read, 0),
        rule("GET", "/", Open, Read, 0),
        rule("GET", "/page/{file}", Open, Read, 0),
    ]
};

/// The methods of paths that have parameters; their handlers refuse those that they do not know.
const WITH_PARAMETERS: &[(&str, &str)] = &[
    ("POST", "/v1/tenants"),
    ("GET", "/v1/tenants"),
    ("GET", "/v1/tenants/{id}/bound"),
    ("GET", "/v1/reservations"),
    ("GET", "/v1/machines"),
    ("GET", "/v1/machines/{name}"),
    ("DELETE", "/v1/machines/{name}"),
    ("GET", "/v1/events"),
    ("GET", "/v1/changes/tenants"),
    ("GET", "/v1/changes/hosts"),
    ("GET", "/v1/changes/audit"),
    ("GET", "/v1/audit"),
    ("GET", "/v1/quota"),
    ("GET", "/v1/tokens"),
    ("GET", "/v1/hosts"),
    ("GET", "/v1/map"),
    ("GET", "/v1/map/paths"),
];

impl Rule {
    /// Checks that the request has no query parameters unless its path accepts them.
    fn check_parameters(&self, parts: &Parts) -> Result<(), ApiError> {
        let has = WITH_PARAMETERS.contains(&(self.method, self.path));
        match parts.uri.query() {
            Some(query) if !has && !query.is_empty() => Err(ApiError::malformed(format!(
                "{} {} has no parameters; leave out ?{query}",
                self.method, self.path
            ))),
            _ => Ok(()),
        }
    }
}

impl Rule {
    /// Returns whether answers have the revision of the ledger.
    pub(super) fn has_revision(&self) -> bool {
        self.access != Access::Open && self.path.starts_with("/v1/")
    }

    /// Checks that this kind of caller may use the method. The error is the reason for the refusal.
    /// The handlers check the tenant or host of the request, which is known only later.
    pub(super) fn allows(&self, caller: &Caller) -> Result<(), &'static str> {
        let access = self.access;
        let viewed = match access {
            Access::Viewer | Access::Metrics => true,
            Access::Tenant => self.kind == Kind::Read,
            Access::Open
            | Access::Operator
            | Access::Maintenance
            | Access::Machine
            | Access::Host => false,
        };
        let (is_allowed, why) = match caller {
            Caller::Operator => (true, ""),
            Caller::Maintenance => (
                viewed || access == Access::Maintenance,
                "a token for maintenance reads, and drains and restores hosts, and nothing else",
            ),
            Caller::Viewer => (viewed, "a viewer's token reads, and changes nothing"),
            Caller::Metrics => (
                access == Access::Metrics,
                "a token for metrics reads the metrics, and nothing else",
            ),
            Caller::Tenant { .. } => (
                matches!(access, Access::Tenant | Access::Machine),
                match access {
                    Access::Host => "only an operator's token or the host's own may do this",
                    _ => "only an operator's token may do this",
                },
            ),
            Caller::Host { .. } => (
                matches!(access, Access::Host | Access::Machine),
                match access {
                    Access::Tenant => {
                        "a host's token reads the host's guarantees and keys, reports of the host, \
                         puts and deletes its machines, and nothing else"
                    }
                    _ => "only an operator's token may do this",
                },
            ),
        };
        if is_allowed || access == Access::Open {
            Ok(())
        } else {
            Err(why)
        }
    }
}

/// Passes requests on that the table allows, with their whole body; forwards a follower's writes
/// to the leader.
pub(super) async fn guard(
    State(app): State<Arc<App>>,
    path: MatchedPath,
    request: Request,
    next: Next,
) -> Response {
    let (mut parts, body) = request.into_parts();
    let rule = match admit(&app, path.as_str(), &mut parts) {
        Ok(rule) => rule,
        Err(error) => {
            body::discard(body).await;
            return error.into_response();
        }
    };
    if let Some(Pause(pause)) = parts.extensions.remove() {
        tokio::time::sleep(pause).await;
    }
    let body = match body::read(&parts.headers, body, rule.body).await {
        Ok(body) => body,
        Err(error) => return error.into_response(),
    };
    let mut response = match rule.kind {
        Kind::Write => super::forward::unless_leader(&app, parts, body, next).await,
        Kind::Read => read(&app, parts, body, next).await,
    };
    if rule.has_revision() {
        revisions::stamp(&app, response.headers_mut());
    }
    response
}

/// The pause before a request is served, which is a part of its caller's burst.
#[derive(Debug, Clone, Copy)]
struct Pause(Duration);

/// Answers a query, once this replica has the revision that it names.
async fn read(app: &App, mut parts: Parts, body: Bytes, next: Next) -> Response {
    if let Some(wanted) = parts.extensions.remove()
        && let Err(error) = revisions::reach(app, wanted).await
    {
        return error.into_response();
    }
    next.run(Request::from_parts(parts, Body::from(body))).await
}

fn admit(app: &App, path: &str, parts: &mut Parts) -> Result<&'static Rule, ApiError> {
    let rule = rule_of(&parts.method, path)?;
    same_site(&parts.headers)?;
    if rule.access == Access::Open {
        rule.check_parameters(parts)?;
    }
    let peer = parts.extensions.get::<ConnectInfo<SocketAddr>>();
    let peer = peer.map(|ConnectInfo(peer)| *peer);
    let identity = match authenticate(app, &parts.headers) {
        Ok(identity) => identity,
        Err(error) => {
            app.count_stranger(peer)?;
            if rule.access == Access::Open {
                return Ok(rule);
            }
            let is_unknown = error.code() == Code::Unauthenticated;
            if is_unknown && parts.headers.contains_key(AUTHORIZATION) {
                app.note_wrong_token(peer);
            }
            return Err(error);
        }
    };
    if let Some(peer) = peer {
        app.connections.know(peer);
    }
    let pause = app.count_known(&identity)?;
    if !pause.is_zero() {
        parts.extensions.insert(Pause(pause));
    }
    if rule.access == Access::Open {
        return Ok(rule);
    }
    if let Err(why) = rule.allows(&identity.caller) {
        return Err(ApiError::forbidden(why));
    }
    if rule.kind == Kind::Read
        && rule.has_revision()
        && let Some(wanted) = revisions::take_min_revision(parts)?
    {
        parts.extensions.insert(wanted);
    }
    rule.check_parameters(parts)?;
    parts.extensions.insert(identity);
    Ok(rule)
}

fn rule_of(method: &Method, path: &str) -> Result<&'static Rule, ApiError> {
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
    Err(ApiError::method(method.as_str(), &allowed.join(", ")))
}

/// Refuses requests that a browser sends on behalf of another site. Without tokens, the loopback
/// address alone would admit them. The `Host` is compared, too, because another site's name can
/// resolve to this address (DNS rebinding).
fn same_site(headers: &HeaderMap) -> Result<(), ApiError> {
    let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or(""));
    let Some(origin) = text(ORIGIN) else {
        return Ok(());
    };
    let authority = origin.split_once("://").map(|(_, authority)| authority);
    if authority.is_some() && authority == text(HOST) {
        return Ok(());
    }
    Err(ApiError::forbidden(format!(
        "pages of {origin:?} may not call this service"
    )))
}

fn authenticate(app: &App, headers: &HeaderMap) -> Result<Identity, ApiError> {
    let Some(tokens) = app.tokens() else {
        local_name(headers)?;
        return Ok(Identity {
            name: "loopback".to_owned(),
            caller: Caller::Operator,
            origin: Origin::Open,
            expires: None,
        });
    };
    let unauthenticated = |text: &str| ApiError::new(Code::Unauthenticated, text);
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
    let identity = match tokens.identify(token.trim_ascii()) {
        Some(identity) => Some(identity.clone()),
        None => issued(app, token.trim_ascii())?,
    };
    let identity = identity.ok_or_else(|| unauthenticated("the token is not known"))?;
    match identity.expires.filter(|_| identity.has_expired()) {
        Some(end) => Err(unauthenticated(&format!("the token expired at {end}"))),
        None => Ok(identity),
    }
}

/// Returns the holder of an issued token; None if the store has no such token.
///
/// # Errors
/// This replica is cut off from the store, so it does not know whether the token was revoked. A
/// host's token is accepted all the same: hosts need their keys to keep their promises.
fn issued(app: &App, token: &[u8]) -> Result<Option<Identity>, ApiError> {
    let hash = hash_of(token);
    let identity = app
        .service
        .read(|ledger| tokens::identify(ledger, hash).map(|it| Identity::issued(it)));
    let is_host = |identity: &Identity| matches!(identity.caller, Caller::Host { .. });
    let stale = app.replica.as_ref().and_then(Replica::stale_for);
    match (&identity, stale) {
        (Some(identity), Some(age)) if !is_host(identity) => Err(ApiError::new(
            Code::Unavailable,
            format!(
                "this replica has been cut off from the store for {} s, and does not know whether the \
                 token was revoked; use another replica",
                age.as_secs()
            ),
        )),
        _ => Ok(identity),
    }
}

fn local_name(headers: &HeaderMap) -> Result<(), ApiError> {
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
        Err(ApiError::forbidden(format!(
            "this service answers as localhost or a loopback address, not as {host:?}; anything \
             else needs tokens"
        )))
    }
}

/// Checks that a host's token is used for that host alone.
pub(super) fn check_host(by: &Identity, name: &str) -> Result<(), ApiError> {
    match &by.caller {
        Caller::Host { host } if host != name => Err(ApiError::forbidden(format!(
            "the token is that of the host {host:?}"
        ))),
        _ => Ok(()),
    }
}

/// Waits until the token of an open stream is removed, revoked, replaced or expired. For ever if the
/// service requires none.
pub(super) async fn ended(app: &App, by: &Identity) {
    let Some(file) = &app.tokens else {
        return std::future::pending().await;
    };
    let (mut file, mut issued) = (file.subscribe(), app.service.watch_tokens());
    loop {
        file.borrow_and_update();
        issued.borrow_and_update();
        if !is_valid(app, by) {
            return;
        }
        tokio::select! {
            // The senders are in `app` and its service.
            _ = file.changed() => {}
            _ = issued.changed() => {}
            () = tokio::time::sleep(CLOCK_INTERVAL), if by.expires.is_some() => {}
        }
    }
}

/// Returns whether a token is still in its list, with the same role, and has not expired.
pub(super) fn is_valid(app: &App, by: &Identity) -> bool {
    match by.origin {
        Origin::Open => true,
        Origin::File(_) => app.tokens().is_some_and(|tokens| Tokens::have(&tokens, by)),
        Origin::Store(hash) => {
            let held =
                |ledger: &Ledger| tokens::identify(ledger, hash).map(|it| Identity::issued(it));
            app.service.read(held).as_ref() == Some(by) && !by.has_expired()
        }
    }
}

#[cfg(test)]
mod tests;

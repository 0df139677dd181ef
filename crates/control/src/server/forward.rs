//! A follower's writes.

use super::App;
use super::problem::Error;
use crate::ledger::Ledger;
use crate::replica::{FORWARDED, REVISION};
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::request::Parts;
use axum::http::uri::PathAndQuery;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tailbound_api::{Code, Role};

/// Has the write done here, or by the leader if that is another replica. The
/// caller's own token goes with it, so that the leader decides for itself who
/// may.
pub(super) async fn unless_leader(app: &App, parts: Parts, body: Bytes, next: Next) -> Response {
    let replica = match &app.replica {
        Some(replica) if app.service.role() == Role::Follower => replica,
        _ => {
            let forwarded = parts.headers.contains_key(FORWARDED);
            let request = Request::from_parts(parts, Body::from(body));
            let mut response = next.run(request).await;
            if forwarded {
                // The replica that forwarded it answers once it has this too.
                let revision = app.service.read(Ledger::revision);
                response.headers_mut().insert(REVISION, revision.into());
            }
            return response;
        }
    };
    let path = parts.uri.path_and_query().map_or("/", PathAndQuery::as_str);
    match replica
        .forward(parts.method, path, &parts.headers, body)
        .await
    {
        Ok(answer) => (answer.status, answer.headers, Body::from(answer.body)).into_response(),
        Err(why) => Error::new(Code::Unavailable, why).into_response(),
    }
}

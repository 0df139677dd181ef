//! Forwarding of writes by a follower.

use super::App;
use super::problem::ApiError;
use crate::ledger::Ledger;
use crate::replica::{FORWARDED, REVISION};
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::request::Parts;
use axum::http::uri::PathAndQuery;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tailbound_api::{Code, Role};

/// Does the write here, or forwards it to the leader if that is another replica. The caller's own
/// token goes with it, so that the leader itself authorizes the caller.
pub(super) async fn unless_leader(app: &App, parts: Parts, body: Bytes, next: Next) -> Response {
    let replica = match &app.replica {
        Some(replica) if app.service.role() == Role::Follower => replica,
        _ => {
            let forwarded = parts.headers.contains_key(FORWARDED);
            let request = Request::from_parts(parts, Body::from(body));
            let mut response = next.run(request).await;
            if forwarded {
                // The replica that forwarded it answers once it has applied this revision.
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
        Err(why) => ApiError::new(Code::Unavailable, why).into_response(),
    }
}

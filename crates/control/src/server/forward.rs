//! A follower's writes.

use super::App;
use super::extract::bytes;
use super::problem::Error;
use crate::ledger::Ledger;
use crate::replica::{FORWARDED, REVISION};
use axum::body::Body;
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tailbound_client::{Code, Role};

/// Has the write done here, or by the leader if that is another replica. The
/// caller's own token goes with it, so that the leader decides for itself who
/// may; `limit` is how long its body may be.
pub(super) async fn unless_leader(
    app: &App,
    limit: usize,
    request: Request,
    next: Next,
) -> Response {
    let Some(replica) = app.replica.as_ref() else {
        return next.run(request).await;
    };
    if app.service.role() == Role::Leader {
        let forwarded = request.headers().contains_key(FORWARDED);
        let mut response = next.run(request).await;
        if forwarded {
            let revision = app.service.read(Ledger::revision);
            response.headers_mut().insert(REVISION, revision.into());
        }
        return response;
    }
    let (parts, body) = request.into_parts();
    let asked = parts.clone();
    let body = match bytes(Request::from_parts(parts, body), limit).await {
        Ok(body) => body,
        Err(error) => return error.into_response(),
    };
    let path = asked
        .uri
        .path_and_query()
        .map_or("/", axum::http::uri::PathAndQuery::as_str);
    let answer = replica
        .forward(asked.method, path, &asked.headers, body)
        .await;
    match answer {
        Ok(answer) => (answer.status, answer.headers, Body::from(answer.body)).into_response(),
        Err(why) => Error::new(Code::Unavailable, why).into_response(),
    }
}

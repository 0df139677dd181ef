//! The topology of switches and hosts.

use super::App;
use super::extract::{Body, By, Write};
use super::problem::{self, ApiError, Breaks, Guarded, Stored};
use crate::ledger::{Command, Ledger, Reply, compare};
use axum::Json;
use axum::extract::State;
use axum::http::header::ETAG;
use axum::response::{IntoResponse, Response};
use std::sync::Arc;
use tailbound_api::{TopologyDiff, TopologyState};
use tailbound_placement::Spec;

/// Returns the topology in force.
#[utoipa::path(
    get, path = "/v1/topology", tag = "topology", operation_id = "get_topology",
    responses(
        (status = 200, description = "The topology", body = TopologyState,
            headers(("ETag" = String, description = "The revision, for If-Match"))),
        Guarded,
    )
)]
pub(super) async fn get(State(app): State<Arc<App>>) -> Response {
    let state = app.service.read(|ledger| Arc::clone(ledger.topology()));
    let etag = etag(state.revision);
    ([(ETAG, etag)], Json(state)).into_response()
}

/// Compares the topology with another one, and returns the tenants that would break.
#[utoipa::path(
    post, path = "/v1/topology/diff", tag = "topology", operation_id = "diff_topology",
    request_body = Spec,
    responses((status = 200, description = "The difference; nothing changed", body = TopologyDiff), Guarded, problem::Body)
)]
pub(super) async fn diff(
    State(app): State<Arc<App>>,
    By(by): By,
    Body(spec): Body<Spec>,
) -> Result<Json<TopologyDiff>, ApiError> {
    // A topology as large as a data centre takes a while, and as much memory as
    // the one in force.
    let permit = Arc::clone(&app.comparisons).acquire_owned().await;
    let diff = app.ask(&by, move |service| {
        // The comparison goes on when the caller goes away, so it keeps the permit.
        let _permit = permit;
        compare(&service.question(Ledger::snapshot), &spec)
    });
    Ok(Json(diff.await??))
}

/// Replaces the topology, if every guarantee holds in the new one.
#[utoipa::path(
    put, path = "/v1/topology", tag = "topology", operation_id = "put_topology",
    request_body = Spec,
    responses(
        (status = 200, description = "The changes", body = TopologyDiff,
            headers(("ETag" = String, description = "The new revision"))),
        Guarded, problem::Body, Stored, Breaks,
    )
)]
pub(super) async fn put(
    State(app): State<Arc<App>>,
    Write { body, author }: Write<Spec>,
) -> Result<Response, ApiError> {
    let expected = author.expected();
    let spec = Box::new(body);
    match app
        .decide(author, Command::SetTopology { spec, expected })
        .await?
    {
        Reply::Topology(diff) => Ok(([(ETAG, etag(diff.revision))], Json(diff)).into_response()),
        other => Err(problem::unexpected(&other)),
    }
}

pub(super) fn etag(revision: u64) -> String {
    format!("\"{revision}\"")
}

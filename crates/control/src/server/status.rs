//! Status and health of the service.

use super::App;
use super::extract::By;
use super::problem::{ApiError, Guarded};
use crate::backup;
use crate::ledger::Ledger;
use crate::replica::FORWARDED;
use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use std::sync::Arc;
use tailbound_api::{Code, Role, Status};

impl App {
    /// Returns a summary of the service and the data centre.
    pub(super) fn status(&self) -> Status {
        let leader = self
            .replica
            .as_ref()
            .and_then(|replica| replica.leadership().leader);
        let role = self.service.role();
        // A leader that is this replica needs no other address.
        let leader = leader.filter(|_| role == Role::Follower);
        self.service.read(|ledger| ledger.status(role, leader))
    }
}

/// Returns a summary of the service and the data centre.
#[utoipa::path(
    get, path = "/v1/status", tag = "service",
    responses((status = 200, description = "The present status", body = Status), Guarded)
)]
pub(super) async fn status(State(app): State<Arc<App>>) -> Json<Status> {
    Json(app.status())
}

/// Returns a backup of the whole state at one moment.
///
/// The backup has lines of JSON, for `tailbound place import`.
#[utoipa::path(
    get, path = "/v1/backup", tag = "service",
    responses(
        (status = 200, description = "A backup", body = String, content_type = "application/jsonl"),
        Guarded,
    )
)]
pub(super) async fn backup(State(app): State<Arc<App>>, By(by): By) -> Result<Response, ApiError> {
    let whole = |service: &crate::service::Service| {
        // Large parts are shared, so that nobody waits while they are written.
        let snapshot = service.question(Ledger::snapshot);
        backup::write(&snapshot)
    };
    let text = app.ask(&by, whole).await?;
    Ok(([(CONTENT_TYPE, "application/jsonl")], text).into_response())
}

/// Liveness of the process.
#[utoipa::path(
    get, path = "/healthz", tag = "service",
    responses((status = 200, description = "The process lives", body = String, content_type = "text/plain"))
)]
pub(super) async fn healthz() -> &'static str {
    "ok\n"
}

/// Readiness for requests: reads are answered, and a leader accepts writes, which this replica
/// reached within the last 5 s unless it leads itself.
#[utoipa::path(
    get, path = "/readyz", tag = "service",
    responses(
        (status = 200, description = "The service is ready", body = String, content_type = "text/plain"),
        super::problem::Busy,
    )
)]
pub(super) async fn readyz(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
) -> Result<&'static str, ApiError> {
    let leads = app.service.role() == Role::Leader;
    let ready = match &app.replica {
        _ if leads => Ok(()),
        // A follower asks, which takes this replica for the leader.
        Some(_) if headers.contains_key(FORWARDED) => Err("this replica does not lead".to_owned()),
        Some(replica) => replica.check_ready(),
        None => Err(app.metrics.faults().damage().map_or_else(
            || "the service does not lead yet".to_owned(),
            |error| error.to_string(),
        )),
    };
    ready
        .map(|()| "ready\n")
        .map_err(|why| ApiError::new(Code::Unavailable, why))
}

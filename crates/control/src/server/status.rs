//! Status and health of the service.

use super::App;
use super::problem::{ApiError, Guarded};
use crate::backup;
use crate::ledger::Ledger;
use axum::Json;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use std::sync::Arc;
use tailbound_api::{Code, Role, Status};

impl App {
    /// The service and the data centre in short.
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

/// The service and the data centre in short.
#[utoipa::path(
    get, path = "/v1/status", tag = "service",
    responses((status = 200, description = "As it is now", body = Status), Guarded)
)]
pub(super) async fn status(State(app): State<Arc<App>>) -> Json<Status> {
    Json(app.status())
}

/// All that is kept, as it is at one moment: lines of JSON that `tailbound place import` reads.
#[utoipa::path(
    get, path = "/v1/backup", tag = "service",
    responses(
        (status = 200, description = "A backup", body = String, content_type = "application/jsonl"),
        Guarded,
    )
)]
pub(super) async fn backup(State(app): State<Arc<App>>) -> Result<Response, ApiError> {
    let whole = |service: &crate::service::Service| {
        // Large parts are shared, so that nobody waits while they are written.
        let snapshot = service.read(Ledger::snapshot);
        backup::write(&snapshot)
    };
    let text = app.ask(&app.queries, whole).await?;
    Ok(([(CONTENT_TYPE, "application/jsonl")], text).into_response())
}

/// Whether the process lives.
#[utoipa::path(
    get, path = "/healthz", tag = "service",
    responses((status = 200, description = "It does", body = String, content_type = "text/plain"))
)]
pub(super) async fn healthz() -> &'static str {
    "ok\n"
}

/// Whether it can be sent requests: reads are answered, and for writes there is
/// a leader.
#[utoipa::path(
    get, path = "/readyz", tag = "service",
    responses(
        (status = 200, description = "It can", body = String, content_type = "text/plain"),
        super::problem::Busy,
    )
)]
pub(super) async fn readyz(State(app): State<Arc<App>>) -> Result<&'static str, ApiError> {
    let status = app.status();
    if status.role == Role::Leader || status.leader.is_some() {
        Ok("ready\n")
    } else {
        Err(ApiError::new(Code::Unavailable, "no leader is known"))
    }
}

//! What would fit, and why something does not. Nothing is reserved.

use super::App;
use super::extract::Body;
use super::problem::{self, Error, Guarded};
use axum::Json;
use axum::extract::State;
use std::sync::Arc;
use tailbound_api::Explanation;
use tailbound_placement::Request;

/// Whether a request would pass now, and where it would go.
#[utoipa::path(
    post, path = "/v1/fit", tag = "questions",
    request_body = Request,
    responses((status = 200, description = "Whether it would", body = Explanation), Guarded, problem::Body)
)]
pub(super) async fn fit(
    State(app): State<Arc<App>>,
    Body(request): Body<Request>,
) -> Result<Json<Explanation>, Error> {
    Ok(Json(app.service.read(|ledger| ledger.fit(&request))?))
}

/// The same, and of one that would not: which port refuses, both its curves, by
/// how much it is too much, and the nearest requests that would pass.
#[utoipa::path(
    post, path = "/v1/explain", tag = "questions",
    request_body = Request,
    responses((status = 200, description = "Why", body = Explanation), Guarded, problem::Body)
)]
pub(super) async fn explain(
    State(app): State<Arc<App>>,
    Body(request): Body<Request>,
) -> Result<Json<Explanation>, Error> {
    let found = app
        .ask(&app.questions, move |service| {
            service.read(|ledger| ledger.explain(&request))
        })
        .await?;
    Ok(Json(found?))
}

//! Checks of requests without a reservation.

use super::App;
use super::extract::{Body, By};
use super::problem::{self, ApiError, Guarded};
use axum::Json;
use axum::extract::State;
use std::sync::Arc;
use tailbound_api::Explanation;
use tailbound_placement::Request;

/// Checks a request, and returns its placement.
#[utoipa::path(
    post, path = "/v1/fit", tag = "questions",
    request_body = Request,
    responses((status = 200, description = "The decision that the request would get", body = Explanation), Guarded, problem::Body)
)]
pub(super) async fn fit(
    State(app): State<Arc<App>>,
    By(by): By,
    Body(request): Body<Request>,
) -> Result<Json<Explanation>, ApiError> {
    let request = request.with_default_bursts();
    let placement = app
        .ask(&by, move |service| {
            service.question(|ledger| ledger.fit(&request))
        })
        .await?;
    Ok(Json(placement?))
}

/// Checks a request, and explains a refusal.
///
/// A refusal has the refusing port, its curves, the excess, and the nearest requests that would be
/// admitted.
#[utoipa::path(
    post, path = "/v1/explain", tag = "questions",
    request_body = Request,
    responses((status = 200, description = "The explanation", body = Explanation), Guarded, problem::Body)
)]
pub(super) async fn explain(
    State(app): State<Arc<App>>,
    By(by): By,
    Body(request): Body<Request>,
) -> Result<Json<Explanation>, ApiError> {
    let request = request.with_default_bursts();
    let explanation = app
        .ask(&by, move |service| {
            service.question(|ledger| ledger.explain(&request))
        })
        .await?;
    Ok(Json(explanation?))
}

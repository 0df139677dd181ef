//! Quotas of owners, as they read them.

use super::App;
use super::extract::{By, Params};
use super::problem::{ApiError, Guarded};
use super::tenants::check_filter;
use crate::ledger::{Quota, usage_of};
use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use std::sync::Arc;
use tailbound_api::{Code, OwnerQuota, QuotaLimits, QuotaUse};
use tailbound_units::Rate;
use utoipa::IntoParams;

/// The owner of a quota.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct OwnerQuery {
    /// The owner, which every caller except a tenant must set.
    #[param(pattern = "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")]
    owner: Option<String>,
}

/// Returns an owner's quota, and the part that is used.
#[utoipa::path(
    get, path = "/v1/quota", tag = "tenants", operation_id = "get_quota",
    params(OwnerQuery),
    responses(
        (status = 200, description = "The quota of the owner", body = OwnerQuota),
        Guarded, super::problem::Absurd,
    )
)]
pub(super) async fn get(
    State(app): State<Arc<App>>,
    By(by): By,
    Params(OwnerQuery { owner }): Params<OwnerQuery>,
) -> Result<Json<OwnerQuota>, ApiError> {
    check_filter("owner", owner.as_deref())?;
    let owner = match (by.owner(), owner) {
        (Some(own), Some(requested_owner)) if own != requested_owner => {
            let detail = format!("the token is that of the owner {own:?}");
            return Err(ApiError::forbidden(detail));
        }
        (Some(own), _) => own.to_owned(),
        (None, Some(requested_owner)) => requested_owner,
        (None, None) => {
            return Err(ApiError::new(
                Code::Absurd,
                "the owner is missing; pass ?owner=",
            ));
        }
    };
    let quota = app.tokens().map(|tokens| tokens.quota(&owner));
    let Quota {
        tenants,
        vms,
        bandwidth,
        reservations,
    } = quota.unwrap_or_default();
    let used = app.service.read(|ledger| usage_of(ledger, &owner));
    Ok(Json(OwnerQuota {
        owner,
        quota: QuotaLimits {
            tenants,
            vms,
            bandwidth,
            reservations,
        },
        used: QuotaUse {
            tenants: used.tenants,
            vms: used.vms,
            bandwidth: Rate(u64::try_from(used.bandwidth).unwrap_or(u64::MAX)),
            reservations: used.reservations,
        },
    }))
}

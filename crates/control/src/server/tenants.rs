//! The tenants.

use super::App;
use super::extract::{Author, By, Id, Params, Write};
use super::problem::{self, Absent, ApiError, Guarded, Outdated, Refused, Stored, Unbounded};
use super::tokens::Identity;
use super::topology::etag;
use crate::ledger::{Command, Ledger, Reply, TenantFilter};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::{ETAG, LOCATION};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use std::sync::Arc;
use tailbound_api::{
    Code, MoveVm, NewTenant, Page, PairBound, RefusalDetail, Tenant, TenantPatch, TenantState,
    VmLimit, is_name,
};
use tailbound_placement::{Guarantee, Request, TenantId};
use tailbound_units::Bytes;
use tokio::time::Instant;
use utoipa::IntoParams;

/// The size of a page: 1 to 1000.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(try_from = "u32")]
pub(super) struct Limit(pub(super) usize);

impl Default for Limit {
    fn default() -> Self {
        Self(100)
    }
}

impl TryFrom<u32> for Limit {
    type Error = String;

    fn try_from(limit: u32) -> Result<Self, String> {
        match limit {
            1..=1000 => Ok(Self(limit as usize)),
            _ => Err(format!("a limit of {limit} is not between 1 and 1000")),
        }
    }
}

/// Selects the tenants of a list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct TenantsQuery {
    /// The maximum number of tenants on the page.
    #[serde(default)]
    #[param(value_type = u32, minimum = 1, maximum = 1000, default = 100, required = false)]
    limit: Limit,
    /// The position of the page: the `next` of the previous page.
    #[param(value_type = String, required = false, pattern = "^[0-9]{1,19}$")]
    after: Option<u64>,
    /// Only tenants of this owner.
    #[param(pattern = "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")]
    owner: Option<String>,
    /// Only tenants with this name.
    #[param(pattern = "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")]
    name: Option<String>,
    /// Only tenants in this state.
    state: Option<TenantState>,
}

/// Two machines of a tenant.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Pair {
    /// The sender's number.
    #[param(maximum = 4_294_967_295_u64)]
    from: u32,
    /// The receiver's number.
    #[param(maximum = 4_294_967_295_u64)]
    to: u32,
}

/// A tenant, with its last change as the `ETag`.
pub(super) struct TenantWithTag(pub(super) Tenant);

impl IntoResponse for TenantWithTag {
    fn into_response(self) -> Response {
        ([(ETAG, etag(self.0.change))], Json(self.0)).into_response()
    }
}

/// The form of a refusal.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Refusals {
    /// True if a refusal has the overloaded port, its excess, and requests that would be admitted.
    /// This takes as long as `explain`.
    #[serde(default)]
    #[param(required = false, default = false)]
    explain: bool,
}

/// Admits a tenant and reserves its request, or refuses it with the reason.
#[utoipa::path(
    post, path = "/v1/tenants", tag = "tenants", operation_id = "create_tenant",
    params(Refusals),
    request_body = NewTenant,
    responses(
        (status = 201, description = "The admitted tenant; the admission is durable", body = Tenant,
            headers(("Location" = String, description = "Its path"))),
        Guarded, problem::Body, Stored, Refused,
    )
)]
pub(super) async fn create(
    State(app): State<Arc<App>>,
    Params(refusals): Params<Refusals>,
    Write { body, author }: Write<NewTenant>,
) -> Result<Response, ApiError> {
    let mut new = body;
    complete(&author, &mut new)?;
    let by = author.by().clone();
    // Of a placement that the caller chose, the decision has the port already.
    let explains = refusals.explain && new.placement.is_empty();
    let request = explains.then(|| new.request());
    let tenant = match (changed(&app, author, Command::Create(new)).await, request) {
        (Ok(tenant), _) => tenant,
        (Err(error), None) => return Err(error),
        (Err(error), Some(request)) => return Err(explained(&app, &by, error, request).await),
    };
    let path = format!("/v1/tenants/{}", tenant.id.0);
    Ok((
        StatusCode::CREATED,
        [(LOCATION, path)],
        TenantWithTag(tenant),
    )
        .into_response())
}

/// Completes a refusal on a thread that answers long questions, in the caller's share of them.
async fn explained(app: &App, by: &Identity, mut error: ApiError, request: Request) -> ApiError {
    let Some(refusal) = error.refusal_mut() else {
        return error;
    };
    let mut complete = refusal.clone();
    let answer = app.ask(by, move |service| {
        service.question(|ledger| explain(ledger, &request, &mut complete));
        complete
    });
    // Without an answer the refusal stays as it is.
    if let Ok(complete) = answer.await {
        *refusal = complete;
    }
    error
}

/// Adds to a refusal the port, its excess, and the requests that would be admitted now. Takes as long
/// as [`Ledger::explain`].
fn explain(ledger: &Ledger, request: &Request, refusal: &mut RefusalDetail) {
    refusal.revision = Some(ledger.revision());
    let Ok(explanation) = ledger.explain(request) else {
        return;
    };
    if let Some(overload) = explanation.overload {
        let excess = overload.backlog_bytes;
        let excess = excess.map(|backlog| backlog.saturating_sub(overload.room_bytes));
        refusal.excess = excess.map(|excess| Bytes(excess).to_string());
        refusal.port = Some(overload.port);
    }
    refusal.nearest = explanation.nearest;
}

/// Sets the owner of a new tenant, and checks that the author may create it.
pub(super) fn complete(author: &Author, new: &mut NewTenant) -> Result<(), ApiError> {
    own(author, &mut new.owner)?;
    if author.owner().is_some() && !new.limit.is_none() {
        return Err(ApiError::forbidden(
            "only an operator's token may limit machines; leave the limit out",
        ));
    }
    Ok(())
}

/// Sets the owner that a request names, or that of the author's token.
pub(super) fn own(author: &Author, owner: &mut Option<String>) -> Result<(), ApiError> {
    match (author.owner(), &owner) {
        (Some(own), Some(requested_owner)) if own != requested_owner => Err(ApiError::forbidden(
            format!("the token is that of the owner {own:?}; leave the owner out"),
        )),
        (Some(own), _) => {
            *owner = Some(own.to_owned());
            Ok(())
        }
        (None, Some(_)) => Ok(()),
        (None, None) => Err(ApiError::new(
            Code::Absurd,
            "the owner is missing; an operator must name the tenant's owner",
        )),
    }
}

/// Checks the name of an owner or a tenant in a query.
pub(super) fn check_filter(kind: &str, text: Option<&str>) -> Result<(), ApiError> {
    match text.filter(|text| !is_name(text)) {
        None => Ok(()),
        Some(text) => Err(ApiError::malformed(format!(
            "the {kind} of {text:?} is not 1 to 63 of a-z, 0-9 and -, neither first nor last a -"
        ))),
    }
}

/// Lists tenants in ascending order of their numbers.
#[utoipa::path(
    get, path = "/v1/tenants", tag = "tenants", operation_id = "list_tenants",
    params(TenantsQuery),
    responses((status = 200, description = "A page of tenants", body = Page<Tenant>), Guarded)
)]
pub(super) async fn list(
    State(app): State<Arc<App>>,
    By(by): By,
    Params(query): Params<TenantsQuery>,
) -> Result<Json<Page<Tenant>>, ApiError> {
    check_filter("owner", query.owner.as_deref())?;
    check_filter("name", query.name.as_deref())?;
    let owner = match (by.owner(), query.owner) {
        (Some(own), Some(requested_owner)) if own != requested_owner => {
            return Err(ApiError::forbidden(format!(
                "the token is that of the owner {own:?}"
            )));
        }
        (own, requested_owner) => own.map(str::to_owned).or(requested_owner),
    };
    let filter = TenantFilter {
        owner,
        name: query.name,
        state: query.state,
    };
    let after = query.after.map(TenantId);
    let page = app.service.read(|ledger| {
        let page = ledger.tenants(&filter, after, query.limit.0);
        let items = page.items.iter();
        Page {
            items: items
                .map(|tenant| app.measured(ledger.with_standing(tenant, false)))
                .collect(),
            next: page.next,
        }
    });
    Ok(Json(page))
}

/// Returns a tenant.
#[utoipa::path(
    get, path = "/v1/tenants/{id}", tag = "tenants", operation_id = "get_tenant",
    params(("id" = u64, Path, description = "The tenant's number", maximum = 9_007_199_254_740_991_u64)),
    responses(
        (status = 200, description = "The tenant", body = Tenant,
            headers(("ETag" = String, description = "The number of its last change, for If-Match"))),
        Guarded, Absent,
    )
)]
pub(super) async fn get(
    State(app): State<Arc<App>>,
    By(by): By,
    Id(id): Id,
) -> Result<TenantWithTag, ApiError> {
    let tenant = visible(&app, &by, id)?;
    Ok(TenantWithTag(app.with_standing(&tenant)))
}

/// Changes the number of a tenant's machines, or their guarantee. Remaining machines are not moved.
///
/// A new guarantee is checked as an admission is, with all machines where they are.
#[utoipa::path(
    patch, path = "/v1/tenants/{id}", tag = "tenants", operation_id = "change_tenant",
    params(("id" = u64, Path, description = "The tenant's number", maximum = 9_007_199_254_740_991_u64)),
    request_body = TenantPatch,
    responses(
        (status = 200, description = "The updated tenant", body = Tenant,
            headers(("ETag" = String, description = "The number of this change"))),
        Guarded, Absent, Outdated, problem::Body, Stored, Refused,
    )
)]
pub(super) async fn change(
    State(app): State<Arc<App>>,
    Id(id): Id,
    Write { body, author }: Write<TenantPatch>,
) -> Result<TenantWithTag, ApiError> {
    let TenantPatch { vms, guarantee } = body;
    if vms.is_none() && guarantee.is_none() {
        let detail = "there is nothing to change; pass vms, guarantee, or both";
        return Err(ApiError::new(Code::Absurd, detail));
    }
    let guarantee = guarantee.map(Guarantee::with_default_bursts);
    let change = Command::Change { id, vms, guarantee };
    Ok(TenantWithTag(changed(&app, author, change).await?))
}

/// Deletes a tenant and releases its guarantees.
#[utoipa::path(
    delete, path = "/v1/tenants/{id}", tag = "tenants", operation_id = "delete_tenant",
    params(("id" = u64, Path, description = "The tenant's number", maximum = 9_007_199_254_740_991_u64)),
    responses((status = 204, description = "Deleted"), Guarded, Absent, Outdated, Stored)
)]
pub(super) async fn delete(
    State(app): State<Arc<App>>,
    Id(id): Id,
    Write { author, .. }: Write<()>,
) -> Result<StatusCode, ApiError> {
    match app.decide(author, Command::Delete { id }).await? {
        Reply::Deleted => Ok(StatusCode::NO_CONTENT),
        other => Err(problem::unexpected(&other)),
    }
}

/// Moves a tenant's machines off unusable hosts.
///
/// These are hosts that are drained or failed, or do not enforce the tenant's guarantee.
#[utoipa::path(
    post, path = "/v1/tenants/{id}/relocate", tag = "tenants", operation_id = "relocate_tenant",
    params(("id" = u64, Path, description = "The tenant's number", maximum = 9_007_199_254_740_991_u64)),
    responses(
        (status = 200, description = "The updated tenant", body = Tenant,
            headers(("ETag" = String, description = "The number of this change"))),
        Guarded, Absent, Outdated, Stored, Refused,
    )
)]
pub(super) async fn relocate(
    State(app): State<Arc<App>>,
    Id(id): Id,
    Write { author, .. }: Write<()>,
) -> Result<TenantWithTag, ApiError> {
    let tenant = changed(&app, author, Command::Relocate { id }).await?;
    Ok(TenantWithTag(tenant))
}

/// Begins, finishes or cancels the move of a machine.
///
/// `begin` reserves a place on the new host and keeps the present one. The move ends when the new
/// host reports the machine, or by `done` or `cancel`.
#[utoipa::path(
    post, path = "/v1/tenants/{id}/move", tag = "tenants", operation_id = "move_machine",
    params(("id" = u64, Path, description = "The tenant's number", maximum = 9_007_199_254_740_991_u64)),
    request_body = MoveVm,
    responses(
        (status = 200, description = "The updated tenant", body = Tenant,
            headers(("ETag" = String, description = "The number of this change"))),
        Guarded, Absent, Outdated, problem::Body, Stored, Refused,
    )
)]
pub(super) async fn move_vm(
    State(app): State<Arc<App>>,
    Id(id): Id,
    Write { body, author }: Write<MoveVm>,
) -> Result<TenantWithTag, ApiError> {
    let tenant = changed(&app, author, Command::Move { id, step: body }).await?;
    Ok(TenantWithTag(tenant))
}

/// Sets the rate limits of each machine of a tenant.
///
/// The limits apply to running machines. A direction that is left out becomes unlimited.
#[utoipa::path(
    post, path = "/v1/tenants/{id}/limit", tag = "tenants", operation_id = "limit_tenant",
    params(("id" = u64, Path, description = "The tenant's number", maximum = 9_007_199_254_740_991_u64)),
    request_body = VmLimit,
    responses(
        (status = 200, description = "The updated tenant", body = Tenant,
            headers(("ETag" = String, description = "The number of this change"))),
        Guarded, Absent, Outdated, problem::Body, Stored,
    )
)]
pub(super) async fn limit(
    State(app): State<Arc<App>>,
    Id(id): Id,
    Write { body, author }: Write<VmLimit>,
) -> Result<TenantWithTag, ApiError> {
    let tenant = changed(&app, author, Command::Limit { id, limit: body }).await?;
    Ok(TenantWithTag(tenant))
}

/// Returns the delay bound of a frame between two machines of a tenant, by queue.
#[utoipa::path(
    get, path = "/v1/tenants/{id}/bound", tag = "tenants", operation_id = "bound_of_pair",
    params(("id" = u64, Path, description = "The tenant's number", maximum = 9_007_199_254_740_991_u64), Pair),
    responses((status = 200, description = "The delay bound", body = PairBound), Guarded, Absent, Unbounded)
)]
pub(super) async fn bound(
    State(app): State<Arc<App>>,
    By(by): By,
    Id(id): Id,
    Params(pair): Params<Pair>,
) -> Result<Json<PairBound>, ApiError> {
    visible(&app, &by, id)?;
    let bound = app
        .service
        .read(|ledger| ledger.bound(id, pair.from, pair.to))?;
    Ok(Json(bound))
}

fn visible(app: &App, by: &Identity, id: TenantId) -> Result<Arc<Tenant>, ApiError> {
    let tenant = app.service.read(|ledger| ledger.tenant(id).cloned());
    tenant
        .filter(|tenant| by.owner().is_none_or(|owner| owner == tenant.owner))
        .ok_or_else(|| ApiError::not_found(format!("there is no tenant {}", id.0)))
}

impl App {
    /// Returns a tenant with the state of its guarantee.
    pub(super) fn with_standing(&self, tenant: &Tenant) -> Tenant {
        let mut tenant = self
            .service
            .read(|ledger| ledger.with_standing(tenant, true));
        let hosts = tenant.standing.iter_mut().flat_map(|it| &mut it.hosts);
        for host in hosts {
            if let (Some(known), Some(latest)) =
                (&mut host.revision, self.report_times.revision(&host.host))
            {
                *known = latest.max(*known);
            }
        }
        self.measured(tenant)
    }

    /// Returns a tenant with the measurements of its hosts.
    fn measured(&self, mut tenant: Tenant) -> Tenant {
        let measured = tenant
            .request
            .guarantee
            .and_then(|_| self.report_times.measured(&tenant, Instant::now()));
        if let Some(enforcement) = &mut tenant.standing {
            enforcement.measured = measured;
        }
        tenant
    }
}

async fn changed(app: &App, author: Author, command: Command) -> Result<Tenant, ApiError> {
    match app.decide(author, command).await? {
        Reply::Tenant(tenant) => Ok(app.with_standing(&tenant)),
        other => Err(problem::unexpected(&other)),
    }
}

//! Machines by the names that their schedulers gave them.

use super::App;
use super::access;
use super::extract::{Author, By, Params, PathName, Write};
use super::problem::{self, Absent, ApiError, Guarded, Refused, Stored};
use super::tenants::{Limit, check_filter, own};
use super::tokens::{self, Identity};
use crate::ledger::{Caller, Command, NamedMachine, PutMachine, Reply, machines};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;
use std::sync::Arc;
use tailbound_api::{Code, Machine, MachinePut, Page};
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(super) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(get, put, delete))
}

/// Checks that a host changes machines on itself only.
fn caller(author: &Author, host: &str) -> Result<Caller, ApiError> {
    access::check_host(author.by(), host)?;
    Ok(match &author.by().caller {
        tokens::Caller::Host { .. } => Caller::Host,
        _ => Caller::Owner,
    })
}

/// Sets the host and the tenant of a machine by its name.
///
/// A reserved machine becomes part of its tenant. One that is elsewhere, or in another tenant of the
/// owner, comes to this host, and its other places are released. An unknown machine is admitted,
/// except for hosts. A machine that is there already stays as it is. All is done, or nothing.
#[utoipa::path(
    put, path = "/v1/machines/{name}", tag = "scheduling", operation_id = "put_machine",
    params(("name" = String, Path, description = "The machine's name", pattern = "^[ -~]{1,128}$")),
    request_body = MachinePut,
    responses(
        (status = 200, description = "The machine on this host; it is durable", body = Machine),
        Guarded, Absent, problem::Body, Stored, Refused,
    )
)]
async fn put(
    State(app): State<Arc<App>>,
    PathName(name): PathName,
    Write { body, author }: Write<MachinePut>,
) -> Result<Json<Machine>, ApiError> {
    let caller = caller(&author, &body.host)?;
    let machine = named(&author, name, body.owner.clone())?;
    let put = PutMachine {
        machine,
        put: body,
        caller,
    };
    match app
        .decide(author, Command::PutMachine(Box::new(put)))
        .await?
    {
        Reply::Machine(machine) => Ok(Json(Arc::unwrap_or_clone(machine))),
        other => Err(problem::unexpected(&other)),
    }
}

fn named(
    author: &Author,
    name: String,
    mut owner: Option<String>,
) -> Result<NamedMachine, ApiError> {
    own(author, &mut owner)?;
    let owner = owner.expect("it was just set, or the call was refused");
    Ok(NamedMachine { owner, name })
}

/// The place that is released.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct Departure {
    /// The host that the machine left.
    host: String,
    /// The owner, which operators and hosts must set.
    #[param(pattern = "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")]
    owner: Option<String>,
}

/// Releases the place of a machine on a host: the confirmed one, otherwise the reserved one.
///
/// A machine that is not there, or unknown, is no error. A tenant without any other machine is
/// deleted.
#[utoipa::path(
    delete, path = "/v1/machines/{name}", tag = "scheduling", operation_id = "delete_machine",
    params(("name" = String, Path, description = "The machine's name", pattern = "^[ -~]{1,128}$"), Departure),
    responses((status = 204, description = "The machine has no place there"), Guarded, Stored)
)]
async fn delete(
    State(app): State<Arc<App>>,
    PathName(name): PathName,
    Params(left): Params<Departure>,
    Write { author, .. }: Write<()>,
) -> Result<StatusCode, ApiError> {
    let Departure { host, owner } = left;
    check_filter("owner", owner.as_deref())?;
    let caller = caller(&author, &host)?;
    let machine = named(&author, name, owner)?;
    let command = Command::DeleteMachine {
        machine,
        host,
        caller,
    };
    match app.decide(author, command).await? {
        Reply::Deleted => Ok(StatusCode::NO_CONTENT),
        other => Err(problem::unexpected(&other)),
    }
}

/// Selects the owner of a machine.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct OwnerQuery {
    /// The owner; with a tenant's token the default is the token's owner.
    #[param(pattern = "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")]
    owner: Option<String>,
}

/// Returns a machine by its name: its confirmed place, otherwise the reserved one.
#[utoipa::path(
    get, path = "/v1/machines/{name}", tag = "scheduling", operation_id = "get_machine",
    params(("name" = String, Path, description = "The machine's name", pattern = "^[ -~]{1,128}$"), OwnerQuery),
    responses((status = 200, description = "The machine", body = Machine), Guarded, Absent, problem::Absurd)
)]
async fn get(
    State(app): State<Arc<App>>,
    PathName(name): PathName,
    By(by): By,
    Params(query): Params<OwnerQuery>,
) -> Result<Json<Machine>, ApiError> {
    let owner = seen(&by, query.owner)?;
    let owner = owner.ok_or_else(|| {
        let message = "the owner is missing; add ?owner=OWNER to the path";
        ApiError::new(Code::Absurd, message)
    })?;
    let machine = app
        .service
        .read(|ledger| machines::get(ledger, &owner, &name));
    let missing = || ApiError::not_found(format!("{owner} has no machine {name:?}"));
    machine.map(Json).ok_or_else(missing)
}

/// Returns the owner whose machines the caller reads, if it is one.
fn seen(by: &Identity, owner: Option<String>) -> Result<Option<String>, ApiError> {
    check_filter("owner", owner.as_deref())?;
    match (by.owner(), owner) {
        (Some(own), Some(other)) if own != other => Err(ApiError::forbidden(format!(
            "the token is that of the owner {own:?}; leave the owner out"
        ))),
        (own, other) => Ok(own.map(str::to_owned).or(other)),
    }
}

/// Selects the machines of a list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct MachinesQuery {
    /// The maximum number of machines on the page.
    #[serde(default)]
    #[param(value_type = u32, minimum = 1, maximum = 1000, default = 100, required = false)]
    limit: Limit,
    /// The position of the page: the `next` of the previous page.
    #[param(pattern = "^[0-9]{1,19}-[0-9]{1,9}$")]
    after: Option<String>,
    /// Only machines of this owner.
    #[param(pattern = "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")]
    owner: Option<String>,
}

/// Lists the machines with names by tenant and number. A machine with two places is listed twice.
#[utoipa::path(
    get, path = "/v1/machines", tag = "scheduling", operation_id = "list_machines",
    params(MachinesQuery),
    responses((status = 200, description = "A page of machines", body = Page<Machine>), Guarded)
)]
async fn list(
    State(app): State<Arc<App>>,
    By(by): By,
    Params(query): Params<MachinesQuery>,
) -> Result<Json<Page<Machine>>, ApiError> {
    let owner = seen(&by, query.owner)?;
    let from = query.after.as_deref().map(str::parse).transpose();
    let from = from.map_err(ApiError::malformed)?.unwrap_or_default();
    // An owner's are looked for among all.
    let page = app
        .ask(&by, move |service| {
            service.question(|ledger| machines::list(ledger, owner.as_deref(), from, query.limit.0))
        })
        .await?;
    Ok(Json(page))
}

//! The hosts.

use super::App;
use super::extract::{Params, PathName, Write};
use super::problem::{self, Absent, ApiError, Guarded, Stored};
use super::tenants::Limit;
use crate::ledger::{Command, Reply};
use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use std::sync::Arc;
use tailbound_api::{Host, HostChange, HostState, Page};
use utoipa::IntoParams;

/// Selects the hosts of a list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct HostsQuery {
    /// The maximum number of hosts on the page.
    #[serde(default)]
    #[param(value_type = u32, minimum = 1, maximum = 1000, default = 100, required = false)]
    limit: Limit,
    /// The position of the page: the `next` of the previous page.
    after: Option<String>,
    /// Only hosts in this state.
    state: Option<HostState>,
}

/// Lists hosts in the order of the topology.
#[utoipa::path(
    get, path = "/v1/hosts", tag = "hosts", operation_id = "list_hosts",
    params(HostsQuery),
    responses((status = 200, description = "A page of hosts, without machines and ports", body = Page<Host>), Guarded, Absent)
)]
pub(super) async fn list(
    State(app): State<Arc<App>>,
    Params(query): Params<HostsQuery>,
) -> Result<Json<Page<Host>>, ApiError> {
    let page = app
        .service
        .read(|ledger| ledger.hosts(query.state, query.after.as_deref(), query.limit.0));
    let mut page = page.map_err(ApiError::from)?;
    for host in &mut page.items {
        app.add_heard(host);
    }
    Ok(Json(page))
}

/// Returns a host with its machines and ports.
#[utoipa::path(
    get, path = "/v1/hosts/{name}", tag = "hosts", operation_id = "get_host",
    params(("name" = String, Path, description = "The host's name", example = "a-1")),
    responses((status = 200, description = "The host", body = Host), Guarded, Absent)
)]
pub(super) async fn get(
    State(app): State<Arc<App>>,
    PathName(name): PathName,
) -> Result<Json<Host>, ApiError> {
    let host = app.service.read(|ledger| ledger.host(&name));
    let mut host = host.ok_or_else(|| ApiError::not_found(format!("there is no host {name:?}")))?;
    app.add_heard(&mut host);
    Ok(Json(host))
}

impl App {
    /// Adds the revision that a host reported last; the ledger has that of the last report with
    /// changes.
    fn add_heard(&self, host: &mut Host) {
        if let (Some(known), Some(latest)) = (
            &mut host.said.revision,
            self.report_times.revision(&host.name),
        ) {
            *known = latest.max(*known);
        }
    }
}

/// Drains hosts: they accept no further machines, and present ones continue.
///
/// Returns the affected tenants and where each would fit.
#[utoipa::path(
    post, path = "/v1/hosts/{name}/drain", tag = "hosts", operation_id = "drain_hosts",
    params(("name" = String, Path, description = "A host, rack or pod", example = "rack1")),
    responses((status = 200, description = "The affected tenants", body = HostChange), Guarded, Absent, Stored)
)]
pub(super) async fn drain(
    app: State<Arc<App>>,
    name: PathName,
    write: Write<()>,
) -> Result<Json<Arc<HostChange>>, ApiError> {
    set(app, name, write, HostState::Drained).await
}

/// Marks hosts as failed.
///
/// Returns the affected tenants and where each would fit.
#[utoipa::path(
    post, path = "/v1/hosts/{name}/fail", tag = "hosts", operation_id = "fail_hosts",
    params(("name" = String, Path, description = "A host, rack or pod", example = "rack1")),
    responses((status = 200, description = "The affected tenants", body = HostChange), Guarded, Absent, Stored)
)]
pub(super) async fn fail(
    app: State<Arc<App>>,
    name: PathName,
    write: Write<()>,
) -> Result<Json<Arc<HostChange>>, ApiError> {
    set(app, name, write, HostState::Failed).await
}

/// Reopens hosts.
#[utoipa::path(
    post, path = "/v1/hosts/{name}/restore", tag = "hosts", operation_id = "restore_hosts",
    params(("name" = String, Path, description = "A host, rack or pod", example = "rack1")),
    responses((status = 200, description = "The hosts are open", body = HostChange), Guarded, Absent, Stored)
)]
pub(super) async fn restore(
    app: State<Arc<App>>,
    name: PathName,
    write: Write<()>,
) -> Result<Json<Arc<HostChange>>, ApiError> {
    set(app, name, write, HostState::Open).await
}

async fn set(
    State(app): State<Arc<App>>,
    PathName(node): PathName,
    Write { author, .. }: Write<()>,
    state: HostState,
) -> Result<Json<Arc<HostChange>>, ApiError> {
    match app
        .decide(author, Command::SetHosts { node, state })
        .await?
    {
        Reply::Hosts(change) => Ok(Json(change)),
        other => Err(problem::unexpected(&other)),
    }
}

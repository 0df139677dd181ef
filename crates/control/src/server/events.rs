//! The streams of changes of tenants' states, of tenants and of hosts.

use super::App;
use super::extract::{By, Params};
use super::feed::{self, Feed, Lines, Since};
use super::problem::{ApiError, Busy, Forgotten, Guarded};
use super::revisions::age_ms;
use crate::ledger::Ledger;
use crate::service::{Gap, Item};
use axum::extract::State;
use axum::response::Response;
use std::collections::BTreeSet;
use std::sync::Arc;
use tailbound_api::{Event, Host, HostChangeLine, TenantLine};

/// Streams changes of tenants' states.
///
/// Without `since`, the first lines are the degraded tenants. Then follow a line for each tenant
/// whose state changes, and a line without a tenant after all others of its revision and every 10
/// seconds. Each line is JSON. A tenant's token gets its owner's tenants only.
#[utoipa::path(
    get, path = "/v1/events", tag = "tenants", operation_id = "stream_events",
    params(Since),
    responses(
        (status = 200, description = "Lines of JSON", body = Event, content_type = "application/x-ndjson"),
        Guarded, Busy, Forgotten,
    )
)]
pub(super) async fn stream(
    State(app): State<Arc<App>>,
    By(by): By,
    Params(Since { since }): Params<Since>,
) -> Result<Response, ApiError> {
    let owner = by.owner().map(str::to_owned);
    // Before the read of the degraded tenants, so that no change falls between.
    let last = feed::begin(&app, since)?;
    let mut first = Vec::new();
    if since.is_none() {
        let degraded = app.service.read(|ledger| ledger.degraded(owner.as_deref()));
        first.extend(degraded.into_iter().map(|tenant| Event {
            tenant: Some(tenant),
            ..event(&app, last)
        }));
    }
    feed::answer(app, by, States { owner, first, last })
}

/// Streams tenants as they change.
///
/// A tenant that is new or differs is a line with its present state; a deleted one is a line with
/// its number. A reader misses intermediate states, but never the last one. To follow a list, pass the
/// `Tailbound-Revision` of its first page as `since`. A tenant's token gets its owner's tenants only.
#[utoipa::path(
    get, path = "/v1/changes/tenants", tag = "tenants", operation_id = "stream_tenants",
    params(Since),
    responses(
        (status = 200, description = "Lines of JSON", body = TenantLine, content_type = "application/x-ndjson"),
        Guarded, Busy, Forgotten,
    )
)]
pub(super) async fn tenants(
    State(app): State<Arc<App>>,
    By(by): By,
    Params(Since { since }): Params<Since>,
) -> Result<Response, ApiError> {
    let owner = by.owner().map(str::to_owned);
    let last = feed::begin(&app, since)?;
    feed::answer(app, by, Tenants { owner, last })
}

/// Streams hosts as their states and reports change.
///
/// A reader misses intermediate states, but never the last one. To follow a list, pass the
/// `Tailbound-Revision` of its first page as `since`.
#[utoipa::path(
    get, path = "/v1/changes/hosts", tag = "hosts", operation_id = "stream_hosts",
    params(Since),
    responses(
        (status = 200, description = "Lines of JSON", body = HostChangeLine, content_type = "application/x-ndjson"),
        Guarded, Busy, Forgotten,
    )
)]
pub(super) async fn hosts(
    State(app): State<Arc<App>>,
    By(by): By,
    Params(Since { since }): Params<Since>,
) -> Result<Response, ApiError> {
    let last = feed::begin(&app, since)?;
    feed::answer(app, by, Hosts { last })
}

/// Returns an event without a tenant.
fn event(app: &App, revision: u64) -> Event {
    Event {
        revision,
        tenant: None,
        missed: 0,
        age_ms: age_ms(app),
    }
}

/// Changes of tenants' states.
struct States {
    /// The owner whose events are sent; `None` sends all events.
    owner: Option<String>,
    /// The lines before all others.
    first: Vec<Event>,
    last: u64,
}

impl Feed for States {
    type Line = Event;

    fn next(&mut self, app: &App) -> Result<Lines<Event>, Gap> {
        let owner = self.owner.as_ref();
        let is_wanted = |item: &Item| match item {
            Item::State(event) => {
                let of = event.tenant.as_ref().map(|tenant| &tenant.owner);
                owner.is_none() || of == owner
            }
            _ => false,
        };
        let piece = app.service.noted_after(self.last, is_wanted)?;
        self.last = piece.upto;
        let mut lines = std::mem::take(&mut self.first);
        lines.extend(piece.items.into_iter().filter_map(|(_, item)| match item {
            Item::State(event) => Some(Event {
                age_ms: age_ms(app),
                ..Event::clone(&event)
            }),
            _ => None,
        }));
        Ok(ended(self, app, lines, piece.has_more))
    }

    fn heartbeat(&self, app: &App) -> Event {
        event(app, self.last)
    }
}

/// Adds the line that ends the lines of a revision.
fn ended<F: Feed>(feed: &F, app: &App, mut lines: Vec<F::Line>, has_more: bool) -> Lines<F::Line> {
    if !lines.is_empty() {
        lines.push(feed.heartbeat(app));
    }
    Lines { lines, has_more }
}

/// Changes of tenants.
struct Tenants {
    owner: Option<String>,
    last: u64,
}

impl Feed for Tenants {
    type Line = TenantLine;

    fn next(&mut self, app: &App) -> Result<Lines<TenantLine>, Gap> {
        let owner = self.owner.as_ref();
        let is_wanted = |item: &Item| match item {
            Item::Tenant(_, of) => owner.is_none_or(|owner| owner == of),
            _ => false,
        };
        let piece = app.service.noted_after(self.last, is_wanted)?;
        self.last = piece.upto;
        let ids: BTreeSet<_> = piece
            .items
            .iter()
            .filter_map(|(_, item)| match item {
                Item::Tenant(id, _) => Some(*id),
                _ => None,
            })
            .collect();
        let lines: Vec<_> = app.service.read(|ledger| {
            let line = |id| {
                let tenant = ledger.tenant(id);
                TenantLine {
                    gone: tenant.is_none().then_some(id),
                    tenant: tenant.map(|tenant| ledger.with_standing(tenant, false)),
                    revision: ledger.revision(),
                    age_ms: age_ms(app),
                }
            };
            ids.into_iter().map(line).collect()
        });
        Ok(ended(self, app, lines, piece.has_more))
    }

    fn heartbeat(&self, app: &App) -> TenantLine {
        TenantLine {
            tenant: None,
            gone: None,
            revision: self.last,
            age_ms: age_ms(app),
        }
    }
}

/// Changes of hosts.
struct Hosts {
    last: u64,
}

impl Feed for Hosts {
    type Line = HostChangeLine;

    fn next(&mut self, app: &App) -> Result<Lines<HostChangeLine>, Gap> {
        let is_wanted = |item: &Item| matches!(item, Item::Host(_) | Item::Topology);
        let piece = app.service.noted_after(self.last, is_wanted)?;
        self.last = piece.upto;
        // By name; `None` is the topology.
        let changed: BTreeSet<Option<String>> = piece
            .items
            .into_iter()
            .filter_map(|(_, item)| match item {
                Item::Host(name) => Some(Some(name)),
                Item::Topology => Some(None),
                _ => None,
            })
            .collect();
        let mut lines = Vec::new();
        for name in changed {
            let line = HostChangeLine {
                topology: name.is_none(),
                ..self.heartbeat(app)
            };
            let (host, revision) = app.service.read(|ledger| {
                let host = name.as_deref().and_then(|name| ledger.host(name));
                (host, Ledger::revision(ledger))
            });
            if host.is_some() || line.topology {
                let host = host.map(|host| Host {
                    vms: Vec::new(),
                    ports: Vec::new(),
                    ..host
                });
                lines.push(HostChangeLine {
                    host,
                    revision,
                    ..line
                });
            }
        }
        Ok(ended(self, app, lines, piece.has_more))
    }

    fn heartbeat(&self, app: &App) -> HostChangeLine {
        HostChangeLine {
            host: None,
            topology: false,
            revision: self.last,
            age_ms: age_ms(app),
        }
    }
}

//! The audit: pages and a stream of its entries.

use super::App;
use super::extract::{By, Params};
use super::feed::{self, Feed, Lines};
use super::problem::{ApiError, Busy, Forgotten, Guarded};
use super::revisions::age_ms;
use super::tenants::Limit;
use crate::ledger::{Ledger, trail};
use crate::service::Gap;
use axum::Json;
use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;
use std::ops::RangeInclusive;
use std::sync::Arc;
use tailbound_api::{AuditCaller, AuditEntry, AuditLine, Page};
use utoipa::IntoParams;

/// Limit on the entries that one look of a stream examines.
const PIECE: u64 = 256;
/// Limit on the entries that are examined for a page.
const MAX_LOOK: u64 = 4096;

/// The entries of a page.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct AuditQuery {
    /// Only entries with greater numbers: the `next` of the previous page. The default is the oldest
    /// kept entry.
    #[param(maximum = 9_007_199_254_740_991_u64)]
    since: Option<u64>,
    /// The maximum number of entries on the page.
    #[serde(default)]
    #[param(value_type = u32, minimum = 1, maximum = 1000, default = 100, required = false)]
    limit: Limit,
}

/// The point from which the stream continues.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct SinceEntry {
    /// Continues after the entry with this number. Without it, the stream begins with the next
    /// entry.
    #[param(maximum = 9_007_199_254_740_991_u64)]
    since: Option<u64>,
}

/// Lists the entries about changes in the order of their numbers.
///
/// The newest 50,000 are kept. A tenant's token gets the entries about its owner's tenants.
#[utoipa::path(
    get, path = "/v1/audit", tag = "service", operation_id = "list_audit",
    params(AuditQuery),
    responses(
        (status = 200, description = "A page of entries", body = Page<AuditEntry>),
        Guarded, Forgotten,
    )
)]
pub(super) async fn list(
    State(app): State<Arc<App>>,
    By(by): By,
    Params(AuditQuery { since, limit }): Params<AuditQuery>,
) -> Result<Json<Page<AuditEntry>>, ApiError> {
    let since = match since {
        Some(since) => check(&app, since)?,
        None => app.service.read(|ledger| trail::of(ledger).oldest()) - 1,
    };
    let owner = by.owner();
    let page = app.service.read(|ledger| {
        let last = trail::of(ledger).last();
        let upto = last.min(since + MAX_LOOK);
        let entries = visible(ledger, since..=upto, owner);
        let items: Vec<_> = entries.take(limit.0).collect();
        let is_full = items.len() == limit.0;
        let end = items.last().filter(|_| is_full).map(|entry| entry.number);
        let end = end.unwrap_or(upto);
        let next = (end < last).then(|| end.to_string());
        Page { items, next }
    });
    Ok(Json(page))
}

/// Streams the entries about changes.
///
/// Each line is JSON with an entry; a line without one comes every 10 seconds. A tenant's token gets
/// the entries about its owner's tenants.
#[utoipa::path(
    get, path = "/v1/changes/audit", tag = "service", operation_id = "stream_audit",
    params(SinceEntry),
    responses(
        (status = 200, description = "Lines of JSON", body = AuditLine, content_type = "application/x-ndjson"),
        Guarded, Busy, Forgotten,
    )
)]
pub(super) async fn stream(
    State(app): State<Arc<App>>,
    By(by): By,
    Params(SinceEntry { since }): Params<SinceEntry>,
) -> Result<Response, ApiError> {
    let last = match since {
        Some(since) => check(&app, since)?,
        None => app.service.read(|ledger| trail::of(ledger).last()),
    };
    let owner = by.owner().map(str::to_owned);
    feed::answer(app, by, Entries { owner, last })
}

/// Checks that all entries with greater numbers are known.
fn check(app: &App, since: u64) -> Result<u64, ApiError> {
    let gap = app.service.read(|ledger| gap(ledger, since));
    gap.map_or(Ok(since), |gap| Err(feed::gap_error(gap, "entry", since)))
}

fn gap(ledger: &Ledger, since: u64) -> Option<Gap> {
    let trail = trail::of(ledger);
    let (before_all, last) = (trail.oldest() - 1, trail.last());
    if since < before_all {
        return Some(Gap::Past(before_all));
    }
    (since > last.max(before_all)).then_some(Gap::Future(last))
}

/// Returns the entries after the first of these numbers up to the last one, as a caller with this
/// owner sees them.
fn visible<'l>(
    ledger: &'l Ledger,
    numbers: RangeInclusive<u64>,
    owner: Option<&'l str>,
) -> impl Iterator<Item = AuditEntry> + 'l {
    let entries = trail::of(ledger).after(*numbers.start());
    let entries = entries.take_while(move |entry| entry.number <= *numbers.end());
    entries.filter_map(move |entry| match owner {
        None => Some(AuditEntry::clone(entry)),
        Some(owner) => of_owner(entry, owner),
    })
}

/// Returns an entry as an owner sees it: without other owners, and without the names of others'
/// tokens.
fn of_owner(entry: &AuditEntry, owner: &str) -> Option<AuditEntry> {
    let own = entry.owners.iter().find(|it| *it == owner)?;
    let AuditCaller { role, .. } = &entry.caller;
    let caller = if *role == format!("tenant {owner}") {
        entry.caller.clone()
    } else {
        AuditCaller {
            token: String::new(),
            role: role.clone(),
            request: String::new(),
        }
    };
    Some(AuditEntry {
        owners: vec![own.clone()],
        caller,
        ..entry.clone()
    })
}

/// The entries of the audit.
struct Entries {
    owner: Option<String>,
    last: u64,
}

impl Feed for Entries {
    type Line = AuditLine;

    fn next(&mut self, app: &App) -> Result<Lines<AuditLine>, Gap> {
        let owner = self.owner.as_deref();
        let (since, age_ms) = (self.last, age_ms(app));
        let looked = app.service.read(|ledger| {
            if let Some(gap) = gap(ledger, since) {
                return Err(gap);
            }
            let last = trail::of(ledger).last();
            let upto = last.min(since + PIECE);
            let lines = visible(ledger, since..=upto, owner).map(|entry| AuditLine {
                number: entry.number,
                entry: Some(entry),
                revision: ledger.revision(),
                age_ms,
            });
            Ok((lines.collect(), upto, upto < last))
        });
        let (lines, upto, has_more) = looked?;
        self.last = upto;
        Ok(Lines { lines, has_more })
    }

    fn heartbeat(&self, app: &App) -> AuditLine {
        AuditLine {
            entry: None,
            number: self.last,
            revision: app.service.read(Ledger::revision),
            age_ms: age_ms(app),
        }
    }
}

//! The revision and the age of answers, and queries that wait for a revision.

use super::App;
use super::problem::ApiError;
use crate::ledger::Ledger;
use crate::replica::{REVISION, Replica};
use axum::http::request::Parts;
use axum::http::uri::{PathAndQuery, Uri};
use axum::http::{HeaderMap, HeaderName};
use std::time::Duration;
use tailbound_api::{Code, Role};

/// An upper bound on the age of an answer in milliseconds: the time since the last proof that this
/// replica has all of the store.
const AGE: HeaderName = HeaderName::from_static("tailbound-age-ms");
/// The parameter of queries that wait for a revision.
const MIN_REVISION: &str = "min_revision";
/// The value of [`MIN_REVISION`] for [`MinRevision::Newest`].
pub(super) const NEWEST: &str = "newest";
/// The longest wait for a revision.
const MAX_WAIT: Duration = Duration::from_secs(5);

/// The revision that the answer to a query must have at least.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MinRevision {
    /// The revision of an earlier answer.
    Of(u64),
    /// The revision of the last change that was done before the query came, by any replica.
    Newest,
}

/// Removes the parameter `min_revision` from a query, and returns its value.
pub(super) fn take_min_revision(parts: &mut Parts) -> Result<Option<MinRevision>, ApiError> {
    let mut min_revision = None;
    let mut rest = Vec::new();
    for part in parts.uri.query().unwrap_or_default().split('&') {
        let Some(("min_revision", value)) = part.split_once('=') else {
            rest.push(part);
            continue;
        };
        let is_number = value.bytes().all(|byte| byte.is_ascii_digit());
        let revision = match value {
            NEWEST => Some(MinRevision::Newest),
            _ if is_number => value.parse().ok().map(MinRevision::Of),
            _ => None,
        };
        min_revision = Some(revision.filter(|_| min_revision.is_none()).ok_or_else(|| {
            ApiError::malformed(format!(
                "{MIN_REVISION} is the revision of an answer, which is a whole number, or {NEWEST}, \
                 once, and not {value:?}"
            ))
        })?);
    }
    if min_revision.is_some() {
        let path = parts.uri.path();
        let uri = match rest.join("&") {
            rest if rest.is_empty() => path.to_owned(),
            rest => format!("{path}?{rest}"),
        };
        let path_and_query: PathAndQuery = uri.parse().expect("it is a part of the request's URI");
        parts.uri = Uri::from(path_and_query);
    }
    Ok(min_revision)
}

/// Waits until this replica has a revision.
///
/// # Errors
/// The leader has not issued the revision, or this replica does not reach it in time; the store
/// does not answer.
pub(super) async fn reach(app: &App, wanted: MinRevision) -> Result<(), ApiError> {
    match wanted {
        MinRevision::Of(revision) => reach_revision(app, revision).await,
        MinRevision::Newest => match &app.replica {
            Some(replica) => reach_newest(replica).await,
            // Without replicas readers have all that was answered.
            None => Ok(()),
        },
    }
}

async fn reach_newest(replica: &Replica) -> Result<(), ApiError> {
    match tokio::time::timeout(MAX_WAIT, replica.newest()).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(why)) => {
            let detail = format!("this replica cannot read the store's newest revision: {why}");
            Err(ApiError::new(Code::Unavailable, detail))
        }
        Err(_) => {
            let detail = format!(
                "this replica did not reach the store's newest revision within {} s; repeat the query, \
                 or send it to another replica",
                MAX_WAIT.as_secs()
            );
            Err(ApiError::new(Code::Behind, detail))
        }
    }
}

async fn reach_revision(app: &App, revision: u64) -> Result<(), ApiError> {
    let mut revisions = app.service.watch();
    let has = *revisions.borrow();
    if has >= revision {
        return Ok(());
    }
    if app.service.role() == Role::Leader {
        return Err(ApiError::new(
            Code::Future,
            format!(
                "the service is at revision {has} and has not issued {revision}: its store was \
                 replaced by an older one, or the revision is another service's"
            ),
        ));
    }
    let reached = revisions.wait_for(|has| *has >= revision);
    if let Ok(Ok(_)) = tokio::time::timeout(MAX_WAIT, reached).await {
        return Ok(());
    }
    let has = app.service.read(Ledger::revision);
    Err(ApiError::new(
        Code::Behind,
        format!(
            "this replica is at revision {has} and did not reach {revision} within {} s; repeat the \
             query, or send it to the leader",
            MAX_WAIT.as_secs()
        ),
    ))
}

/// Adds the revision and the age to an answer, unless it has another replica's revision.
pub(super) fn stamp(app: &App, headers: &mut HeaderMap) {
    let revision = app.service.read(Ledger::revision);
    headers.entry(REVISION).or_insert_with(|| revision.into());
    headers.insert(AGE, age_ms(app).into());
}

/// Returns an upper bound on the age of what this replica has, in milliseconds.
pub(super) fn age_ms(app: &App) -> u64 {
    let age = app.replica.as_ref().map(Replica::age).unwrap_or_default();
    u64::try_from(age.as_millis()).unwrap_or(u64::MAX)
}

/// Waits until the last proof that this replica has all of the store is too old, for hosts and for
/// readers of streams.
pub(super) async fn stale(app: &App) {
    match &app.replica {
        Some(replica) => replica.stale().await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::guarantees::tests::server;
    use axum::http::Request;
    use std::sync::Arc;
    use tokio::time::Instant;

    #[tokio::test]
    async fn a_follower_waits_for_a_revision_and_answers_clearly_without_it() {
        let server = server(None);
        let app = Arc::clone(&server.app);
        assert!(reach(&app, MinRevision::Of(0)).await.is_ok());
        assert!(reach(&app, MinRevision::Newest).await.is_ok());
        let waiting = tokio::spawn({
            let app = Arc::clone(&app);
            async move { reach(&app, MinRevision::Of(7)).await.is_ok() }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        app.service.apply(Vec::new(), 7).await.unwrap().unwrap();
        assert!(waiting.await.unwrap());
        let mut headers = HeaderMap::new();
        stamp(&app, &mut headers);
        assert_eq!((&headers[REVISION], &headers[AGE]), (&7.into(), &0.into()));
        // From here on time passes while all tasks are idle.
        tokio::time::pause();
        let begin = Instant::now();
        let error = reach(&app, MinRevision::Of(8))
            .await
            .expect_err("nothing arrives");
        assert_eq!(error.code(), Code::Behind);
        // Timers count whole milliseconds.
        assert_eq!(begin.elapsed().as_secs(), MAX_WAIT.as_secs());
    }

    fn taken(uri: &str) -> (Result<Option<MinRevision>, Code>, String) {
        let (mut parts, ()) = Request::get(uri).body(()).unwrap().into_parts();
        let found = take_min_revision(&mut parts).map_err(|error| error.code());
        (found, parts.uri.to_string())
    }

    #[test]
    fn the_revision_is_taken_out_of_a_query_and_the_rest_stays() {
        for (uri, found, rest) in [
            ("/v1/tenants", Ok(None), "/v1/tenants"),
            ("/v1/tenants?limit=3", Ok(None), "/v1/tenants?limit=3"),
            (
                "/v1/status?min_revision=7",
                Ok(Some(MinRevision::Of(7))),
                "/v1/status",
            ),
            (
                "/v1/status?min_revision=newest",
                Ok(Some(MinRevision::Newest)),
                "/v1/status",
            ),
            (
                "/v1/x?a=%26&min_revision=7&b=2",
                Ok(Some(MinRevision::Of(7))),
                "/v1/x?a=%26&b=2",
            ),
        ] {
            assert_eq!(taken(uri), (found, rest.to_owned()));
        }
        for uri in [
            "/v1/status?min_revision=",
            "/v1/status?min_revision=-1",
            "/v1/status?min_revision=+1",
            "/v1/status?min_revision=99999999999999999999",
            "/v1/status?min_revision=Newest",
            "/v1/status?min_revision=1&min_revision=2",
            "/v1/status?min_revision=1&min_revision=newest",
        ] {
            assert_eq!(taken(uri).0, Err(Code::Malformed), "{uri}");
        }
    }
}

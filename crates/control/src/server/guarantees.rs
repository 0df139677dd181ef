//! What each host has to keep to, once or for as long as it listens.

use super::App;
use super::extract::{By, Named};
use super::problem::{Absent, Busy, Error, Guarded};
use super::tokens::{Caller, Identity};
use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tailbound_client::{Code, HostGuarantees};
use tokio::sync::{OwnedSemaphorePermit, mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;

/// A stream says something at least this often, so that silence means that the
/// service is away.
const HEARTBEAT: Duration = Duration::from_secs(10);
/// Who takes nothing for so long is gone.
const STUCK: Duration = Duration::from_secs(30);

/// A host's token is for that host alone.
fn check(by: &Identity, name: &str) -> Result<(), Error> {
    match &by.caller {
        Caller::Host { host } if host != name => Err(Error::forbidden(format!(
            "the token is that of the host {host:?}"
        ))),
        _ => Ok(()),
    }
}

fn read(app: &App, name: &str) -> Result<HostGuarantees, Error> {
    app.service
        .read(|ledger| ledger.guarantees(name))
        .ok_or_else(|| Error::not_found(format!("there is no host {name:?}")))
}

/// What a host has to keep to now.
#[utoipa::path(
    get, path = "/v1/hosts/{name}/guarantees", tag = "hosts",
    operation_id = "get_guarantees",
    params(("name" = String, Path, description = "The host's name", example = "a-1")),
    responses((status = 200, description = "All of it", body = HostGuarantees), Guarded, Absent)
)]
pub(super) async fn get(
    State(app): State<Arc<App>>,
    By(by): By,
    Named(name): Named,
) -> Result<Json<HostGuarantees>, Error> {
    check(&by, &name)?;
    read(&app, &name).map(Json)
}

/// What a host has to keep to, whole: at once, after each change, and every 10
/// seconds. It is a line of JSON each time, and has no end but that of the
/// connection. Who is slow misses states in between, never the last one.
#[utoipa::path(
    get, path = "/v1/hosts/{name}/guarantees/stream", tag = "hosts",
    operation_id = "stream_guarantees",
    params(("name" = String, Path, description = "The host's name", example = "a-1")),
    responses(
        (status = 200, description = "Lines of JSON", body = HostGuarantees, content_type = "application/x-ndjson"),
        Guarded, Absent, Busy,
    )
)]
pub(super) async fn stream(
    State(app): State<Arc<App>>,
    By(by): By,
    Named(name): Named,
) -> Result<Response, Error> {
    check(&by, &name)?;
    // Before the first look, so that no change falls between.
    let changes = app.service.watch_host(&name);
    let first = read(&app, &name)?;
    let permit = Arc::clone(&app.streams).try_acquire_owned().map_err(|_| {
        Error::new(
            Code::Unavailable,
            format!(
                "there are {} streams already, as many as can be",
                app.most_streams
            ),
        )
    })?;
    // One line on its way at a time: the next one is made when that is gone, of
    // what is so then.
    let (lines, body) = mpsc::channel(1);
    let feed = Feed {
        app,
        name,
        lines,
        changes,
        _permit: permit,
    };
    tokio::spawn(feed.run(first));
    let body = Body::from_stream(ReceiverStream::new(body));
    Ok(([(CONTENT_TYPE, "application/x-ndjson")], body).into_response())
}

struct Feed {
    app: Arc<App>,
    name: String,
    lines: mpsc::Sender<Result<Bytes, Infallible>>,
    changes: watch::Receiver<u64>,
    _permit: OwnedSemaphorePermit,
}

impl Feed {
    /// Until the other side is gone, the service ends, or there is no such host
    /// any more.
    async fn run(mut self, mut state: HostGuarantees) {
        let mut stopped = self.app.stopped.subscribe();
        loop {
            let Ok(mut line) = serde_json::to_vec(&state) else {
                return;
            };
            line.push(b'\n');
            let send = self.lines.send(Ok(line.into()));
            tokio::select! {
                sent = tokio::time::timeout(STUCK, send) => match sent {
                    Ok(Ok(())) => {}
                    Ok(Err(_)) | Err(_) => return,
                },
                _ = stopped.wait_for(|stopped| *stopped) => return,
            }
            tokio::select! {
                () = self.lines.closed() => return,
                _ = stopped.wait_for(|stopped| *stopped) => return,
                changed = self.changes.changed() => if changed.is_err() {
                    return;
                },
                () = tokio::time::sleep(HEARTBEAT) => {}
            }
            match read(&self.app, &self.name) {
                Ok(next) => state = next,
                Err(_) => return,
            }
        }
    }
}

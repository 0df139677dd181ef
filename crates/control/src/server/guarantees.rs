//! The guarantees of each host, once or as a stream.

use super::App;
use super::access;
use super::extract::{By, PathName};
use super::feed;
use super::hose_keys::KeysMark;
use super::key_feed::KeyStream;
use super::problem::{Absent, ApiError, Busy, Guarded};
use super::revisions::{self, age_ms};
use super::tokens::Identity;
use crate::replica::Replica;
use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tailbound_api::{AgedHostLine, Code, HoseKeyUpdate, HostGuarantees, HostLine};
use tokio::sync::{OwnedSemaphorePermit, mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;

/// The interval of lines without a change. A host changes over after 12 s of silence, so that its
/// guarantees are at most 15 s old while a replica is good.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// The maximum number of streams of one host, so that its token cannot use up all streams.
const MOST_OF_A_HOST: usize = 16;

fn read(app: &App, name: &str) -> Result<HostGuarantees, ApiError> {
    if let Some(age) = app.replica.as_ref().and_then(Replica::stale_for) {
        let detail = format!(
            "this replica has had no answer of its store for {} s",
            age.as_secs()
        );
        return Err(ApiError::new(Code::Unavailable, detail));
    }
    app.service
        .read(|ledger| ledger.guarantees(name))
        .ok_or_else(|| ApiError::not_found(format!("there is no host {name:?}")))
}

/// Returns the guarantees of a host's machines.
#[utoipa::path(
    get, path = "/v1/hosts/{name}/guarantees", tag = "hosts",
    operation_id = "get_guarantees",
    params(("name" = String, Path, description = "The host's name", example = "a-1")),
    responses((status = 200, description = "The guarantees of the host", body = HostGuarantees), Guarded, Absent)
)]
pub(super) async fn get(
    State(app): State<Arc<App>>,
    By(by): By,
    PathName(name): PathName,
) -> Result<Json<HostGuarantees>, ApiError> {
    access::check_host(&by, &name)?;
    read(&app, &name).map(Json)
}

/// Streams the guarantees of a host's machines.
///
/// Each line is JSON with all guarantees: at the start, after each change, and every 5 seconds.
/// The stream ends with the connection. A slow reader misses intermediate states, but never the
/// last one.
///
/// With the header `Hose-Keys`, the changes of the host's keys are lines, too: those since the mark
/// in the header, then each further one.
#[utoipa::path(
    get, path = "/v1/hosts/{name}/guarantees/stream", tag = "hosts",
    operation_id = "stream_guarantees",
    params(
        ("name" = String, Path, description = "The host's name", example = "a-1"),
        ("hose-keys" = Option<String>, Header, description = "The mark of the keys that the host has, or `none`"),
    ),
    responses(
        (status = 200, description = "Lines of JSON", body = AgedHostLine, content_type = "application/x-ndjson"),
        Guarded, Absent, Busy,
    )
)]
pub(super) async fn stream(
    State(app): State<Arc<App>>,
    By(by): By,
    PathName(name): PathName,
    KeysMark(mark): KeysMark,
) -> Result<Response, ApiError> {
    access::check_host(&by, &name)?;
    // Watch before the first read, so that no change falls between.
    let changes = app.service.watch_host(&name);
    let first = read(&app, &name)?;
    let busy = |detail: String| ApiError::new(Code::Unavailable, detail);
    // The count includes this one.
    if app.service.watchers_of(&name) > MOST_OF_A_HOST {
        return Err(busy(format!(
            "this host already has {MOST_OF_A_HOST} streams, which is the limit"
        )));
    }
    let permit = Arc::clone(&app.streams).try_acquire_owned().map_err(|_| {
        busy(format!(
            "there are already {} streams, which is the limit",
            app.most_streams
        ))
    })?;
    // One line is in flight at a time. The next one is made when that has left, with the state at
    // that time.
    let (lines, body) = mpsc::channel(1);
    let mark = mark.filter(|_| app.keys.is_some());
    let keys = mark.map(|mark| KeyStream::new(&app, &by, &name, &mark));
    let stream = GuaranteeStream {
        app,
        by,
        name,
        keys,
        lines,
        changes,
        _permit: permit,
    };
    tokio::spawn(stream.run(first));
    let body = Body::from_stream(ReceiverStream::new(body));
    Ok(([(CONTENT_TYPE, "application/x-ndjson")], body).into_response())
}

/// The task behind one open stream.
struct GuaranteeStream {
    app: Arc<App>,
    by: Identity,
    name: String,
    /// The changes of the host's keys, if the host asked for them.
    keys: Option<KeyStream>,
    lines: mpsc::Sender<Result<Bytes, Infallible>>,
    changes: watch::Receiver<u64>,
    _permit: OwnedSemaphorePermit,
}

impl GuaranteeStream {
    /// Writes the guarantees until the reader disconnects, the service stops, the host or the token
    /// is removed, or this replica has had no proof for [`STALE`](crate::replica::STALE) that it has all
    /// of the store: the host then takes another one.
    async fn run(mut self, state: HostGuarantees) {
        let mut line = HostLine::Guarantees(state);
        loop {
            let age_ms = age_ms(&self.app);
            let aged = AgedHostLine { line, age_ms };
            if !feed::send_line(&self.app, &self.lines, &aged).await {
                return;
            }
            match self.next().await {
                Some(next) => line = next,
                None => return,
            }
        }
    }

    /// Waits for the next line; `None` ends the stream.
    async fn next(&mut self) -> Option<HostLine> {
        let mut stopped = self.app.stopped.subscribe();
        let mut update = None;
        tokio::select! {
            () = self.lines.closed() => return None,
            _ = stopped.wait_for(|stopped| *stopped) => return None,
            changed = self.changes.changed() => {
                changed.ok()?;
                self.keys.iter_mut().for_each(KeyStream::wake);
            },
            () = revisions::stale(&self.app) => return None,
            () = access::ended(&self.app, &self.by) => return None,
            next = next_keys(self.keys.as_mut()) => update = Some(next),
            () = tokio::time::sleep(HEARTBEAT) => {
                self.keys.iter_mut().for_each(KeyStream::look_for_secret);
            }
        }
        // The end of the token, and this line, may have come together.
        if !access::is_valid(&self.app, &self.by) {
            return None;
        }
        match update {
            Some(update) => Some(HostLine::Keys(update)),
            None => read(&self.app, &self.name).ok().map(HostLine::Guarantees),
        }
    }
}

/// Waits for the next change of keys; for ever if the host asked for none.
async fn next_keys(keys: Option<&mut KeyStream>) -> HoseKeyUpdate {
    match keys {
        Some(keys) => keys.next().await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::feed::STUCK;
    use super::*;
    use crate::ledger::Ledger;
    use crate::replica::{Leadership, STALE};
    use crate::server::tokens::{Caller, Origin};
    use crate::server::{Authentication, Config, Metrics, Server};
    use crate::service::Service;
    use tailbound_api::Role;
    use tailbound_placement::{Policy, Spec};
    use tokio::time::Instant;
    use tokio_stream::StreamExt as _;

    fn operator() -> By {
        By(Identity {
            name: "ops".to_owned(),
            caller: Caller::Operator,
            origin: Origin::Open,
            expires: None,
        })
    }

    /// A server of one host whose service does not lead.
    pub(in crate::server) fn server(replica: Option<Replica>) -> Server {
        let tree = r#"
            frame = "1538B"
            [[host]]
            name = "a"
            slots = 4
            uplink = { rate = "10Gbit/s", buffer = "300KB" }
        "#;
        let spec = Spec::from_toml(tree).unwrap();
        let (ledger, _) = Ledger::new(spec, Policy::Silo).unwrap();
        let config = Config {
            authentication: Authentication::InsecureLoopback,
            tls: None,
            streams: 4,
            connections: 8,
            hose: None,
            collector: None,
        };
        let service = Service::start(ledger, |_| {});
        Server::new(config, service, replica, Metrics::new()).unwrap()
    }

    /// Runs in virtual time, which passes while all tasks are idle.
    #[tokio::test(start_paused = true)]
    async fn a_stream_is_never_silent_for_longer_than_a_heartbeat() {
        let server = server(None);
        let app = Arc::clone(&server.app);
        let answer = stream(
            State(app),
            operator(),
            PathName("a".to_owned()),
            KeysMark(None),
        )
        .await;
        let mut lines = answer.unwrap().into_body().into_data_stream();
        let begin = Instant::now();
        for beat in 0..4 {
            let line = lines.next().await.unwrap().unwrap();
            let state: HostGuarantees = serde_json::from_slice(&line).unwrap();
            assert_eq!(state.host, "a");
            assert_eq!(begin.elapsed().as_secs(), beat * HEARTBEAT.as_secs());
        }
        assert_eq!(server.app.open_streams(), 1);
        // The reader stops reading, and does not close: its place is taken back.
        tokio::time::sleep(HEARTBEAT * 3 + STUCK).await;
        assert_eq!(server.app.open_streams(), 0);
        server.stop();
        drop(lines);
    }

    /// A host at a replica that is cut off would follow deleted tenants for ever.
    #[tokio::test]
    async fn a_stream_ends_when_its_replica_is_cut_off_and_none_begins() {
        let leader = Leadership {
            role: Role::Follower,
            leader: Some("http://127.0.0.1:1".to_owned()),
        };
        let (leadership, replica) = watch::channel(leader.clone());
        let (proof, proved) = watch::channel(std::time::Instant::now());
        let server = server(Some(Replica::of(replica, proved)));
        let open = || {
            let app = Arc::clone(&server.app);
            stream(
                State(app),
                operator(),
                PathName("a".to_owned()),
                KeysMark(None),
            )
        };
        let mut lines = open().await.unwrap().into_body().into_data_stream();
        assert!(lines.next().await.is_some());
        // An election is not that.
        leadership.send_modify(|it| it.leader = None);
        assert!(open().await.is_ok());
        let long = std::time::Instant::now().checked_sub(STALE).unwrap();
        proof.send_replace(long);
        assert!(lines.next().await.is_none(), "it goes on");
        assert!(open().await.is_err(), "one begins");
        leadership.send_replace(leader);
        proof.send_replace(std::time::Instant::now());
        assert!(open().await.is_ok());
    }
}

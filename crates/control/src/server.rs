//! The HTTP API of the service, with JSON documents.
//!
//! Read `access` first: the table of all paths and their roles. `extract` has the arguments of
//! handlers, and `problem` their errors; each noun has a file of handlers. `openapi` generates the
//! `OpenAPI` document.

mod access;
mod ask;
mod audit;
mod body;
mod connections;
mod events;
mod extract;
mod faults;
mod feed;
mod forward;
mod guarantees;
mod hose_keys;
mod hosts;
mod key_feed;
mod machines;
mod map;
mod metrics;
mod openapi;
mod page;
mod pool;
mod problem;
mod quota;
mod rates;
mod report_times;
mod request_id;
mod revisions;
mod scheduling;
mod signals;
mod status;
mod tenants;
mod tls;
mod token_requests;
mod tokens;
mod topology;
mod traces;
mod trail;
mod validity;

pub use crate::expiry::Expiry;
pub use hose_keys::{HoseSecret, HoseSecretError};
pub use metrics::Metrics;
pub use openapi::document;
pub use signals::Signals;
pub use tls::{TlsError, TlsFiles};
pub use tokens::{Caller, Identity, Tokens};

use crate::ledger::{Command, Quota, Reply};
use crate::replica::Replica;
use crate::service::{Service, ServiceError};
use axum::Router;
use axum::middleware::{from_fn, from_fn_with_state};
use axum_server::tls_rustls::{RustlsAcceptor, RustlsConfig};
use connections::{Connections, Entrance};
use extract::Author;
use feed::Places;
use hose_keys::KeyMaker;
use pool::{Pool, payer};
use problem::ApiError;
use rates::Limiters;
use report_times::ReportTimes;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tailbound_document::DocumentError;
use tailbound_otlp::Exporter;
use tokio::sync::{Semaphore, watch};

/// Time that requests in progress have to finish after the service was stopped.
const GRACE: Duration = Duration::from_secs(10);
/// A connection that has not sent its request's headers after this time is closed.
const HEADER_TIME: Duration = Duration::from_secs(30);

/// Configuration of the HTTP server.
#[derive(Debug, Clone)]
pub struct Config {
    /// Authentication of callers.
    pub authentication: Authentication,
    /// The certificate and its key; plain HTTP without.
    pub tls: Option<TlsFiles>,
    /// Limit on open streams of guarantees.
    pub streams: usize,
    /// Limit on open connections, streams included. Beyond the limit, the server closes the oldest
    /// connection that has not shown a known token.
    pub connections: usize,
    /// Secret from which the hosts' keys are derived; without it no keys are issued.
    pub hose: Option<HoseSecret>,
    /// Collector that receives the traces of requests and the metrics.
    pub collector: Option<tailbound_otlp::Settings>,
}

/// Authentication of callers.
#[derive(Debug, Clone)]
pub enum Authentication {
    /// Tokens of this file.
    Tokens(PathBuf),
    /// No authentication: every client that reaches the address is an operator. The address must be
    /// a loopback address.
    InsecureLoopback,
}

impl Config {
    /// Checks that tokens, certificate and secret can be used.
    pub fn check_files(&self) -> Result<(), ServeError> {
        if let Authentication::Tokens(file) = &self.authentication {
            Tokens::load(file)?;
        }
        if let Some(files) = &self.tls {
            files.load()?;
        }
        if let Some(hose) = &self.hose {
            hose.load()?;
        }
        Ok(())
    }

    /// Checks that it is safe to listen at an address.
    pub fn check(&self, address: SocketAddr) -> Result<(), ServeError> {
        if address.ip().to_canonical().is_loopback() {
            return Ok(());
        }
        match (&self.authentication, &self.tls) {
            (Authentication::InsecureLoopback, _) => Err(ServeError::Open(address)),
            (Authentication::Tokens(_), None) => Err(ServeError::Plain(address)),
            (Authentication::Tokens(_), Some(_)) => Ok(()),
        }
    }
}

/// Reason why the server cannot run as configured.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The tokens cannot be used.
    #[error(transparent)]
    Tokens(#[from] DocumentError),
    /// The certificate cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The secret of hosts' keys cannot be used.
    #[error(transparent)]
    Hose(#[from] HoseSecretError),
    /// Without tokens, every client on the network would be an operator.
    #[error(
        "{0} is reachable from other computers, and without tokens every client would have all \
            rights: pass --tokens FILE (and --tls-cert and --tls-key), or listen on 127.0.0.1"
    )]
    Open(SocketAddr),
    /// Plain HTTP would expose the tokens to the network.
    #[error(
        "{0} is reachable from other computers, and plain HTTP would expose the tokens: pass \
            --tls-cert and --tls-key, or listen on 127.0.0.1"
    )]
    Plain(SocketAddr),
    /// The listener fails.
    #[error("cannot listen: {0}")]
    Listen(#[from] std::io::Error),
}

/// The state that all handlers share.
pub(crate) struct App {
    pub(crate) service: Service,
    replica: Option<Replica>,
    metrics: Metrics,
    /// All connections that are open.
    connections: Arc<Connections>,
    /// One permit for each stream that can still be opened.
    streams: Arc<Semaphore>,
    most_streams: usize,
    /// Threads that answer long questions.
    pool: Pool,
    /// Open streams of changes.
    event_streams: Arc<Places>,
    /// Time of each host's last report.
    report_times: ReportTimes,
    /// Derives the keys of hosts, if this service issues any.
    keys: Option<Arc<KeyMaker>>,
    /// One permit for comparisons of topologies, each of which builds a data centre.
    comparisons: Arc<Semaphore>,
    /// Rate limiters of requests, by caller.
    limiters: Limiters,
    /// Tokens file; None if every caller is an operator.
    tokens: Option<watch::Sender<Arc<Tokens>>>,
    /// OpenTelemetry exporter, if a collector is configured.
    exporter: OnceLock<Exporter>,
    /// Becomes true when the service stops.
    stopped: watch::Sender<bool>,
}

impl App {
    fn tokens(&self) -> Option<Arc<Tokens>> {
        let tokens = self.tokens.as_ref()?;
        Some(Arc::clone(&tokens.borrow()))
    }

    fn open_streams(&self) -> usize {
        self.most_streams - self.streams.available_permits()
    }

    /// Answers a long question on a thread of its own, in the caller's share of their time.
    async fn ask<T: Send + 'static>(
        &self,
        by: &Identity,
        question: impl FnOnce(&Service) -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        let service = self.service.clone();
        self.pool.ask(payer(by), move || question(&service)).await
    }

    /// Submits a change to the writer, and returns the reply once it is durable.
    async fn decide(&self, author: Author, command: Command) -> Result<Reply, ApiError> {
        let name = command.name();
        let owner = author.owner().or_else(|| command.owner_of_host());
        let quota = match (self.tokens(), owner) {
            (Some(tokens), Some(owner)) => tokens.quota(owner),
            _ => Quota::default(),
        };
        let begin = Instant::now();
        let call = author.call(quota, command);
        let caller = call.caller.clone();
        let mut answer = self.service.audited(call).await;
        if self.replica.is_none()
            && answer.reply == Err(ServiceError::NotLeader)
            && let Some(damage) = self.metrics.faults().damage()
        {
            answer.reply = Err(damage.into());
        }
        let error = answer.reply.as_ref().err().map(ServiceError::code);
        let outcome = self.metrics.decided(name, error, begin.elapsed());
        traces::decided(self, name, outcome, begin.elapsed());
        trail::log(name, &caller, &answer);
        answer.reply.map_err(ApiError::from)
    }
}

/// The service behind a listener.
#[derive(Clone)]
pub struct Server {
    app: Arc<App>,
    config: Config,
    tls: Option<RustlsConfig>,
}

impl Server {
    /// Reads tokens, certificate and secret. `replica` is None where this service alone uses the
    /// store; `metrics` observe the service's commits ([`Metrics::observer`]).
    pub fn new(
        config: Config,
        service: Service,
        replica: Option<Replica>,
        metrics: Metrics,
    ) -> Result<Self, ServeError> {
        let tokens = match &config.authentication {
            Authentication::Tokens(file) => Some(watch::Sender::new(Arc::new(Tokens::load(file)?))),
            Authentication::InsecureLoopback => None,
        };
        let tls = config.tls.as_ref().map(TlsFiles::acceptor).transpose()?;
        let end = config.tls.as_ref().and_then(TlsFiles::end_of_validity);
        metrics.faults().note_certificate(end);
        let keys = config.hose.as_ref().map(KeyMaker::new).transpose()?;
        let most_streams = config.streams.min(Semaphore::MAX_PERMITS);
        let app = Arc::new(App {
            service,
            replica,
            metrics,
            connections: Arc::new(Connections::new(config.connections)),
            streams: Arc::new(Semaphore::new(most_streams)),
            most_streams,
            pool: Pool::start(),
            event_streams: Arc::default(),
            report_times: ReportTimes::default(),
            keys: keys.map(Arc::new),
            comparisons: Arc::new(Semaphore::new(1)),
            limiters: Limiters::default(),
            tokens,
            exporter: OnceLock::new(),
            stopped: watch::Sender::new(false),
        });
        if let Some(collector) = config.collector.clone() {
            let weak_app = Arc::downgrade(&app);
            let page = move || metrics::page(&*weak_app.upgrade()?).ok();
            let exporter = Exporter::start(collector, Box::new(page))?;
            // It was made a moment ago, with none.
            let _ = app.exporter.set(exporter);
        }
        Ok(Self { app, config, tls })
    }

    /// Serves until [`Server::stop`].
    ///
    /// # Errors
    /// The configuration is unsafe for the listener's address ([`Config::check`]), or the listener
    /// fails.
    pub async fn run(&self, listener: TcpListener) -> Result<(), ServeError> {
        self.run_with(listener, HEADER_TIME).await
    }

    async fn run_with(&self, listener: TcpListener, patience: Duration) -> Result<(), ServeError> {
        self.config.check(listener.local_addr()?)?;
        listener.set_nonblocking(true)?;
        let handle = axum_server::Handle::new();
        let mut server = axum_server::from_tcp(listener)?
            .handle(handle.clone())
            .acceptor(Entrance(Arc::clone(&self.app)));
        server
            .http_builder()
            .http1()
            .timer(hyper_util::rt::TokioTimer::new())
            .header_read_timeout(patience);
        let router = router(&self.app).into_make_service_with_connect_info::<SocketAddr>();
        // Not HTTP/2: a connection that has not yet chosen between the two has no time limit, and
        // HTTP/2 has no header named `Host`.
        let serving = async {
            match &self.tls {
                Some(tls) => {
                    let entrance = Entrance(Arc::clone(&self.app));
                    let tls = RustlsAcceptor::new(tls.clone()).acceptor(entrance);
                    // After the acceptor, which would undo it.
                    server.acceptor(tls).http1_only().serve(router).await
                }
                None => server.http1_only().serve(router).await,
            }
        };
        let mut stopped = self.app.stopped.subscribe();
        let stopping = async {
            // The sender is in `app`, which is kept.
            let _ = stopped.wait_for(|stopped| *stopped).await;
            loop {
                // A connection that is not waiting at this moment misses it.
                handle.graceful_shutdown(Some(GRACE));
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let ended = tokio::select! {
            done = serving => Ok(done?),
            () = stopping => Ok(()),
            () = report_times::watch(Arc::clone(&self.app)) => Ok(()),
            () = scheduling::expire(Arc::clone(&self.app)) => Ok(()),
            () = faults::watch(Arc::clone(&self.app)) => Ok(()),
        };
        if let Some(exporter) = self.app.exporter.get().cloned() {
            // Export the spans of all replies; nothing else starts any more.
            let _ = tokio::task::spawn_blocking(move || exporter.flush()).await;
        }
        ended
    }

    /// Reads tokens, certificate and secret again. All are replaced or all stay. A stream whose
    /// token was removed ends.
    pub fn reload(&self) -> Result<(), ServeError> {
        let tokens = match &self.config.authentication {
            Authentication::Tokens(file) => Some(Arc::new(Tokens::load(file)?)),
            Authentication::InsecureLoopback => None,
        };
        let tls = self.config.tls.as_ref().map(TlsFiles::load).transpose()?;
        let secret = self
            .config
            .hose
            .as_ref()
            .map(HoseSecret::load)
            .transpose()?;
        if let (Some(current), Some(secret)) = (&self.app.keys, secret) {
            current.replace(secret);
        }
        if let (Some(current), Some(tokens)) = (&self.app.tokens, tokens) {
            current.send_replace(tokens);
        }
        if let (Some(current), Some(tls)) = (&self.tls, tls) {
            current.reload_from_config(tls);
            let end = self.config.tls.as_ref();
            let end = end.and_then(TlsFiles::end_of_validity);
            self.app.metrics.faults().note_certificate(end);
        }
        Ok(())
    }

    /// Accepts no more connections, ends streams, and waits for requests in progress.
    pub fn stop(&self) {
        self.app.stopped.send_replace(true);
    }
}

fn router(app: &Arc<App>) -> Router {
    let (router, _) = openapi::routes().split_for_parts();
    router
        .route_layer(from_fn_with_state(Arc::clone(app), access::guard))
        .fallback(no_such_path)
        .layer(from_fn(no_sniffing))
        .layer(from_fn_with_state(Arc::clone(app), metrics::measure))
        .layer(from_fn(request_id::attach))
        .with_state(Arc::clone(app))
}

async fn no_such_path(request: axum::extract::Request) -> ApiError {
    let (parts, body) = request.into_parts();
    body::discard(body).await;
    ApiError::not_found(format!(
        "there is nothing at {}; /openapi.json lists all paths",
        parts.uri.path()
    ))
}

/// Forbids browsers to guess the type of an answer and to cache it.
async fn no_sniffing(
    request: axum::extract::Request,
    next: axum::middleware::Next,
) -> axum::response::Response {
    use axum::http::header::{CACHE_CONTROL, HeaderValue, X_CONTENT_TYPE_OPTIONS};
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers
        .entry(CACHE_CONTROL)
        .or_insert(HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Ledger;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    /// A server of a small data centre, without tokens.
    fn server() -> Server {
        let tree = r#"
            frame = "1538B"
            [[host]]
            name = "a"
            slots = 4
            uplink = { rate = "10Gbit/s", buffer = "300KB" }
        "#;
        let spec = tailbound_placement::Spec::from_toml(tree).unwrap();
        let (ledger, _) = Ledger::new(spec, tailbound_placement::Policy::Silo).unwrap();
        let config = Config {
            authentication: Authentication::InsecureLoopback,
            tls: None,
            streams: 1,
            connections: 8,
            hose: None,
            collector: None,
        };
        Server::new(config, Service::start(ledger, |_| {}), None, Metrics::new()).unwrap()
    }

    #[tokio::test]
    async fn silent_connections_are_closed() {
        let server = server();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let patience = Duration::from_millis(50);
        let running = tokio::spawn(async move { server.run_with(listener, patience).await });
        for said in ["", "GET / HT", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"] {
            let mut silent = tokio::net::TcpStream::connect(address).await.unwrap();
            silent.write_all(said.as_bytes()).await.unwrap();
            let mut answer = Vec::new();
            let closed = silent.read_to_end(&mut answer);
            let closed = tokio::time::timeout(Duration::from_secs(10), closed).await;
            assert!(closed.is_ok(), "{said:?}");
        }
        running.abort();
    }

    #[test]
    fn public_addresses_require_both_tokens_and_tls() {
        let tls = || {
            Some(TlsFiles {
                cert: "cert.pem".into(),
                key: "key.pem".into(),
            })
        };
        let tokens = || Authentication::Tokens("tokens.toml".into());
        let insecure = || Authentication::InsecureLoopback;
        for (authentication, tls, address, wrong) in [
            (insecure(), None, "127.0.0.1:1", None),
            (insecure(), None, "127.8.8.8:1", None),
            (insecure(), None, "[::1]:1", None),
            (insecure(), None, "[::ffff:127.0.0.1]:1", None),
            (insecure(), None, "0.0.0.0:1", Some("pass --tokens FILE")),
            (insecure(), tls(), "192.0.2.1:1", Some("pass --tokens FILE")),
            (insecure(), None, "[::]:1", Some("pass --tokens FILE")),
            (tokens(), None, "127.0.0.1:1", None),
            (tokens(), None, "192.0.2.1:1", Some("pass --tls-cert")),
            (tokens(), tls(), "0.0.0.0:1", None),
        ] {
            let config = Config {
                authentication,
                tls,
                streams: 1,
                connections: 8,
                hose: None,
                collector: None,
            };
            let found = config.check(address.parse().unwrap());
            let found = found.err().map(|error| error.to_string());
            assert_eq!(found.is_some(), wrong.is_some(), "{address} {found:?}");
            let text = found.unwrap_or_default();
            assert!(text.contains(wrong.unwrap_or_default()), "{text}");
        }
    }
}

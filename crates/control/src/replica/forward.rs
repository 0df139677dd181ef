//! Forwards the writes that reach a follower to the leader, unchanged.

use axum::body::Bytes;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, header};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tailbound_api::TIME_HEADER;
use tokio::sync::Semaphore;
use tokio::{task, time};
use ureq::Agent;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};

/// Marks a forwarded request. A replica does not forward it again, so that it cannot circle between
/// two replicas that take each other for the leader.
pub const FORWARDED: HeaderName = HeaderName::from_static("tailbound-forwarded");

/// The leader's revision after a forwarded request. The replica that forwarded it answers once it
/// has applied that revision, so that its caller reads its own write.
pub const REVISION: HeaderName = HeaderName::from_static("tailbound-revision");

/// Time limit for a forwarded request: longer than the leader's limit for a commit.
const FORWARD_TIMEOUT: Duration = Duration::from_secs(15);
/// Time limit for a connection to the leader.
const CONNECT: Duration = Duration::from_secs(2);
/// Time limit for the proof that requests reach the leader.
const PROOF_TIMEOUT: Duration = Duration::from_secs(2);
/// Largest number of forwarded requests in progress; each needs a thread.
const AT_ONCE: usize = 256;
/// The longest answer, in bytes: the difference of two topologies.
const MAX_ANSWER: u64 = 256 << 20;
/// The headers that are copied from the caller's request.
const REQUEST_HEADERS: [HeaderName; 7] = [
    header::AUTHORIZATION,
    header::CONTENT_TYPE,
    header::ACCEPT,
    header::IF_MATCH,
    HeaderName::from_static("idempotency-key"),
    HeaderName::from_static("x-request-id"),
    HeaderName::from_static(TIME_HEADER),
];
/// The headers that are copied from the leader's answer.
const ANSWER_HEADERS: [HeaderName; 6] = [
    header::CONTENT_TYPE,
    header::LOCATION,
    header::ETAG,
    header::RETRY_AFTER,
    header::WWW_AUTHENTICATE,
    REVISION,
];

/// The leader's answer.
#[derive(Debug, Clone)]
pub struct LeaderAnswer {
    /// The HTTP status.
    pub status: StatusCode,
    /// The headers that are for the caller.
    pub headers: HeaderMap,
    /// The body, unchanged.
    pub body: Bytes,
    /// The value of [`REVISION`].
    pub(super) revision: Option<u64>,
}

/// A client for the leader.
#[derive(Debug, Clone)]
pub(super) struct Forwarder {
    agent: Agent,
    permits: Arc<Semaphore>,
}

impl Forwarder {
    /// Makes a client that trusts the CA in the file `ca`, or the public CAs if there is none.
    ///
    /// # Errors
    /// The file cannot be read or has no certificate.
    pub(super) fn new(ca: Option<&Path>) -> io::Result<Self> {
        let mut tls = TlsConfig::builder();
        if let Some(ca) = ca {
            tls = tls.root_certs(RootCerts::Specific(Arc::new(certificates(ca)?)));
        }
        let agent = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None)
            .timeout_global(Some(FORWARD_TIMEOUT))
            .timeout_connect(Some(CONNECT))
            .max_idle_connections(AT_ONCE)
            .max_idle_connections_per_host(AT_ONCE)
            .tls_config(tls.build())
            .build()
            .new_agent();
        Ok(Self {
            agent,
            permits: Arc::new(Semaphore::new(AT_ONCE)),
        })
    }

    /// Sends a request to the leader. Returns its answer or the reason for a failure. After a
    /// failure the leader may have executed the request.
    pub(super) async fn forward(
        &self,
        leader: &str,
        method: Method,
        path_and_query: &str,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Result<LeaderAnswer, String> {
        if headers.contains_key(FORWARDED) {
            return Err("the request was forwarded here, but this is not the leader".into());
        }
        let url = format!("{}{path_and_query}", leader.trim_end_matches('/'));
        let mut request = Request::builder()
            .method(method)
            .uri(&url)
            .header(FORWARDED, HeaderValue::from_static("1"));
        for name in REQUEST_HEADERS {
            if let Some(value) = headers.get(&name) {
                request = request.header(name, value);
            }
        }
        let request = request
            .body(body.to_vec())
            .map_err(|error| format!("{url}: {error}"))?;
        let permits = Arc::clone(&self.permits);
        let permit = time::timeout(FORWARD_TIMEOUT, permits.acquire_owned())
            .await
            .map_err(|_| "too many requests are on their way to the leader".to_owned())?
            .map_err(|error| error.to_string())?;
        let agent = self.agent.clone();
        task::spawn_blocking(move || {
            let answer = ask(&agent, request);
            drop(permit);
            answer
        })
        .await
        .map_err(|error| error.to_string())?
        .map_err(|error| format!("the leader, {url}: {error}"))
    }
}

impl Forwarder {
    /// Queries whether the leader leads, by the way of a forwarded write.
    ///
    /// # Errors
    /// The reason why a write would not be done there now.
    pub(super) async fn prove(&self, leader: &str) -> Result<(), String> {
        let url = format!("{}/readyz", leader.trim_end_matches('/'));
        let request = Request::builder()
            .uri(&url)
            .header(FORWARDED, HeaderValue::from_static("1"))
            .body(Vec::new())
            .map_err(|error| format!("{url}: {error}"))?;
        let agent = self.agent.clone();
        let request = agent
            .configure_request(request)
            .timeout_global(Some(PROOF_TIMEOUT))
            .build();
        let answer = task::spawn_blocking(move || ask(&agent, request))
            .await
            .map_err(|error| error.to_string())?
            .map_err(|error| format!("the leader, {url}: {error}"))?;
        if answer.status == StatusCode::OK {
            return Ok(());
        }
        Err(format!(
            "the leader, {url}, answers {}: the address is not the leader's, or it has stopped \
             leading",
            answer.status
        ))
    }
}

fn ask(agent: &Agent, request: Request<Vec<u8>>) -> Result<LeaderAnswer, ureq::Error> {
    let mut answer = agent.run(request)?;
    let mut headers = HeaderMap::new();
    for name in ANSWER_HEADERS {
        if let Some(value) = answer.headers().get(&name) {
            headers.insert(name, value.clone());
        }
    }
    let revision = answer.headers().get(REVISION);
    let revision = revision.and_then(|value| value.to_str().ok()?.parse().ok());
    let body = answer.body_mut().with_config().limit(MAX_ANSWER);
    Ok(LeaderAnswer {
        body: body.read_to_vec()?.into(),
        status: answer.status(),
        headers,
        revision,
    })
}

fn certificates(path: &Path) -> io::Result<Vec<Certificate<'static>>> {
    let named =
        |error: &dyn std::fmt::Display| io::Error::other(format!("{}: {error}", path.display()));
    let pem = std::fs::read(path).map_err(|error| named(&error))?;
    let mut certificates = Vec::new();
    for item in parse_pem(&pem) {
        if let PemItem::Certificate(certificate) = item.map_err(|error| named(&error))? {
            certificates.push(certificate);
        }
    }
    if certificates.is_empty() {
        return Err(named(&"no certificate in it"));
    }
    Ok(certificates)
}

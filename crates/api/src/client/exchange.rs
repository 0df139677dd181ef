//! One request and its answer, with repeated attempts if they are safe.

use super::{Backoff, ClientError, SettingsError, UnreachableReplica, random};
use crate::Problem;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use ureq::http::{Method, Request, Response, Uri, header};
use ureq::tls::{PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::{Agent, Body};

/// The longest answer that is read, in bytes. The topology of a million hosts fits.
const MAX_ANSWER: u64 = 256 << 20;
/// Limit on the part of an unknown answer in an error, in characters.
const SHOWN: usize = 200;
/// Time limit for connecting.
const CONNECT: Duration = Duration::from_secs(5);
/// The pauses between attempts.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(1));

/// Settings of a connection to the service.
#[derive(Debug, Clone)]
pub struct Settings {
    /// `http://HOST:PORT` or `https://HOST[:PORT]`, and a path if the service is
    /// below one. Of several replicas all, with commas between them.
    pub url: String,
    /// The file that holds the token and nothing else but white space.
    pub token_file: Option<PathBuf>,
    /// The file with the certificates (PEM) of the only trusted CAs; the public CAs without.
    pub ca_file: Option<PathBuf>,
    /// Time limit for one attempt.
    pub timeout: Duration,
    /// Total time for retries of a request after the connection was lost, or while the service has
    /// no leader. Each replica is tried at least once.
    pub patience: Duration,
}

impl Settings {
    /// Returns the address of each replica, without white space around it.
    pub fn urls(&self) -> impl Iterator<Item = &str> {
        self.url.split(',').map(str::trim)
    }

    /// Makes the settings for a service without token whose certificate a public CA signed.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            token_file: None,
            ca_file: None,
            timeout: Duration::from_mins(1),
            patience: Duration::from_secs(10),
        }
    }
}

/// A request.
#[derive(Debug)]
pub(crate) struct Call {
    method: Method,
    target: String,
    body: Option<Vec<u8>>,
    if_match: Option<u64>,
    /// The mark of a host's keys.
    mark: Option<String>,
    keyed: bool,
    /// The request has the time of day at which it is sent.
    timed: bool,
}

impl Call {
    /// Makes a query, which may be repeated.
    pub(crate) fn read(target: Target) -> Self {
        Self {
            method: Method::GET,
            target: target.0,
            body: None,
            if_match: None,
            mark: None,
            keyed: false,
            timed: false,
        }
    }

    /// Makes a query with a document.
    pub(crate) fn ask(target: Target, body: Vec<u8>) -> Self {
        Self {
            method: Method::POST,
            body: Some(body),
            ..Self::read(target)
        }
    }

    /// Makes a change. Its idempotency key ensures that it is executed at most once, even if it is
    /// sent several times.
    pub(crate) fn change(method: Method, target: Target, body: Option<Vec<u8>>) -> Self {
        Self {
            method,
            body,
            keyed: true,
            ..Self::read(target)
        }
    }

    /// Makes the change conditional on the topology's revision.
    pub(crate) fn if_match(mut self, revision: Option<u64>) -> Self {
        self.if_match = revision;
        self
    }

    /// Adds the time of day at which each attempt is sent.
    pub(crate) fn timed(mut self) -> Self {
        self.timed = true;
        self
    }

    /// Makes the query one of a host that has the keys of this mark, or requests none.
    pub(crate) fn keys(mut self, mark: Option<&str>) -> Self {
        self.mark = mark.map(str::to_owned);
        self
    }
}

/// A path and query, each part of it encoded (RFC 3986, 2.1).
#[derive(Debug, Clone)]
pub(crate) struct Target(String);

impl Target {
    pub(crate) fn new(segments: &[&str]) -> Self {
        let mut target = Self("/v1".to_owned());
        for segment in segments {
            target.0.push('/');
            target.encode(segment);
        }
        target
    }

    pub(crate) fn query(mut self, name: &str, value: Option<&str>) -> Self {
        if let Some(value) = value {
            self.0.push(if self.0.contains('?') { '&' } else { '?' });
            self.0.push_str(name);
            self.0.push('=');
            self.encode(value);
        }
        self
    }

    fn encode(&mut self, text: &str) {
        for byte in text.bytes() {
            if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
                self.0.push(char::from(byte));
            } else {
                // Writing to a String does not fail.
                let _ = write!(self.0, "%{byte:02X}");
            }
        }
    }
}

/// The replicas' addresses, and the credentials.
#[derive(Debug, Clone)]
pub(crate) struct Exchange {
    agent: Agent,
    /// The base URL of each replica.
    bases: Arc<[String]>,
    /// The replica that is asked first: the one that answered last.
    first: Arc<AtomicUsize>,
    authorization: Option<String>,
    timeout: Duration,
    patience: Duration,
}

/// An attempt at one replica that failed.
struct AttemptError {
    error: ClientError,
    /// True if another attempt may succeed.
    retry: bool,
}

impl AttemptError {
    const fn permanent(error: ClientError) -> Self {
        Self {
            error,
            retry: false,
        }
    }
}

impl Exchange {
    pub(crate) fn new(settings: &Settings) -> Result<Self, SettingsError> {
        let mut bases = Vec::new();
        for url in settings.urls() {
            let (base, uri) = base(url)?;
            let plain = uri.scheme_str() != Some("https") && !is_loopback(&uri);
            if plain && settings.token_file.is_some() {
                return Err(SettingsError::PlainToken { url: base });
            }
            bases.push(base);
        }
        let authorization = match &settings.token_file {
            Some(path) => Some(format!("Bearer {}", token(path)?)),
            None => None,
        };
        let roots = match &settings.ca_file {
            Some(path) => certificates(path)?,
            None => RootCerts::WebPki,
        };
        let config = Agent::config_builder()
            .http_status_as_error(false)
            // A redirect would send the token to another server.
            .max_redirects(0)
            .max_redirects_will_error(false)
            // Hosts and operators reach the service directly.
            .proxy(None)
            .timeout_connect(Some(CONNECT))
            .user_agent(concat!("tailbound/", env!("CARGO_PKG_VERSION")))
            .tls_config(TlsConfig::builder().root_certs(roots).build())
            .build();
        Ok(Self {
            agent: config.new_agent(),
            bases: bases.into(),
            first: Arc::default(),
            authorization,
            timeout: settings.timeout,
            patience: settings.patience,
        })
    }

    /// Ends requests in progress on all threads, and refuses all later ones.
    pub(crate) fn shutdown(&self) {
        self.agent.clone().shutdown();
    }

    /// Sends a request. Returns the body of the successful answer and the replica that sent it.
    pub(crate) fn send(&self, call: &Call) -> Result<(Vec<u8>, Replica<'_>), ClientError> {
        let key = if call.keyed {
            Some(format!("{:032x}", u128::from_le_bytes(random()?)))
        } else {
            None
        };
        self.patiently(|replica| {
            let body = replica.send(call, key.as_deref())?;
            Ok((body, replica))
        })
    }

    /// Opens a stream with at most `silence` between two reads. Returns its body and the index of
    /// the replica that sends it.
    pub(crate) fn open(
        &self,
        call: &Call,
        silence: Duration,
    ) -> Result<(Body, usize), ClientError> {
        self.patiently(|replica| Ok((replica.open(call, silence)?, replica.index)))
    }

    /// Tries one replica after the other until one answers or the patience is over.
    fn patiently<'e, T>(
        &'e self,
        attempt: impl Fn(Replica<'e>) -> Result<T, AttemptError>,
    ) -> Result<T, ClientError> {
        let end = Instant::now() + self.patience;
        let mut backoff = BACKOFF;
        loop {
            let failure = match self.round(&attempt) {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            let wait = backoff.wait();
            if !failure.retry || Instant::now() + wait > end {
                return Err(failure.error);
            }
            std::thread::sleep(wait);
        }
    }

    /// Tries each replica once, until one answers with a result or a permanent error.
    fn round<'e, T>(
        &'e self,
        attempt: impl Fn(Replica<'e>) -> Result<T, AttemptError>,
    ) -> Result<T, AttemptError> {
        let first = self.first.load(Ordering::Relaxed);
        let mut failed: Option<ClientError> = None;
        for turn in 0..self.bases.len() {
            let index = (first + turn) % self.bases.len();
            match attempt(self.replica(index)) {
                Err(failure) if failure.retry => {
                    failed = Some(match failed {
                        Some(before) => before.and(failure.error),
                        None => failure.error,
                    });
                }
                Err(failure) if failure.error.code().is_none() => return Err(failure),
                answered => {
                    self.first.store(index, Ordering::Relaxed);
                    return answered;
                }
            }
        }
        Err(AttemptError {
            error: failed.expect("a split has at least one part, so there is a replica"),
            retry: true,
        })
    }

    /// Sends the following requests to the next replica first.
    pub(crate) fn pass_over(&self, replica: usize) {
        let next = (replica + 1) % self.bases.len();
        self.first.store(next, Ordering::Relaxed);
    }

    pub(crate) fn replica(&self, index: usize) -> Replica<'_> {
        Replica {
            exchange: self,
            base: &self.bases[index],
            index,
        }
    }
}

/// Connection to one of the replicas.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Replica<'e> {
    exchange: &'e Exchange,
    base: &'e str,
    index: usize,
}

impl Replica<'_> {
    fn url(self, call: &Call) -> String {
        format!("{}{}", self.base, call.target)
    }

    /// The body of a successful answer.
    fn send(self, call: &Call, key: Option<&str>) -> Result<Vec<u8>, AttemptError> {
        let timeout = self.exchange.timeout;
        let lost = |error| self.fault(call, error, timeout);
        let mut response = self.run(call, key, Some(timeout), None).map_err(lost)?;
        let body = response.body_mut().with_config().limit(MAX_ANSWER);
        let body = body.read_to_vec().map_err(lost)?;
        self.interpret(call, &response, body)
    }

    fn open(self, call: &Call, silence: Duration) -> Result<Body, AttemptError> {
        let lost = |error| self.fault(call, error, silence);
        let mut response = self.run(call, None, None, Some(silence)).map_err(lost)?;
        if response.status().is_success() {
            return Ok(response.into_body());
        }
        let body = response.body_mut().with_config().limit(MAX_ANSWER);
        let body = body.read_to_vec().map_err(lost)?;
        match self.interpret(call, &response, body) {
            Err(failure) => Err(failure),
            Ok(_) => Err(AttemptError::permanent(
                self.unexpected(call, "a status that is neither success nor error"),
            )),
        }
    }

    fn run(
        self,
        call: &Call,
        key: Option<&str>,
        whole: Option<Duration>,
        read: Option<Duration>,
    ) -> Result<Response<Body>, ureq::Error> {
        let mut request = Request::builder()
            .method(call.method.clone())
            .uri(self.url(call))
            .header(header::ACCEPT, "application/json, application/problem+json");
        if let Some(authorization) = &self.exchange.authorization {
            request = request.header(header::AUTHORIZATION, authorization);
        }
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        if let Some(revision) = call.if_match {
            request = request.header(header::IF_MATCH, format!("\"{revision}\""));
        }
        if let Some(mark) = &call.mark {
            request = request.header(crate::KEYS_HEADER, mark);
        }
        if call.timed
            && let Ok(time) = SystemTime::now().duration_since(UNIX_EPOCH)
        {
            request = request.header(crate::TIME_HEADER, time.as_millis().to_string());
        }
        if let Some(body) = &call.body {
            let request = request.header(header::CONTENT_TYPE, "application/json");
            let request = self
                .exchange
                .agent
                .configure_request(request.body(body.as_slice())?);
            let request = request.timeout_global(whole).timeout_per_read(read);
            self.exchange.agent.run(request.build())
        } else {
            let request = self.exchange.agent.configure_request(request.body(())?);
            let request = request.timeout_global(whole).timeout_per_read(read);
            self.exchange.agent.run(request.build())
        }
    }

    /// Returns the body of a successful answer, or the error that the answer reports.
    fn interpret(
        self,
        call: &Call,
        response: &Response<Body>,
        body: Vec<u8>,
    ) -> Result<Vec<u8>, AttemptError> {
        let status = response.status();
        if status.is_success() {
            return Ok(body);
        }
        // A proxy answers so too while the service behind it is away.
        let retry = matches!(status.as_u16(), 502..=504);
        if let Ok(problem) = serde_json::from_slice::<Problem>(&body) {
            let error = ClientError::Problem(problem);
            return Err(AttemptError { error, retry });
        }
        let location = response.headers().get(header::LOCATION);
        let what = match location.and_then(|location| location.to_str().ok()) {
            Some(location) if status.is_redirection() => {
                format!("it redirects to {location:?}; use that address if it is correct")
            }
            _ => format!("HTTP status {}, {}", status.as_u16(), shown(&body)),
        };
        let error = self.unexpected(call, &what);
        Err(AttemptError { error, retry })
    }

    pub(crate) fn unexpected(self, call: &Call, what: &str) -> ClientError {
        ClientError::Unexpected {
            url: self.url(call),
            what: what.to_owned(),
        }
    }

    pub(crate) fn unreachable(self, why: impl Into<String>) -> ClientError {
        ClientError::Unreachable(vec![UnreachableReplica {
            url: self.base.to_owned(),
            why: why.into(),
        }])
    }

    /// Returns the error for a request without an answer, or with a part of one.
    fn fault(self, call: &Call, error: ureq::Error, patience: Duration) -> AttemptError {
        let transient = |why: String| AttemptError {
            error: self.unreachable(why),
            retry: true,
        };
        let tls = |why: String| {
            AttemptError::permanent(ClientError::Tls {
                url: self.base.to_owned(),
                why: tls_hint(why),
            })
        };
        match error {
            // The TLS library's own errors come as invalid data.
            ureq::Error::Io(error) if error.kind() == std::io::ErrorKind::InvalidData => {
                tls(error.to_string())
            }
            ureq::Error::Rustls(error) => tls(error.to_string()),
            ureq::Error::Tls(error) => tls(error.to_owned()),
            ureq::Error::Io(error) if error.kind() == std::io::ErrorKind::TimedOut => {
                transient(format!("nothing came for {patience:?}"))
            }
            ureq::Error::Io(error) => transient(error.to_string()),
            ureq::Error::Timeout(ureq::Timeout::Connect) => {
                transient(format!("no connection within {CONNECT:?}"))
            }
            ureq::Error::Timeout(_) => transient(format!("no answer within {patience:?}")),
            ureq::Error::HostNotFound => transient("there is no host of this name".to_owned()),
            ureq::Error::ConnectionFailed => transient("no connection".to_owned()),
            error @ ureq::Error::Protocol(_) => {
                let plain = self.base.starts_with("http:");
                let hint = if plain { "; is it https://?" } else { "" };
                let what = format!("it does not speak HTTP ({error}){hint}");
                AttemptError::permanent(self.unexpected(call, &what))
            }
            error => AttemptError::permanent(self.unexpected(call, &error.to_string())),
        }
    }

    /// Returns the error for a broken stream.
    pub(crate) fn broken(
        self,
        call: &Call,
        error: std::io::Error,
        silence: Duration,
    ) -> ClientError {
        self.fault(call, ureq::Error::from(error), silence).error
    }
}

/// Returns the beginning of an unknown answer in one line.
pub(crate) fn shown(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let text: String = text
        .trim()
        .chars()
        .take(SHOWN)
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    if text.is_empty() {
        "an empty answer".to_owned()
    } else {
        format!("{text:?}")
    }
}

/// Returns the address without a slash at its end, and its parts.
fn base(url: &str) -> Result<(String, Uri), SettingsError> {
    let refused = |why| SettingsError::Url {
        url: url.to_owned(),
        why,
    };
    let uri: Uri = url
        .parse()
        .map_err(|_| refused("it is no URL; write http://HOST:PORT or https://HOST:PORT"))?;
    if !matches!(uri.scheme_str(), Some("http" | "https")) {
        return Err(refused("it must begin with http:// or https://"));
    }
    if uri.query().is_some() {
        return Err(refused("it has a query; end it before the question mark"));
    }
    if uri
        .authority()
        .is_none_or(|host| host.as_str().contains('@'))
    {
        return Err(refused(
            "it has a name or password; a token belongs in a file",
        ));
    }
    Ok((url.trim_end_matches('/').to_owned(), uri))
}

fn is_loopback(uri: &Uri) -> bool {
    let host = uri.host().unwrap_or_default();
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    match bare.parse::<IpAddr>() {
        Ok(address) => address.is_loopback(),
        Err(_) => host == "localhost",
    }
}

fn token(path: &Path) -> Result<String, SettingsError> {
    let refused = |why: String| SettingsError::File {
        path: path.to_owned(),
        why,
    };
    let text = std::fs::read_to_string(path)
        .map_err(|error| refused(format!("cannot read the token: {error}")))?;
    let token = text.trim();
    if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        let why = "this is no token; the file holds it alone, in printable ASCII";
        return Err(refused(why.to_owned()));
    }
    Ok(token.to_owned())
}

fn certificates(path: &Path) -> Result<RootCerts, SettingsError> {
    let refused = |why: String| SettingsError::File {
        path: path.to_owned(),
        why,
    };
    let text = std::fs::read(path)
        .map_err(|error| refused(format!("cannot read the certificates: {error}")))?;
    let mut found = Vec::new();
    for item in parse_pem(&text) {
        match item {
            Ok(PemItem::Certificate(certificate)) => found.push(certificate),
            Ok(_) => {}
            Err(error) => return Err(refused(format!("not PEM: {error}"))),
        }
    }
    if found.is_empty() {
        return Err(refused("no certificate (PEM) in it".to_owned()));
    }
    Ok(RootCerts::from(found))
}

/// Returns a TLS error with a remedy. `why` is the text of rustls.
fn tls_hint(why: String) -> String {
    let has_any = |words: &[&str]| words.iter().any(|word| why.contains(word));
    if has_any(&["CaUsedAsEndEntity"]) {
        return "the service presents the certificate of a certificate authority itself; make a \
                server certificate that this authority signs (docs/reference/control.md, Certificates), and \
                restart the service with it"
            .to_owned();
    }
    // BadSignature is what a CA of the same name with another key causes.
    let hint = if has_any(&["UnknownIssuer", "BadSignature"]) {
        "; the CA of its certificate is not trusted: pass that CA's certificate"
    } else if has_any(&["not valid for name", "NotValidForName"]) {
        "; use an address that is in its certificate, or make a certificate with this one \
         (subjectAltName)"
    } else if has_any(&["certificate expired", "Expired"]) {
        "; make a new one, and send SIGHUP to the service"
    } else if has_any(&["not valid yet", "NotValidYet"]) {
        "; set the clock of this computer, or of the one that made the certificate"
    } else if has_any(&["InvalidContentType"]) {
        "; it does not speak TLS: is it http://?"
    } else {
        ""
    };
    why + hint
}

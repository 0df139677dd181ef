//! Metrics for Prometheus: the thread that serves them, and their formats.
//!
//! The packet loop's counters are plain integers. For a scrape, a request for a snapshot goes to
//! the loop through a channel, with a wake-up, so the packet path has neither atomics nor locks.
//! The loop only copies the counters, a few guests per turn; the text is written in the server's
//! thread.

mod collector;
mod control;
mod inward;
mod limits;
mod pacing;
mod snoop;
mod text;

pub(crate) use collector::Collector;
use text::Form;
pub(crate) use text::{AsideTimes, ClassState, Exposition, HostCounts};

use crate::control::WatchStatus;
use crate::wake::Waker;
use flate2::Compression;
use flate2::write::GzEncoder;
use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::{SocketAddr, TcpListener};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tailbound_agent::meters::{AgentSnapshot, Shared};
use tailbound_agent::{Periodic, Pool};
use tiny_http::{Header, Method, Request, Response};

/// Metrics cannot be served.
#[derive(Debug, thiserror::Error)]
#[error("cannot serve metrics at {address}: {source}; is another tailbound host running?")]
pub struct MetricsError {
    /// The address.
    address: SocketAddr,
    /// The system's error.
    source: std::io::Error,
}

/// The longest wait of a scrape for the packet loop.
const PATIENCE: Duration = Duration::from_secs(1);

/// The vCPU agent whose measurements are served, if any. A reload may replace it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Vcpus(Arc<Mutex<Option<Shared>>>);

impl Vcpus {
    pub(crate) fn set(&self, shared: Option<Shared>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = shared;
    }

    fn snapshot(&self) -> Option<AgentSnapshot> {
        self.read(AgentSnapshot::clone)
    }

    /// Returns the CPU of this host that may be reserved.
    pub(crate) fn offer(&self) -> Option<Pool> {
        self.read(|snapshot| snapshot.offer)?
    }

    /// Returns the reservation in force of each vCPU, by guest.
    pub(crate) fn reservations(&self) -> BTreeMap<String, Vec<Option<Periodic>>> {
        let reservations = self.read(|snapshot| snapshot.reservations.clone());
        reservations.unwrap_or_default()
    }

    fn read<T>(&self, read: impl FnOnce(&AgentSnapshot) -> T) -> Option<T> {
        let shared = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let shared = shared.clone()?;
        let snapshot = shared.lock().unwrap_or_else(PoisonError::into_inner);
        Some(read(&snapshot))
    }
}

/// Returns the state of the connection to the placement service.
pub(crate) type AskWatch = Arc<dyn Fn() -> WatchStatus + Send + Sync>;

/// Requests the packet loop's counters, from any thread.
#[derive(Clone)]
pub(crate) struct Asker {
    ask: Sender<Scrape>,
    waker: Waker,
}

impl Asker {
    /// Makes an asker, and the packet loop's end of its channel.
    pub(crate) fn new(waker: Waker) -> (Self, Receiver<Scrape>) {
        let (ask, scrapes) = channel();
        (Self { ask, waker }, scrapes)
    }

    /// Returns the packet loop's counters; None if it does not answer within a second.
    pub(crate) fn ask(&self) -> Option<Exposition> {
        let (answer, wait) = sync_channel(1);
        self.ask.send(Scrape(answer)).ok()?;
        self.waker.wake();
        wait.recv_timeout(PATIENCE).ok()
    }
}

/// A scrape that waits for the packet loop.
pub(crate) struct Scrape(SyncSender<Exposition>);

impl Scrape {
    pub(crate) fn answer(self, exposition: Exposition) {
        // Whoever asked may have lost patience.
        let _ = self.0.send(exposition);
    }
}

/// A server of metrics, until it is dropped.
pub(crate) struct Server {
    address: SocketAddr,
    http: Arc<tiny_http::Server>,
    scrapes: Receiver<Scrape>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    pub(crate) fn start(
        address: SocketAddr,
        waker: Waker,
        vcpus: Vcpus,
        watch: Option<AskWatch>,
    ) -> Result<Self, MetricsError> {
        let failed = |source| MetricsError { address, source };
        let listener = TcpListener::bind(address).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let http = tiny_http::Server::from_listener(listener, None)
            .map_err(|error| failed(std::io::Error::other(error)))?;
        let http = Arc::new(http);
        let (asker, scrapes) = Asker::new(waker);
        let client = Client {
            asker,
            vcpus,
            watch,
        };
        let served = Arc::clone(&http);
        let thread = std::thread::Builder::new()
            .name("metrics".to_owned())
            .spawn(move || {
                for request in served.incoming_requests() {
                    client.serve(request);
                }
            })
            .map_err(failed)?;
        Ok(Self {
            address,
            http,
            scrapes,
            thread: Some(thread),
        })
    }

    /// Returns the address of the server, with the chosen port if 0 was configured.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the scrapes that wait for an answer.
    pub(crate) fn scrapes(&self) -> impl Iterator<Item = Scrape> + '_ {
        self.scrapes.try_iter()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.http.unblock();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Returns the answer to a request that needs no counters.
fn fixed(method: &Method, url: &str) -> Option<(u16, &'static str)> {
    let is_read = matches!(method, Method::Get | Method::Head);
    match url {
        "/" | "/metrics" | "/healthz" if !is_read => Some((405, "only GET\n")),
        "/" => Some((
            200,
            "tailbound host: metrics are at /metrics, the daemon's health at /healthz\n",
        )),
        "/metrics" | "/healthz" => None,
        _ => Some((404, "there are /metrics and /healthz\n")),
    }
}

/// The thread's side.
struct Client {
    asker: Asker,
    vcpus: Vcpus,
    watch: Option<AskWatch>,
}

impl Client {
    fn serve(&self, request: Request) {
        let sent = if let Some((status, text)) = fixed(request.method(), request.url()) {
            request.respond(plain(status, text))
        } else {
            match self.ask() {
                None => request.respond(plain(503, "the packet loop does not answer\n")),
                Some(_) if request.url() == "/healthz" => request.respond(plain(200, "ok\n")),
                Some(exposition) => {
                    let form = Form::accepted_by(header(&request, "Accept"));
                    match exposition.encode(form) {
                        Ok(bytes) => {
                            let response = packed(bytes, form, header(&request, "Accept-Encoding"));
                            request.respond(response)
                        }
                        Err(error) => request.respond(plain(500, &format!("{error}\n"))),
                    }
                }
            }
        };
        if let Err(error) = sent {
            tracing::debug!(%error, "a scraper went away");
        }
    }

    fn ask(&self) -> Option<Exposition> {
        let mut exposition = self.asker.ask()?;
        // Asked here, and not by the loop, which must not wait for the agent.
        exposition.vcpus = self.vcpus.snapshot();
        exposition.watch = self.watch.as_ref().map(|ask| ask());
        Some(exposition)
    }
}

fn plain(status: u16, text: &str) -> Response<std::io::Cursor<Vec<u8>>> {
    with_type(status, text.into(), "text/plain; charset=utf-8")
}

/// Returns the value of the scraper's header.
fn header<'r>(request: &'r Request, name: &'static str) -> &'r str {
    let named = |header: &&Header| header.field.equiv(name);
    let header = request.headers().iter().find(named);
    header.map_or("", |header| header.value.as_str())
}

/// Makes a page, compressed if the scraper accepts that: it is then a tenth as long.
fn packed(page: Vec<u8>, form: Form, encodings: &str) -> Response<std::io::Cursor<Vec<u8>>> {
    let gzip = || {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        gzip.write_all(&page).and_then(|()| gzip.finish()).ok()
    };
    let takes = |range: &str| {
        let (coding, quality) = range.split_once(';').unwrap_or((range, ""));
        coding.trim() == "gzip" && !matches!(quality.trim(), "q=0" | "q=0.0")
    };
    let packed = encodings.split(',').any(takes).then(gzip).flatten();
    let encoding = Header::from_bytes("Content-Encoding", "gzip");
    match (packed, encoding) {
        (Some(packed), Ok(encoding)) => {
            with_type(200, packed, form.content_type()).with_header(encoding)
        }
        _ => with_type(200, page, form.content_type()),
    }
}

fn with_type(status: u16, body: Vec<u8>, kind: &str) -> Response<std::io::Cursor<Vec<u8>>> {
    let response = Response::from_data(body).with_status_code(status);
    match Header::from_bytes("Content-Type", kind) {
        Ok(header) => response.with_header(header),
        Err(()) => response,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::read::GzDecoder;
    use std::io::Read as _;

    #[test]
    fn the_root_names_the_pages_that_there_are() {
        let status = |method, url| fixed(&method, url).map(|(status, _)| status);
        for page in ["/metrics", "/healthz"] {
            assert_eq!(status(Method::Get, page), None);
            assert_eq!(status(Method::Post, page), Some(405));
            let (_, text) = fixed(&Method::Get, "/").unwrap();
            assert!(text.contains(page), "{text}");
        }
        assert_eq!(status(Method::Head, "/"), Some(200));
        assert_eq!(status(Method::Get, "/metric"), Some(404));
    }

    #[test]
    fn a_page_is_packed_for_who_takes_it_and_for_nobody_else() {
        let page = "tailbound 1\n".repeat(1_000).into_bytes();
        for (encodings, is_packed) in [
            ("gzip", true),
            ("deflate, gzip;q=0.5", true),
            ("", false),
            ("identity", false),
            ("gzip;q=0", false),
        ] {
            let response = packed(page.clone(), Form::Text, encodings);
            let said = |header: &Header| header.field.equiv("Content-Encoding");
            assert_eq!(
                response.headers().iter().any(said),
                is_packed,
                "{encodings}"
            );
            let mut sent = Vec::new();
            response.into_reader().read_to_end(&mut sent).unwrap();
            assert_eq!(sent.len() < page.len() / 10, is_packed, "{encodings}");
            if is_packed {
                let mut read = Vec::new();
                GzDecoder::new(&*sent).read_to_end(&mut read).unwrap();
                sent = read;
            }
            assert_eq!(sent, page, "{encodings}");
        }
    }
}

//! Metrics for Prometheus: the thread that serves them, and their formats.
//!
//! The packet loop's counters are plain integers. For a scrape, a request for a snapshot goes to
//! the loop through a channel, with a wake-up, so the packet path has neither atomics nor locks.
//! The loop only copies the counters, a few guests per turn; the text is written in the server's
//! thread.

mod collector;
mod control;
mod exposition;
mod inward;
mod limits;
mod pacing;
mod snoop;

pub(crate) use collector::Collector;
pub(crate) use exposition::{AsideTimes, ClassState, Exposition, HostCounts};

use crate::control::WatchStatus;
use crate::wake::Waker;
use flate2::Compression;
use flate2::write::GzEncoder;
use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::{SocketAddr, TcpListener};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tailbound_agent::meters::{AgentSnapshot, Shared};
use tailbound_agent::{Periodic, Pool};
use tailbound_metrics::Format;
use tailbound_serve::{Access, Answer, Content, Lack, Limits, NO_ACTIVE_CONTENT, Request, Site};

/// Metrics cannot be served.
#[derive(Debug, thiserror::Error)]
#[error("cannot serve metrics at {address}: {source}; is another tailbound host running?")]
pub struct MetricsError {
    /// The address.
    address: SocketAddr,
    /// The system's error.
    source: std::io::Error,
}

/// Time limit for the packet loop's answer to a scrape.
const SCRAPE_TIMEOUT: Duration = Duration::from_secs(1);

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
        wait.recv_timeout(SCRAPE_TIMEOUT).ok()
    }
}

/// A scrape that waits for the packet loop.
pub(crate) struct Scrape(SyncSender<Exposition>);

impl Scrape {
    pub(crate) fn answer(self, exposition: Exposition) {
        // The scraper may have timed out.
        let _ = self.0.send(exposition);
    }
}

/// A server of metrics, until it is dropped.
pub(crate) struct Server {
    http: tailbound_serve::Server,
    scrapes: Receiver<Scrape>,
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
        let (asker, scrapes) = Asker::new(waker);
        let client = Client {
            asker,
            vcpus,
            watch,
        };
        let pages = Pages {
            client,
            turn: Mutex::new(()),
        };
        let http = tailbound_serve::Server::start(listener, Access::Open, Limits::default(), pages);
        let http = http.map_err(failed)?;
        Ok(Self { http, scrapes })
    }

    /// Returns the address of the server, with the chosen port if 0 was configured.
    pub(crate) fn address(&self) -> SocketAddr {
        self.http.address()
    }

    /// Returns the scrapes that wait for an answer.
    pub(crate) fn scrapes(&self) -> impl Iterator<Item = Scrape> + '_ {
        self.scrapes.try_iter()
    }
}

/// The answer to a path that needs no counters; `None` for the others.
fn fixed(path: &str) -> Option<Answer> {
    match path {
        "/" => Some(Answer::Content(Content::text(
            "tailbound host: metrics are at /metrics, the daemon's health at /healthz\n",
        ))),
        "/metrics" | "/healthz" => None,
        _ => Some(Answer::None(
            Lack::Path,
            "there are /metrics and /healthz\n".into(),
        )),
    }
}

/// Collects the counters of loop, agent and service connection, for the server and the exporter.
struct Client {
    asker: Asker,
    vcpus: Vcpus,
    watch: Option<AskWatch>,
}

/// The pages of the server.
struct Pages {
    client: Client,
    /// Held for a scrape: the packet loop copies its counters for one scraper at a time.
    turn: Mutex<()>,
}

impl Site for Pages {
    fn answer(&self, request: &Request) -> Answer {
        if let Some(answer) = fixed(request.path()) {
            return answer;
        }
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(exposition) = self.client.ask() else {
            return Answer::None(Lack::Source, "the packet loop does not answer\n".into());
        };
        if request.path() == "/healthz" {
            return Answer::Content(Content::text("ok\n"));
        }
        let format = Format::accepted_by(request.accept());
        match format.encode(exposition) {
            Ok(bytes) => Answer::Content(packed(bytes, format, request.accept_encoding())),
            Err(error) => Answer::None(Lack::Failure, format!("{error}\n").into()),
        }
    }
}

impl Client {
    fn ask(&self) -> Option<Exposition> {
        let mut exposition = self.asker.ask()?;
        // Asked here, and not by the loop, which must not wait for the agent.
        exposition.vcpus = self.vcpus.snapshot();
        exposition.watch = self.watch.as_ref().map(|ask| ask());
        Some(exposition)
    }
}

/// A page, packed if the scraper takes that: it is then a tenth as long.
fn packed(page: Vec<u8>, format: Format, encodings: &str) -> Content {
    let gzip = || {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        gzip.write_all(&page).and_then(|()| gzip.finish()).ok()
    };
    let takes = |range: &str| {
        let (coding, quality) = range.split_once(';').unwrap_or((range, ""));
        coding.trim() == "gzip" && !matches!(quality.trim(), "q=0" | "q=0.0")
    };
    let packed = encodings.split(',').any(takes).then(gzip).flatten();
    Content {
        kind: format.content_type().into(),
        encoding: packed.is_some().then_some("gzip"),
        policy: NO_ACTIVE_CONTENT.to_owned(),
        body: packed.unwrap_or(page).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::read::GzDecoder;
    use std::io::Read as _;

    #[test]
    fn the_root_names_the_pages_that_there_are() {
        let Some(Answer::Content(root)) = fixed("/") else {
            panic!("the root has a text");
        };
        let root = String::from_utf8_lossy(&root.body);
        for page in ["/metrics", "/healthz"] {
            assert!(fixed(page).is_none());
            assert!(root.contains(page), "{root}");
        }
        let missing = fixed("/metric");
        assert!(matches!(missing, Some(Answer::None(Lack::Path, _))));
    }

    #[test]
    fn a_metrics_page_is_compressed_only_if_the_client_accepts_gzip() {
        let page = "tailbound 1\n".repeat(1_000).into_bytes();
        for (encodings, is_packed) in [
            ("gzip", true),
            ("deflate, gzip;q=0.5", true),
            ("", false),
            ("identity", false),
            ("gzip;q=0", false),
        ] {
            let content = packed(page.clone(), Format::Text, encodings);
            assert_eq!(content.encoding.is_some(), is_packed, "{encodings}");
            let mut sent = content.body.to_vec();
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

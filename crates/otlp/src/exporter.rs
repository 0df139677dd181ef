//! The thread that sends spans and metrics to a collector.

use crate::endpoint::Endpoint;
use crate::metrics::{Times, of_text};
use crate::span::{Span, nanos};
use crate::{attribute, text};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::InstrumentationScope;
use opentelemetry_proto::tonic::metrics::v1::{ResourceMetrics, ScopeMetrics};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans};
use prost::Message;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

/// Maximum number of spans in the queue to the thread; further spans are dropped and counted.
const ROOM: usize = 4_096;
/// Number of spans in one request.
const AT_ONCE: usize = 512;
/// Maximum number of spans that are kept while the collector does not answer; further spans are
/// dropped and counted.
const KEPT: usize = 4_096;
/// Interval for requests with fewer spans.
const SPANS_EVERY: Duration = Duration::from_secs(5);
/// Interval for metrics.
const METRICS_EVERY: Duration = Duration::from_secs(15);
/// Timeout of a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// Returns all metrics as text of `OpenMetrics` 1.0, or `None` if they are unavailable now.
pub type AskMetrics = Box<dyn FnMut() -> Option<String> + Send>;

/// Sender and collector.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The address of the collector.
    pub endpoint: Endpoint,
    /// The name of the service, `service.name`.
    pub service: &'static str,
    /// `service.instance.id`: distinguishes several instances of the service.
    pub instance: String,
}

/// Sends spans to a collector. Clones share the thread, which sends all queued spans when the last
/// clone is dropped.
#[derive(Debug, Clone)]
pub struct Exporter(Arc<Inner>);

/// A message to the thread.
enum Item {
    Span(Span),
    /// Send all queued spans and metrics, then answer.
    Flush(SyncSender<()>),
}

struct Inner {
    /// `None` after the end.
    queue: Option<SyncSender<Item>>,
    dropped: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner").finish_non_exhaustive()
    }
}

impl Exporter {
    /// Starts the thread. It retries while the collector is unreachable.
    ///
    /// # Errors
    /// The system cannot start a thread.
    pub fn start(settings: Settings, metrics: AskMetrics) -> std::io::Result<Self> {
        let (to_thread, queue) = sync_channel(ROOM);
        let dropped = Arc::default();
        let sender = Sender {
            agent: ureq::Agent::config_builder()
                .http_status_as_error(false)
                .timeout_global(Some(REQUEST_TIMEOUT))
                .build()
                .new_agent(),
            settings,
            metrics,
            begin: nanos(SystemTime::now()),
            waiting: Vec::new(),
            dropped: Arc::clone(&dropped),
            is_away: false,
        };
        let thread = std::thread::Builder::new()
            .name("otlp".to_owned())
            .spawn(move || sender.run(&queue))?;
        Ok(Self(Arc::new(Inner {
            queue: Some(to_thread),
            dropped,
            thread: Some(thread),
        })))
    }

    /// Queues a span. It never waits: if the queue is full, the span is dropped and counted.
    pub fn tell(&self, span: Span) {
        let queue = self.0.queue.as_ref();
        if queue.is_none_or(|queue| queue.try_send(Item::Span(span)).is_err()) {
            self.0.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Sends all queued spans and the metrics, and waits until they are sent or the timeout ends.
    pub fn flush(&self) {
        let (told, wait) = sync_channel(1);
        let queue = self.0.queue.as_ref();
        if queue.is_some_and(|queue| queue.send(Item::Flush(told)).is_ok()) {
            // One for spans and one for metrics.
            let _ = wait.recv_timeout(2 * REQUEST_TIMEOUT);
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        drop(self.queue.take());
        // The last clone may be dropped by the thread itself, with its source of metrics.
        let is_itself =
            |thread: &JoinHandle<()>| thread.thread().id() == std::thread::current().id();
        if let Some(thread) = self.thread.take_if(|thread| !is_itself(thread)) {
            let _ = thread.join();
        }
    }
}

/// The state of the thread.
struct Sender {
    settings: Settings,
    agent: ureq::Agent,
    metrics: AskMetrics,
    /// Start time, in nanoseconds since 1970: counts refer to the time since then.
    begin: u64,
    /// Spans that are not sent yet.
    waiting: Vec<Span>,
    dropped: Arc<AtomicU64>,
    is_away: bool,
}

/// The collector's reply to a request.
#[derive(Debug, PartialEq, Eq)]
enum Reply {
    Taken,
    /// A retry may succeed.
    NotNow(String),
    /// A retry is useless.
    Refused(String),
}

impl Sender {
    fn run(mut self, queue: &Receiver<Item>) {
        let mut spans_at = Instant::now() + SPANS_EVERY;
        let mut metrics_at = Instant::now() + METRICS_EVERY;
        loop {
            let wait = spans_at
                .min(metrics_at)
                .saturating_duration_since(Instant::now());
            let ended = match queue.recv_timeout(wait) {
                Ok(Item::Flush(told)) => {
                    self.tell_spans();
                    self.tell_metrics();
                    let _ = told.try_send(());
                    continue;
                }
                Ok(Item::Span(span)) => {
                    self.waiting.push(span);
                    // While the collector is away it is tried every five seconds alone.
                    let is_full = self.waiting.len() >= AT_ONCE && !self.is_away;
                    if !is_full && self.waiting.len() < KEPT {
                        continue;
                    }
                    false
                }
                Err(RecvTimeoutError::Timeout) => false,
                Err(RecvTimeoutError::Disconnected) => true,
            };
            let now = Instant::now();
            let is_full = self.waiting.len() >= AT_ONCE && !self.is_away;
            if ended || is_full || now >= spans_at {
                self.tell_spans();
                spans_at = now + SPANS_EVERY;
            } else if self.waiting.len() >= KEPT {
                self.drop_oldest();
            }
            if ended || now >= metrics_at {
                self.tell_metrics();
                metrics_at = now + METRICS_EVERY;
            }
            if ended {
                return;
            }
        }
    }

    /// Drops the oldest spans, so that there is room for another request.
    fn drop_oldest(&mut self) {
        let many = self.waiting.len().saturating_sub(KEPT - AT_ONCE);
        self.waiting.drain(..many);
        self.dropped.fetch_add(many as u64, Ordering::Relaxed);
    }

    fn tell_spans(&mut self) {
        while !self.waiting.is_empty() {
            let many = self.waiting.len().min(AT_ONCE);
            let scope_spans = vec![ScopeSpans {
                scope: Some(scope()),
                spans: self.waiting[..many].iter().map(Into::into).collect(),
                ..ScopeSpans::default()
            }];
            let resource_spans = vec![ResourceSpans {
                resource: Some(self.resource()),
                scope_spans,
                ..ResourceSpans::default()
            }];
            let reply = self.post("traces", &ExportTraceServiceRequest { resource_spans });
            let is_away = matches!(reply, Reply::NotNow(_));
            if !is_away {
                self.waiting.drain(..many);
            }
            if matches!(reply, Reply::Refused(_)) {
                self.dropped.fetch_add(many as u64, Ordering::Relaxed);
            }
            self.note(reply);
            if is_away {
                return;
            }
        }
    }

    fn tell_metrics(&mut self) {
        let Some(page) = (self.metrics)() else {
            return;
        };
        let times = Times {
            begin: self.begin,
            now: nanos(SystemTime::now()),
        };
        let metrics = of_text(&page, times);
        if metrics.is_empty() {
            return;
        }
        let scope_metrics = vec![ScopeMetrics {
            scope: Some(scope()),
            metrics,
            ..ScopeMetrics::default()
        }];
        let resource_metrics = vec![ResourceMetrics {
            resource: Some(self.resource()),
            scope_metrics,
            ..ResourceMetrics::default()
        }];
        let reply = self.post("metrics", &ExportMetricsServiceRequest { resource_metrics });
        // The next request has these metrics again, so a refused one is not repeated.
        self.note(reply);
    }

    fn resource(&self) -> Resource {
        let attributes = [
            ("service.name", self.settings.service),
            ("service.version", env!("CARGO_PKG_VERSION")),
            ("service.instance.id", self.settings.instance.as_str()),
        ];
        Resource {
            attributes: attributes
                .map(|(name, of)| attribute(name, text(of)))
                .into(),
            ..Resource::default()
        }
    }

    fn post(&self, signal: &str, request: &impl Message) -> Reply {
        let address = self.settings.endpoint.of(signal);
        let post = self.agent.post(&address);
        let post = post.content_type("application/x-protobuf");
        match post.send(&request.encode_to_vec()[..]) {
            Ok(answer) => match answer.status().as_u16() {
                200..300 => Reply::Taken,
                // OTLP 1, 4.1: these alone.
                status @ (429 | 502 | 503 | 504) => Reply::NotNow(format!("status {status}")),
                status => Reply::Refused(format!("status {status}")),
            },
            Err(error) => Reply::NotNow(error.to_string()),
        }
    }

    /// Logs once when the collector becomes unreachable, and once when it returns.
    fn note(&mut self, reply: Reply) {
        let endpoint = &self.settings.endpoint;
        let dropped = self.dropped.load(Ordering::Relaxed);
        match reply {
            Reply::Taken if std::mem::take(&mut self.is_away) => {
                tracing::info!(%endpoint, dropped, "the collector takes traces and metrics again");
            }
            Reply::Taken => {}
            Reply::NotNow(why) | Reply::Refused(why) => {
                if std::mem::replace(&mut self.is_away, true) {
                    tracing::debug!(%endpoint, why, dropped, "the collector takes nothing still");
                } else {
                    tracing::warn!(
                        %endpoint,
                        why,
                        "the collector does not take traces and metrics; nothing else waits for it"
                    );
                }
            }
        }
    }
}

/// Returns the program's name and version.
fn scope() -> InstrumentationScope {
    InstrumentationScope {
        name: "tailbound".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..InstrumentationScope::default()
    }
}

#[cfg(test)]
mod tests;

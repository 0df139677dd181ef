//! The thread that sends spans and metrics to a collector.

use crate::endpoint::Endpoint;
use crate::metrics::{Times, of_text};
use crate::span::{Span, nanos};
use crate::{attributes, scope, text};
use serde_json::{Value, json};
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
const PATIENCE: Duration = Duration::from_secs(5);

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
        let telling = Telling {
            agent: ureq::Agent::config_builder()
                .http_status_as_error(false)
                .timeout_global(Some(PATIENCE))
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
            .spawn(move || telling.run(&queue))?;
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
            let _ = wait.recv_timeout(2 * PATIENCE);
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        drop(self.queue.take());
        // Whoever asks for metrics may be the last who has this, on the thread itself.
        let is_itself =
            |thread: &JoinHandle<()>| thread.thread().id() == std::thread::current().id();
        if let Some(thread) = self.thread.take_if(|thread| !is_itself(thread)) {
            let _ = thread.join();
        }
    }
}

/// The state of the thread.
struct Telling {
    settings: Settings,
    agent: ureq::Agent,
    metrics: AskMetrics,
    /// Start time in OTLP's form: counts refer to the time since then.
    begin: String,
    /// Spans that are not sent yet.
    waiting: Vec<Span>,
    dropped: Arc<AtomicU64>,
    is_away: bool,
}

/// The result of a request.
#[derive(Debug, PartialEq, Eq)]
enum Told {
    Taken,
    /// A retry may succeed.
    NotNow(String),
    /// A retry is useless.
    Refused(String),
}

impl Telling {
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
            let spans: Vec<_> = self.waiting[..many].iter().map(Span::json).collect();
            let body = json!({"resourceSpans": [{
                "resource": self.resource(),
                "scopeSpans": [{"scope": scope(), "spans": spans}],
            }]});
            let told = self.post("traces", &body);
            let is_away = matches!(told, Told::NotNow(_));
            if !is_away {
                self.waiting.drain(..many);
            }
            if matches!(told, Told::Refused(_)) {
                self.dropped.fetch_add(many as u64, Ordering::Relaxed);
            }
            self.note(told);
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
            begin: self.begin.clone(),
            now: nanos(SystemTime::now()),
        };
        let metrics = of_text(&page, &times);
        if metrics.is_empty() {
            return;
        }
        let body = json!({"resourceMetrics": [{
            "resource": self.resource(),
            "scopeMetrics": [{"scope": scope(), "metrics": metrics}],
        }]});
        let told = self.post("metrics", &body);
        // The next ones have all that these had.
        self.note(told);
    }

    fn resource(&self) -> Value {
        let Settings {
            service, instance, ..
        } = &self.settings;
        let all = [
            ("service.name", text(service)),
            ("service.version", text(env!("CARGO_PKG_VERSION"))),
            ("service.instance.id", text(instance)),
        ];
        json!({ "attributes": attributes(all.into_iter()) })
    }

    fn post(&self, signal: &str, body: &Value) -> Told {
        let address = self.settings.endpoint.of(signal);
        match self.agent.post(&address).send_json(body) {
            Ok(answer) => match answer.status().as_u16() {
                200..300 => Told::Taken,
                // OTLP 1, 4.1: these alone.
                status @ (429 | 502 | 503 | 504) => Told::NotNow(format!("status {status}")),
                status => Told::Refused(format!("status {status}")),
            },
            Err(error) => Told::NotNow(error.to_string()),
        }
    }

    /// Logs once when the collector becomes unreachable, and once when it returns.
    fn note(&mut self, told: Told) {
        let endpoint = &self.settings.endpoint;
        let dropped = self.dropped.load(Ordering::Relaxed);
        match told {
            Told::Taken if std::mem::take(&mut self.is_away) => {
                tracing::info!(%endpoint, dropped, "the collector takes traces and metrics again");
            }
            Told::Taken => {}
            Told::NotNow(why) | Told::Refused(why) => {
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

#[cfg(test)]
mod tests;

//! The metrics of the service.

use super::App;
use super::faults::Board;
use super::problem::ApiError;
use super::traces::RequestTrace;
use crate::fair::Payer;
use crate::ledger::Ledger;
use crate::service::CommitReport;
use axum::extract::{MatchedPath, Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};
use tailbound_api::{Code, FaultKind, Role};

/// The content type that prometheus-client writes.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Route {
    method: String,
    route: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AnswerLabels {
    method: String,
    route: String,
    status: u16,
}

/// The labels of a decided call.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DecisionLabels {
    command: &'static str,
    outcome: &'static str,
}

/// The labels of a request that was refused for its rate.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LimitLabels {
    by: &'static str,
}

/// The label of a kind of fault.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Faulty {
    fault: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CommitLabels {
    outcome: &'static str,
}

/// Counters and histograms. Clones share them.
#[derive(Debug, Clone)]
pub struct Metrics(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    registry: Registry,
    requests: Family<AnswerLabels, Counter>,
    seconds: Family<Route, Histogram>,
    decisions: Family<DecisionLabels, Histogram>,
    commits: Family<CommitLabels, Histogram>,
    batch: Histogram,
    turned_away: Counter,
    limited: Family<LimitLabels, Counter>,
    levels: Levels,
    faulty: Family<Faulty, Gauge>,
    faults: Board,
}

/// The values that are read at a scrape.
#[derive(Debug, Default)]
struct Levels {
    tenants: Gauge,
    slots: Gauge,
    used: Gauge,
    hosts: Gauge,
    open_hosts: Gauge,
    revision: Gauge,
    leader: Gauge,
    streams: Gauge,
    connections: Gauge,
    pending: Gauge,
    degraded: Gauge,
    ahead: Gauge,
    words: HostLevels,
    cpu: CpuLevels,
}

/// Numbers of hosts by their reports.
#[derive(Debug, Default)]
struct HostLevels {
    other_classes: Gauge,
    late: Gauge,
    following: Gauge,
    refusing: Gauge,
    silent: Gauge,
    unheard: Gauge,
    short_of_cpu: Gauge,
    with_unpromised: Gauge,
}

/// CPU of all hosts, in CPUs.
#[derive(Debug, Default)]
struct CpuLevels {
    reserved: Gauge<f64, AtomicU64>,
    reservable: Gauge<f64, AtomicU64>,
    unpromised: Gauge<f64, AtomicU64>,
}

impl Levels {
    fn register(&self, registry: &mut Registry) {
        for (name, help, gauge) in [
            ("tenants", "Admitted tenants", &self.tenants),
            ("slots", "Places for machines", &self.slots),
            ("slots_used", "Places that are taken", &self.used),
            ("hosts", "Hosts of the topology", &self.hosts),
            ("hosts_open", "Hosts that get machines", &self.open_hosts),
            ("revision", "Rises with each change", &self.revision),
            ("leader", "1 if this replica decides", &self.leader),
            ("streams", "Open streams of guarantees", &self.streams),
            ("connections", "Open connections", &self.connections),
            (
                "hosts_of_other_classes",
                "Hosts whose classes differ from the topology's",
                &self.words.other_classes,
            ),
            (
                "hosts_late",
                "Hosts whose frames leave later than the topology counts with",
                &self.words.late,
            ),
            (
                "tenants_pending",
                "Tenants with a host that has not confirmed their guarantee yet",
                &self.pending,
            ),
            (
                "tenants_degraded",
                "Tenants with a host that does not keep what they are promised, or is silent",
                &self.degraded,
            ),
            (
                "hosts_following",
                "Hosts that keep all that is promised",
                &self.words.following,
            ),
            (
                "hosts_refusing",
                "Hosts that do not keep something that is promised",
                &self.words.refusing,
            ),
            (
                "hosts_ahead",
                "Hosts that follow changes which this store never made",
                &self.ahead,
            ),
            (
                "hosts_silent",
                "Hosts without a report in the last 30 s",
                &self.words.silent,
            ),
            (
                "hosts_unheard",
                "Hosts that have never reported",
                &self.words.unheard,
            ),
            (
                "hosts_short_of_cpu",
                "Hosts of whose CPU more is reserved than they keep for reservations",
                &self.words.short_of_cpu,
            ),
            (
                "hosts_with_unpromised_cpu",
                "Hosts with guests that have more CPU reserved than they are promised",
                &self.words.with_unpromised,
            ),
        ] {
            registry.register(name, help, gauge.clone());
        }
        self.register_cpu(registry);
    }

    fn register_cpu(&self, registry: &mut Registry) {
        for (name, help, gauge) in [
            (
                "cpu_reserved",
                "CPUs that are reserved for machines: the sum of runtime / deadline",
                &self.cpu.reserved,
            ),
            (
                "cpu_reservable",
                "CPUs that hosts' agents offer for reservations",
                &self.cpu.reservable,
            ),
            (
                "cpu_unpromised",
                "CPUs of these that guests have reserved beyond what they are promised",
                &self.cpu.unpromised,
            ),
        ] {
            registry.register(name, help, gauge.clone());
        }
    }
}

/// Returns a histogram of seconds, from 50 us to some 13 s.
fn seconds() -> Histogram {
    Histogram::new(exponential_buckets(50e-6, 2.0, 19))
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// Makes the metrics, all at zero.
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("tailbound_place");
        let requests = Family::default();
        registry.register(
            "requests",
            "Requests answered, by what was asked and the HTTP status",
            requests.clone(),
        );
        let by_route = Family::new_with_constructor(seconds as fn() -> Histogram);
        registry.register_with_unit(
            "request",
            "From a request's head to its answer's",
            Unit::Seconds,
            by_route.clone(),
        );
        let decisions = Family::new_with_constructor(seconds as fn() -> Histogram);
        registry.register_with_unit(
            "decision",
            "From a call to its durable reply, waiting included",
            Unit::Seconds,
            decisions.clone(),
        );
        let commits = Family::new_with_constructor(seconds as fn() -> Histogram);
        registry.register_with_unit(
            "commit",
            "The store's transactions",
            Unit::Seconds,
            commits.clone(),
        );
        let batch = Histogram::new(exponential_buckets(1.0, 2.0, 8));
        registry.register(
            "commit_calls",
            "Calls made durable by one transaction",
            batch.clone(),
        );
        let turned_away = Counter::default();
        registry.register(
            "connections_turned_away",
            "Connections without a known token that were closed to make room",
            turned_away.clone(),
        );
        let limited = Family::default();
        registry.register(
            "requests_limited",
            "Requests refused by the rate limit of their token, or of their address without a \
                token",
            limited.clone(),
        );
        let levels = Levels::default();
        levels.register(&mut registry);
        let faulty = Family::default();
        registry.register(
            "faults",
            "Hosts, ports, tokens, owners, reservations or callers with this fault",
            faulty.clone(),
        );
        Self(Arc::new(Inner {
            registry,
            requests,
            seconds: by_route,
            decisions,
            commits,
            batch,
            turned_away,
            limited,
            levels,
            faulty,
            faults: Board::default(),
        }))
    }

    /// Returns the function that observes each commit of a store.
    pub fn observer(&self) -> impl FnMut(&CommitReport) + Send + use<> {
        let metrics = self.clone();
        move |committed| {
            let outcome = committed
                .error
                .as_ref()
                .map_or("ok", |error| error.code().word());
            metrics.0.faults.note_commit(committed);
            if committed.is_check {
                return;
            }
            let histogram = metrics.0.commits.get_or_create(&CommitLabels { outcome });
            histogram.observe(committed.took.as_secs_f64());
            metrics.0.batch.observe(committed.calls as f64);
        }
    }

    /// Returns the present faults.
    pub(super) fn faults(&self) -> &Board {
        &self.0.faults
    }

    /// Counts connections that were closed to make room.
    pub(super) fn turned_away(&self, count: usize) {
        let before = self.0.turned_away.inc_by(count as u64);
        let total = before + count as u64;
        // At the first, and then more and more rarely.
        if total.ilog2() > before.checked_ilog2().unwrap_or_default() || before == 0 {
            tracing::warn!(
                total,
                "connections run short: the oldest without a known token were closed"
            );
        }
    }

    /// Counts a request that was refused because its `token` or `address` exceeds its rate.
    pub(super) fn limited(&self, by: &'static str) {
        self.0.limited.get_or_create(&LimitLabels { by }).inc();
    }

    /// Counts an answered call. Returns how it ended, in a word.
    pub(super) fn decided(
        &self,
        command: &'static str,
        error: Option<Code>,
        took: Duration,
    ) -> &'static str {
        let outcome = error.map_or("ok", Code::word);
        let labels = DecisionLabels { command, outcome };
        let histogram = self.0.decisions.get_or_create(&labels);
        histogram.observe(took.as_secs_f64());
        outcome
    }
}

/// Counts and times every request.
pub(super) async fn measure(
    State(app): State<Arc<App>>,
    path: Option<MatchedPath>,
    request: Request,
    next: Next,
) -> Response {
    // Whatever else is asked for, from outside, is one time series.
    let route = path.map_or_else(|| "unknown".to_owned(), |path| path.as_str().to_owned());
    let method = match request.method().as_str() {
        known @ ("GET" | "HEAD" | "POST" | "PUT" | "PATCH" | "DELETE") => known,
        _ => "other",
    }
    .to_owned();
    let answering = RequestTrace::begin(&app, &route, request.headers());
    let begin = Instant::now();
    let response = match &answering {
        Some(answering) => answering.within(next.run(request)).await,
        None => next.run(request).await,
    };
    let took = begin.elapsed();
    let status = response.status().as_u16();
    tracing::debug!(%method, %route, status, ?took, "answered");
    if let Some(answering) = answering {
        answering.end(&method, &route, status, took);
    }
    let metrics = &app.metrics.0;
    let labels = Route { method, route };
    metrics
        .seconds
        .get_or_create(&labels)
        .observe(took.as_secs_f64());
    let Route { method, route } = labels;
    metrics
        .requests
        .get_or_create(&AnswerLabels {
            method,
            route,
            status,
        })
        .inc();
    response
}

/// Counters, histograms and levels for Prometheus.
#[utoipa::path(
    get, path = "/metrics", tag = "service",
    responses(
        (status = 200, description = "OpenMetrics text", content_type = "application/openmetrics-text", body = String),
        super::problem::Guarded,
    )
)]
pub(super) async fn metrics(State(app): State<Arc<App>>) -> Result<Response, ApiError> {
    let whole = {
        let app = Arc::clone(&app);
        move || page(&app)
    };
    let page = app.pool.ask(Payer::Operators, whole).await?;
    let page = page.map_err(|error| {
        ApiError::new(
            Code::Store,
            format!("the metrics cannot be formatted: {error}"),
        )
    })?;
    Ok(([(CONTENT_TYPE, OPEN_METRICS)], page).into_response())
}

/// Returns all metrics in text, as of now. The time grows with the number of hosts: the caller is a thread
/// that serves no connection.
pub(super) fn page(app: &App) -> Result<String, std::fmt::Error> {
    let status = app.status();
    let levels = &app.metrics.0.levels;
    let hosts = app.service.question(Ledger::hosts_by_word);
    for (gauge, value) in [
        (&levels.tenants, status.tenants),
        (&levels.slots, status.slots),
        (&levels.used, status.used),
        (&levels.hosts, status.hosts),
        (&levels.open_hosts, status.open_hosts),
        (&levels.revision, status.revision),
        (&levels.leader, u64::from(status.role == Role::Leader)),
        (&levels.streams, app.open_streams() as u64),
        (&levels.connections, app.connections.open() as u64),
        (&levels.words.other_classes, hosts.other_classes),
        (&levels.words.late, hosts.late),
        (&levels.pending, status.pending),
        (&levels.degraded, status.degraded),
        (&levels.words.following, hosts.following),
        (&levels.words.refusing, hosts.refusing),
        (&levels.words.silent, hosts.silent),
        (&levels.words.unheard, hosts.unheard),
        (&levels.words.short_of_cpu, hosts.short_of_cpu),
        (&levels.words.with_unpromised, hosts.with_unpromised),
        (&levels.ahead, app.report_times.ahead()),
    ] {
        gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
    }
    let faults = app.metrics.faults().counts();
    for kind in FaultKind::ALL {
        let gauge = app
            .metrics
            .0
            .faulty
            .get_or_create(&Faulty { fault: kind.word() });
        let count = faults.get(&kind).copied().unwrap_or_default();
        gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
    }
    for (gauge, thousandths) in [
        (&levels.cpu.reserved, hosts.reserved_cpu),
        (&levels.cpu.reservable, hosts.reservable_cpu),
        (&levels.cpu.unpromised, hosts.unpromised_cpu),
    ] {
        gauge.set(thousandths as f64 / 1_000.0);
    }
    let mut out = String::new();
    text::encode(&mut out, &app.metrics.0.registry)?;
    Ok(out)
}

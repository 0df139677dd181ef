//! The faults that this replica knows of: found anew at intervals, and noted with their begins.

use super::App;
use super::problem::{ApiError, Guarded};
use crate::expiry::Expiry;
use crate::fair::Payer;
use crate::ledger::{FoundFaults, Ledger, faults};
use crate::service::CommitReport;
use crate::store::StoreError;
use axum::Json;
use axum::extract::State;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tailbound_api::{Fault, FaultKind, Faults, Role};
use tokio::task::JoinHandle;

/// The shortest interval of searches.
const INTERVAL: Duration = Duration::from_millis(250);
/// The longest pause between two searches.
const MAX_PAUSE: Duration = Duration::from_secs(2);
/// The part of the time that searches may take while pauses are shorter, as its inverse.
const SHARE: u32 = 20;
/// The interval of checks whether the store keeps commits, while nothing is known to be wrong.
const STORE_CHECK: Duration = Duration::from_mins(1);
/// The interval of these checks after an error.
const STORE_RETRY: Duration = Duration::from_secs(5);
/// The number of searches between two examinations of all ports.
const PORTS_EACH: u32 = 240;
/// The time for which the cancellation of a reservation may be late.
const OVERDUE: Duration = Duration::from_secs(10);
/// The time before a certificate's end from which on it is a fault.
const RENEWAL: u64 = 7 * 86_400;

/// The present faults, and what is known of the store and the certificate.
#[derive(Debug, Default)]
pub(super) struct Board(Mutex<BoardState>);

#[derive(Debug, Default)]
struct BoardState {
    faults: Vec<Fault>,
    /// The error of the last commit.
    store: Option<StoreError>,
    /// The end of the certificate's validity.
    certificate: Option<Expiry>,
}

impl Board {
    fn lock(&self) -> MutexGuard<'_, BoardState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the outcome of a commit or of a check. One that wrote nothing and succeeded proves nothing.
    pub(super) fn note_commit(&self, committed: &CommitReport) {
        if committed.error.is_some() || committed.wrote {
            let error = committed.error.clone();
            self.lock().store = error.filter(|it| *it != StoreError::NotLeader);
        }
    }

    /// Returns the error of the last commit.
    fn store_error(&self) -> Option<StoreError> {
        self.lock().store.clone()
    }

    /// Returns the damage that a commit found in the store.
    pub(super) fn damage(&self) -> Option<StoreError> {
        let error = self.store_error();
        error.filter(|error| matches!(error, StoreError::Corrupt(_)))
    }

    /// Notes the end of the certificate's validity.
    pub(super) fn note_certificate(&self, end: Option<Expiry>) {
        self.lock().certificate = end;
    }

    /// Returns the number of things with each kind of fault.
    pub(super) fn counts(&self) -> BTreeMap<FaultKind, u64> {
        let known = self.lock();
        let faults = known.faults.iter();
        faults.map(|fault| (fault.kind, fault.count)).collect()
    }

    /// Replaces the faults by the ones found at `now`, in seconds since 1970. A fault that was there
    /// before keeps its begin. Returns the kinds that have begun, and those that have ended.
    fn replace(&self, found: FoundFaults, now: u64) -> (Vec<Fault>, Vec<FaultKind>) {
        let mut known = self.lock();
        let before: BTreeMap<_, _> = known.faults.iter().map(|it| (it.kind, it.since)).collect();
        let faults = found.0.into_iter().map(|(kind, found)| Fault {
            kind,
            count: found.count,
            names: found.names,
            since: found
                .since
                .or_else(|| before.get(&kind).copied())
                .unwrap_or(now),
            why: found.why,
        });
        known.faults = faults.collect();
        let fresh = known
            .faults
            .iter()
            .filter(|it| !before.contains_key(&it.kind));
        let fresh = fresh.cloned().collect();
        let stays = |kind: &FaultKind| known.faults.iter().any(|it| it.kind == *kind);
        let ended = before.into_keys().filter(|kind| !stays(kind)).collect();
        (fresh, ended)
    }
}

fn today() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default().as_secs()
}

/// Searches for faults as long as this task runs, and logs their begins and ends.
pub(super) async fn watch(app: Arc<App>) {
    let mut ports = Ports::default();
    let mut check = StoreCheck::default();
    loop {
        check.start_if_due(&app);
        let begin = Instant::now();
        if let Some(found_faults) = find(&app, &mut ports).await {
            let (fresh, ended) = app.metrics.faults().replace(found_faults, today());
            for fault in fresh {
                tracing::warn!(
                    fault = fault.kind.word(),
                    count = fault.count,
                    names = fault.names.join(" "),
                    why = fault.why,
                    "a fault has begun"
                );
            }
            for kind in ended {
                tracing::info!(fault = kind.word(), "a fault has ended");
            }
        }
        let pause = begin.elapsed() * SHARE;
        tokio::time::sleep(pause.clamp(INTERVAL, MAX_PAUSE)).await;
    }
}

/// The checks whether the store keeps commits: a full disk is a fault before the first change fails.
#[derive(Debug, Default)]
struct StoreCheck {
    /// The begin of the last one while this service leads.
    begun: Option<Instant>,
    running: Option<JoinHandle<()>>,
}

impl StoreCheck {
    fn start_if_due(&mut self, app: &Arc<App>) {
        if app.service.role() == Role::Follower {
            self.begun = None;
            return;
        }
        let pause = match app.metrics.faults().store_error() {
            None => STORE_CHECK,
            Some(_) => STORE_RETRY,
        };
        let is_running = |task: &JoinHandle<()>| !task.is_finished();
        if self.begun.is_some_and(|begun| begun.elapsed() < pause)
            || self.running.as_ref().is_some_and(is_running)
        {
            return;
        }
        self.begun = Some(Instant::now());
        let service = app.service.clone();
        self.running = Some(tokio::spawn(async move {
            // An error means that the service is ending.
            let _ = service.check_store().await;
        }));
    }
}

/// The overloaded ports, which are not examined each time.
#[derive(Debug, Default)]
struct Ports {
    searches: u32,
    /// The revision of the topology when they were examined.
    topology: Option<u64>,
    found: FoundFaults,
}

/// Returns all faults; None if the search itself was refused.
async fn find(app: &App, ports: &mut Ports) -> Option<FoundFaults> {
    let now = today();
    let topology = app.service.read(|ledger| ledger.topology().revision);
    ports.searches = ports.searches.wrapping_add(1);
    let are_due = ports.topology != Some(topology)
        || !ports.found.0.is_empty()
        || ports.searches.is_multiple_of(PORTS_EACH);
    let (service, tokens) = (app.service.clone(), app.tokens());
    let quotas = tokens.clone();
    let question = move || {
        service.question(|ledger| {
            let quota = |owner: &str| {
                quotas
                    .as_ref()
                    .map_or_else(Default::default, |it| it.quota(owner))
            };
            let found_faults = faults::faults(ledger, now, quota);
            (found_faults, are_due.then(|| overloaded(ledger)))
        })
    };
    let (mut found_faults, examined) = app.pool.ask(Payer::Operators, question).await.ok()?;
    if let Some(examined) = examined {
        (ports.topology, ports.found) = (Some(topology), examined);
    }
    found_faults.0.extend(ports.found.0.clone());
    for (name, end) in tokens.iter().flat_map(|tokens| tokens.expired()) {
        let why = "its validity has ended; remove it from the tokens file".to_owned();
        found_faults.add(FaultKind::TokensExpired, name, &why, Some(end));
    }
    add_replica(app, &mut found_faults);
    add_limits(app, &mut found_faults);
    add_files(app, &mut found_faults, now);
    Some(found_faults)
}

fn overloaded(ledger: &Ledger) -> FoundFaults {
    let mut overloads = FoundFaults::default();
    faults::add_ports(ledger, &mut overloads);
    overloads
}

/// Adds the faults of this replica's store and of its path to the leader.
fn add_replica(app: &App, found_faults: &mut FoundFaults) {
    let leads = app.service.role() == Role::Leader;
    let board = app.metrics.faults();
    // A service without replicas stops leading when its store is damaged.
    let is_its_own = leads || (app.replica.is_none() && board.damage().is_some());
    if let Some(error) = board.store_error().filter(|_| is_its_own) {
        let kind = match error {
            StoreError::NoSpace => FaultKind::StoreFull,
            StoreError::Corrupt(_) => FaultKind::StoreDamaged,
            _ => FaultKind::StoreFails,
        };
        found_faults.add(kind, "store", &error, None);
    }
    for host in app.report_times.names_ahead() {
        let why = "it follows a change that this store does not have".to_owned();
        found_faults.add(FaultKind::HostsAhead, &host, &why, None);
    }
    for (host, ms) in app.report_times.wrong_clocks(tokio::time::Instant::now()) {
        let how = if ms > 0 { "ahead of" } else { "behind" };
        let seconds = ms.unsigned_abs() / 1_000;
        let why = format!("its clock is {seconds} s {how} the service's");
        found_faults.add(FaultKind::HostsWithWrongClock, &host, &why, None);
    }
    let Some(replica) = app.replica.as_ref().filter(|_| !leads) else {
        return;
    };
    let leader = replica.leadership().leader;
    let Err(why) = replica.check_ready() else {
        return;
    };
    let (kind, name) = match leader {
        _ if replica.stale_for().is_some() => (FaultKind::ReplicaStale, "store".to_owned()),
        None => (FaultKind::NoLeader, "replicas".to_owned()),
        Some(leader) => (FaultKind::LeaderUnreachable, leader),
    };
    found_faults.add(kind, &name, &why, None);
}

/// Adds the limits that are reached: streams, queries and times to live.
fn add_limits(app: &App, found_faults: &mut FoundFaults) {
    if app.streams.available_permits() == 0 {
        let why = format!(
            "{} streams of guarantees are open (--streams)",
            app.most_streams
        );
        found_faults.add(FaultKind::StreamsFull, "guarantees", &why, None);
    }
    for payer in app.event_streams.full() {
        let why = "all streams of changes that one caller may have are open".to_owned();
        found_faults.add(FaultKind::StreamsFull, &payer.to_string(), &why, None);
    }
    for payer in app.pool.refused_lately() {
        let why = "its long queries were refused, because too many wait".to_owned();
        found_faults.add(FaultKind::QueriesRefused, &payer.to_string(), &why, None);
    }
    // A cancellation that a faulty store refuses is a consequence.
    let keeps = app.metrics.faults().store_error().is_none();
    if keeps && app.service.role() == Role::Leader {
        for id in app.service.overdue(OVERDUE) {
            let why = "its time to live has ended, and its cancellation is not kept".to_owned();
            found_faults.add(FaultKind::ReservationsOverdue, &id.to_string(), &why, None);
        }
    }
}

fn add_files(app: &App, found_faults: &mut FoundFaults, now: u64) {
    let end = app.metrics.faults().lock().certificate;
    if let Some(end) = end.filter(|end| end.seconds() < now + RENEWAL) {
        let ends = if end.is_past() { "ended" } else { "ends" };
        let why = format!("its validity {ends} at {end}");
        found_faults.add(FaultKind::CertificateExpires, "certificate", &why, None);
    }
}

/// Returns the faults that this replica knows of.
///
/// Each has one cause. The replica searches four times a second; if searches are slow, every two seconds.
#[utoipa::path(
    get, path = "/v1/faults", tag = "service", operation_id = "get_faults",
    responses((status = 200, description = "All faults by kind", body = Faults), Guarded)
)]
pub(super) async fn list(State(app): State<Arc<App>>) -> Result<Json<Faults>, ApiError> {
    let faults = app.metrics.faults().lock().faults.clone();
    Ok(Json(Faults {
        time: today(),
        faults,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_keeps_its_begin_until_it_has_ended() {
        let board = Board::default();
        let found = |kinds: &[FaultKind]| {
            let mut found = FoundFaults::default();
            for kind in kinds {
                found.add(*kind, "a", &"why", None);
            }
            found
        };
        let (full, late) = (FaultKind::StoreFull, FaultKind::HostsLate);
        let kinds = |faults: &[Fault]| faults.iter().map(|it| it.kind).collect::<Vec<_>>();
        let (fresh, ended) = board.replace(found(&[full]), 10);
        assert_eq!((kinds(&fresh), ended), (vec![full], vec![]));
        let (fresh, ended) = board.replace(found(&[full, late]), 20);
        assert_eq!((kinds(&fresh), ended), (vec![late], vec![]));
        let since: Vec<_> = board.lock().faults.iter().map(|it| it.since).collect();
        assert_eq!(since, [10, 20]);
        let (fresh, ended) = board.replace(found(&[late]), 30);
        assert_eq!((kinds(&fresh), ended), (vec![], vec![full]));
        assert_eq!(board.counts(), BTreeMap::from([(late, 1)]));
    }
}

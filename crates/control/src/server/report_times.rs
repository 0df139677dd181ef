//! Times of the hosts' last reports, at the leader. Reports without changes are recorded here only;
//! a missing report marks its host as silent in the ledger.

use super::App;
use super::access;
use super::extract::{PathName, SentAt, Write};
use super::problem::{self, Absent, ApiError, Guarded, Stored};
use crate::fair::Payer;
use crate::ledger::{Call, Command, Ledger, Reply};
use axum::extract::State;
use axum::http::StatusCode;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tailbound_api::{Code, HostMeasured, HostReport, Role, Tenant, WorstMeasurements};
use tokio::time::Instant;

/// The time without a report after which a host is silent: three times the longest interval of
/// reports. It also applies after a start or a change of the leader.
const SILENCE: Duration = Duration::from_secs(30);
/// The interval of the search for silent hosts.
const SILENCE_CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// The maximum number of silent hosts in one transaction.
const AT_ONCE: usize = 32;
/// The minimum interval of reports with changes, because each is a write to the store.
const NEWS: Duration = Duration::from_secs(1);
/// Largest number of reports with changes in a burst.
const BURST: u32 = 16;
/// The largest difference in milliseconds between a host's clock and the service's that is no fault. A
/// host ends a report without an answer after 10 s, so a delay explains no larger difference.
const CLOCK_TOLERANCE_MS: u64 = 10_000;

/// The times of the hosts' last reports.
#[derive(Debug, Default)]
pub(super) struct ReportTimes(Mutex<HashMap<String, Beat>>);

#[derive(Debug, Clone)]
struct Beat {
    at: Instant,
    revision: u64,
    /// Recent measurements, which are not stored.
    measured: Option<HostMeasured>,
    /// The host follows a change that this store never made.
    is_ahead: bool,
    /// The milliseconds by which the host's clock is ahead of the service's; 0 if it is not known.
    clock_ms: i64,
    /// The token-bucket time up to which reports with changes are accounted.
    news: Instant,
}

/// The parts of a report that are not stored.
#[derive(Debug, Default)]
struct VolatileReport {
    revision: u64,
    measured: Option<HostMeasured>,
    is_ahead: bool,
    clock_ms: i64,
}

impl ReportTimes {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Beat>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a report of an existing host. Returns whether the host is ahead of the store since
    /// this report.
    fn note(&self, host: &str, latest: VolatileReport, now: Instant) -> bool {
        let mut beats = self.lock();
        let beat = beats.entry(host.to_owned()).or_insert(Beat {
            at: now,
            revision: 0,
            measured: None,
            is_ahead: false,
            clock_ms: 0,
            news: now,
        });
        let begins = latest.is_ahead && !beat.is_ahead;
        beat.at = now;
        beat.revision = latest.revision;
        beat.measured = latest.measured;
        beat.is_ahead = latest.is_ahead;
        beat.clock_ms = latest.clock_ms;
        begins
    }

    /// Returns the number of hosts that follow changes which this store never made.
    pub(super) fn ahead(&self) -> u64 {
        let beats = self.lock();
        beats.values().filter(|beat| beat.is_ahead).count() as u64
    }

    /// Returns the names of these hosts, in ascending order.
    pub(super) fn names_ahead(&self) -> Vec<String> {
        let beats = self.lock();
        let ahead = beats.iter().filter(|(_, beat)| beat.is_ahead);
        let mut names: Vec<_> = ahead.map(|(host, _)| host.clone()).collect();
        names.sort_unstable();
        names
    }

    /// Returns the hosts with a wrong clock that are not silent at `now`, in ascending order, with the
    /// milliseconds by which each is ahead of the service's clock.
    pub(super) fn wrong_clocks(&self, now: Instant) -> Vec<(String, i64)> {
        let beats = self.lock();
        let wrong = beats.iter().filter(|(_, beat)| {
            beat.clock_ms.unsigned_abs() > CLOCK_TOLERANCE_MS
                && now.duration_since(beat.at) < SILENCE
        });
        let mut wrong: Vec<_> = wrong
            .map(|(host, beat)| (host.clone(), beat.clock_ms))
            .collect();
        wrong.sort_unstable();
        wrong
    }

    /// Returns true if the rate limit admits a report with changes of this host.
    fn may_tell(&self, host: &str, now: Instant) -> bool {
        let mut beats = self.lock();
        let Some(beat) = beats.get_mut(host) else {
            return true;
        };
        let paid = beat.news.max(now);
        let passes = paid.duration_since(now) <= NEWS * (BURST - 1);
        if passes {
            beat.news = paid + NEWS;
        }
        passes
    }

    /// Returns the last reported revision of a host; `None` without a report at this replica.
    pub(super) fn revision(&self, host: &str) -> Option<u64> {
        Some(self.lock().get(host)?.revision)
    }

    /// Returns the measurements of a tenant's hosts that are not silent at `now`.
    pub(super) fn measured(&self, tenant: &Tenant, now: Instant) -> Option<WorstMeasurements> {
        let beats = self.lock();
        let hosts: BTreeSet<_> = tenant.runs.iter().map(|run| &*run.host).collect();
        let measurements = hosts.iter().filter_map(|host| {
            let beat = beats.get(*host)?;
            let measured = beat.measured.as_ref()?;
            (now.duration_since(beat.at) < SILENCE).then_some((*host, measured))
        });
        WorstMeasurements::of(tenant.id, &measurements.collect::<Vec<_>>())
    }

    /// Returns the silent ones of these hosts, and the durations.
    fn silent<'a>(
        &self,
        hosts: impl Iterator<Item = &'a str>,
        since: Instant,
        now: Instant,
    ) -> Vec<(String, Duration)> {
        let beats = self.lock();
        let last = |host: &str| beats.get(host).map_or(since, |beat| beat.at.max(since));
        let silent = hosts.map(|host| (host, now.duration_since(last(host))));
        silent
            .filter(|(_, silence)| *silence >= SILENCE)
            .map(|(host, silence)| (host.to_owned(), silence))
            .collect()
    }

    /// Clears all records.
    fn clear(&self) {
        self.lock().clear();
    }
}

/// Searches for silent hosts on the leader, as long as this task runs.
pub(super) async fn watch(app: Arc<App>) {
    let mut leads_since: Option<Instant> = None;
    loop {
        tokio::time::sleep(SILENCE_CHECK_INTERVAL).await;
        if app.service.role() != Role::Leader {
            // What it heard as the leader is old when it is that again.
            if leads_since.take().is_some() {
                app.report_times.clear();
            }
            continue;
        }
        let now = Instant::now();
        let since = *leads_since.get_or_insert(now);
        // Of many hosts this takes long, so it is no query of a thread that serves connections.
        let question = {
            let app = Arc::clone(&app);
            move || {
                app.service
                    .question(|ledger| app.report_times.silent(ledger.speaking(), since, now))
            }
        };
        let Ok(silent) = app.pool.ask(Payer::Operators, question).await else {
            continue;
        };
        let today = SystemTime::now().duration_since(UNIX_EPOCH);
        let today = today.unwrap_or_default();
        for some in silent.chunks(AT_ONCE) {
            let hosts: Vec<_> = some
                .iter()
                .map(|(host, silence)| (host.clone(), today.saturating_sub(*silence).as_secs()))
                .collect();
            tracing::warn!(hosts = hosts.len(), first = hosts[0].0, "hosts are silent");
            let call = Call::of_service(Command::Silence { hosts });
            if let Err(error) = app.service.call(call).await {
                tracing::warn!(%error, "that they are silent could not be kept; it is tried again");
            }
        }
    }
}

/// Records the report of a host.
///
/// A report has the host's limits, the revision that it follows, and the guarantees that it
/// refuses. A host sends it after each change and every ten seconds; without a report for 30
/// seconds it is silent. Changes are durable, at most one a second for each host. The optional header
/// `Tailbound-Time-Ms` has the host's time of day as it sent the report, in milliseconds since 1970.
#[utoipa::path(
    post, path = "/v1/hosts/{name}/report", tag = "hosts", operation_id = "report_host",
    params(
        ("name" = String, Path, description = "The host's name", example = "a-1"),
    ),
    request_body = HostReport,
    responses((status = 204, description = "Recorded"), Guarded, Absent, problem::Body, Stored)
)]
pub(super) async fn report(
    State(app): State<Arc<App>>,
    PathName(host): PathName,
    SentAt(sent): SentAt,
    Write { body, author }: Write<HostReport>,
) -> Result<StatusCode, ApiError> {
    access::check_host(author.by(), &host)?;
    body.check()
        .map_err(|message| ApiError::new(Code::Absurd, message))?;
    let known = |ledger: &Ledger| {
        let is_host = ledger.host_exists(&host);
        let last = ledger.last_change();
        is_host.then(|| (ledger.is_news(&host, &body), ledger.tenants_at(&host), last))
    };
    let Some((is_news, here, last)) = app.service.read(known) else {
        return Err(ApiError::not_found(format!("there is no host {host:?}")));
    };
    let now = Instant::now();
    let measured = body.measured.clone().map(|mut measured| {
        measured
            .waited
            .retain(|of| here.binary_search(&of.tenant).is_ok());
        measured
    });
    let latest = VolatileReport {
        revision: body.revision,
        measured,
        is_ahead: body.change > last,
        clock_ms: sent.map_or(0, |sent| milliseconds_ahead(sent, SystemTime::now())),
    };
    if app.report_times.note(&host, latest, now) {
        tracing::error!(
            host,
            change = body.change,
            last,
            "the host follows a later change than the store has: if several hosts do, the store has \
                lost admissions, as after the restore of an old etcd snapshot"
        );
    }
    if !is_news {
        return Ok(StatusCode::NO_CONTENT);
    }
    if !app.report_times.may_tell(&host, now) {
        // It says so again within ten seconds.
        return Ok(StatusCode::NO_CONTENT);
    }
    let fabric = app.service.read(Ledger::classes);
    if let Some(theirs) = body.classes().filter(|theirs| *theirs != fabric) {
        tracing::error!(
            host,
            %theirs,
            topology = %fabric,
            "the host's classes differ from the topology's: it enforces no guarantees, gets no \
                machines, and the guarantees of its machines do not hold; make its `[classes]` \
                equal to the topology's `classes`"
        );
    }
    let report = Box::new(body);
    match app.decide(author, Command::Report { host, report }).await? {
        Reply::Noted => Ok(StatusCode::NO_CONTENT),
        other => Err(problem::unexpected(&other)),
    }
}

/// Returns by how many milliseconds a time of day since 1970 is ahead of a clock.
fn milliseconds_ahead(sent_ms: u64, clock: SystemTime) -> i64 {
    let clock = clock.duration_since(UNIX_EPOCH).unwrap_or_default();
    let clock = i64::try_from(clock.as_millis()).unwrap_or(i64::MAX);
    i64::try_from(sent_ms).unwrap_or(i64::MAX) - clock
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_host_is_silent_30_seconds_after_its_last_report() {
        let heard = ReportTimes::default();
        let start = Instant::now();
        let hosts = || ["a", "b"].into_iter();
        tokio::time::advance(Duration::from_secs(10)).await;
        let report = VolatileReport {
            revision: 7,
            ..VolatileReport::default()
        };
        heard.note("a", report, Instant::now());
        assert_eq!((heard.revision("a"), heard.revision("b")), (Some(7), None));
        let silent = |at: u64| heard.silent(hosts(), start, start + Duration::from_secs(at));
        assert_eq!(silent(29), []);
        assert_eq!(silent(31), [("b".to_owned(), Duration::from_secs(31))]);
        assert_eq!(silent(41).len(), 2);
        // Another leader heard nobody yet.
        let later = start + Duration::from_mins(1);
        assert_eq!(
            heard.silent(hosts(), later, later + SILENCE_CHECK_INTERVAL),
            []
        );
    }

    #[tokio::test(start_paused = true)]
    async fn news_are_as_rare_as_the_store_can_take_and_never_stop() {
        let heard = ReportTimes::default();
        for host in ["a", "b"] {
            heard.note(host, VolatileReport::default(), Instant::now());
        }
        let mut passed = 0;
        for _ in 0..10_000 {
            passed += u32::from(heard.may_tell("a", Instant::now()));
            tokio::time::advance(Duration::from_millis(10)).await;
        }
        assert!((100..=100 + BURST + 1).contains(&passed), "{passed}");
        assert!(heard.may_tell("b", Instant::now()), "of another host");
    }

    #[tokio::test(start_paused = true)]
    async fn a_clock_is_wrong_beyond_the_tolerance_until_its_host_is_silent() {
        let heard = ReportTimes::default();
        let clock = UNIX_EPOCH + Duration::from_secs(1_000);
        let now = Instant::now();
        for (host, sent) in [
            ("exact", 1_000_000),
            ("late", 990_000),
            ("behind", 989_999),
            ("ahead", 1_010_001),
            ("unset", 0),
        ] {
            let report = VolatileReport {
                clock_ms: milliseconds_ahead(sent, clock),
                ..VolatileReport::default()
            };
            heard.note(host, report, now);
        }
        let wrong = [
            ("ahead", 10_001),
            ("behind", -10_001),
            ("unset", -1_000_000),
        ];
        let wrong = wrong.map(|(host, ms)| (host.to_owned(), ms));
        assert_eq!(heard.wrong_clocks(now), wrong);
        heard.note("ahead", VolatileReport::default(), now);
        assert_eq!(heard.wrong_clocks(now), wrong[1..]);
        assert_eq!(heard.wrong_clocks(now + SILENCE), []);
        assert_eq!(milliseconds_ahead(u64::MAX, UNIX_EPOCH), i64::MAX);
    }

    #[test]
    fn a_host_that_is_ahead_is_counted_and_logged_once() {
        let heard = ReportTimes::default();
        let report = |host, is_ahead| {
            let report = VolatileReport {
                is_ahead,
                ..VolatileReport::default()
            };
            heard.note(host, report, Instant::now())
        };
        assert!(!report("a", false) && report("b", true));
        assert!(!report("b", true), "it is logged again");
        assert_eq!(heard.ahead(), 1);
        assert!(!report("b", false) && report("b", true));
        heard.clear();
        assert_eq!(heard.ahead(), 0);
    }
}

//! Results of a probe, as data: the final document and the lines before it.

use hdrhistogram::Histogram;
use serde::Serialize;
use std::time::SystemTime;
use tailbound_probe::run::sleeper::SleeperResult;
use tailbound_probe::{Config, Counts, NodeVerdict, Note, StealFault, Stop, worst};
use tailbound_report::{Stats, human};
use tailbound_units::Nanos;

/// Version of these formats. An added field does not change it.
pub(super) const SCHEMA: u32 = 1;

/// Results of a whole run.
#[derive(Debug, Serialize)]
pub(super) struct Document {
    /// The host name of the guest.
    pub(super) node: String,
    /// The verdict of the worst vCPU.
    pub(super) verdict: NodeVerdict,
    /// The verdict line.
    pub(super) line: String,
    pub(super) kernel: String,
    /// Start of the run, in seconds since 1970.
    pub(super) start_unix_s: f64,
    pub(super) config: ConfigDocument,
    pub(super) cpus: Vec<CpuDocument>,
}

/// Configuration of the run.
#[derive(Debug, Clone, Serialize)]
pub(super) struct ConfigDocument {
    sleep_ns: u64,
    samples: u64,
    span_ns: u64,
    late_ns: u64,
    low_mark: u64,
    high_mark: u64,
    exact: bool,
    /// Confidence of an early GOOD; `None` with `exact`.
    confidence: Option<f64>,
    busy: f64,
    time_limit_ns: u64,
}

impl From<&Config> for ConfigDocument {
    fn from(config: &Config) -> Self {
        let confidence = match config.stop {
            Stop::Early { confidence } => Some(confidence),
            Stop::Exact => None,
        };
        Self {
            sleep_ns: config.sleep.as_nanos(),
            samples: config.samples,
            span_ns: config.span.as_nanos(),
            late_ns: config.late.as_nanos(),
            low_mark: config.low_mark,
            high_mark: config.high_mark,
            exact: confidence.is_none(),
            confidence,
            busy: config.busy,
            time_limit_ns: config.time_limit.as_nanos(),
        }
    }
}

/// Results of one vCPU.
#[derive(Debug, Serialize)]
pub(super) struct CpuDocument {
    pub(super) cpu: u32,
    pub(super) verdict: NodeVerdict,
    pub(super) reason: String,
    #[serde(flatten)]
    pub(super) counts: Counts,
    /// Share of the vCPU that others in this guest used.
    pub(super) busy: Option<f64>,
    /// Share of the vCPU that the probe's own thread used.
    pub(super) cost: f64,
    pub(super) elapsed_ns: u64,
    /// Further remarks.
    pub(super) notes: Vec<String>,
    /// Durations of the sleeps.
    pub(super) sleep_ns: Stats,
}

impl CpuDocument {
    pub(super) fn new(finished: &SleeperResult, sleeps: &Histogram<u64>) -> Self {
        let elapsed = finished.elapsed;
        Self {
            cpu: finished.cpu,
            verdict: finished.verdict.outcome,
            reason: finished.verdict.reason.to_string(),
            counts: finished.counts,
            busy: finished.busy,
            cost: share(finished.used, elapsed),
            elapsed_ns: elapsed.as_nanos(),
            notes: finished.notes.iter().map(note).collect(),
            sleep_ns: Stats::from_histogram(sleeps),
        }
    }
}

/// State of one vCPU during the run.
#[derive(Debug, Serialize)]
pub(super) struct Interval {
    pub(super) cpu: u32,
    /// Time since the start.
    pub(super) at_ns: u64,
    /// Counts since the start.
    #[serde(flatten)]
    pub(super) counts: Counts,
    /// Durations of the sleeps of this interval.
    pub(super) sleep_ns: Stats,
}

/// Returns the node's verdict and its line, from those of its vCPUs.
pub(super) fn node_verdict(finished: &[SleeperResult]) -> (NodeVerdict, String) {
    // At least one sleeper was started.
    let verdicts = finished.iter().map(|finished| finished.verdict.outcome);
    worst(verdicts).map_or((NodeVerdict::Inconclusive, String::new()), |place| {
        let SleeperResult { cpu, verdict, .. } = &finished[place];
        let outcome = verdict.outcome;
        (outcome, format!("{outcome}  CPU {cpu}: {}", verdict.reason))
    })
}

/// The host name of this guest.
pub(super) fn node_name() -> String {
    uname(rustix::system::Uname::nodename)
}

/// Returns the version of the guest's kernel.
pub(super) fn kernel() -> String {
    uname(rustix::system::Uname::release)
}

fn uname(field: impl Fn(&rustix::system::Uname) -> &std::ffi::CStr) -> String {
    field(&rustix::system::uname())
        .to_string_lossy()
        .into_owned()
}

/// Returns seconds since 1970.
pub(super) fn unix(time: SystemTime) -> f64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or_default().as_secs_f64()
}

fn share(part: Nanos, whole: Nanos) -> f64 {
    part.as_nanos() as f64 / whole.as_nanos().max(1) as f64
}

fn note(note: &Note) -> String {
    match note {
        Note::NoWait => "the run-queue wait cannot be read (no /proc, or a kernel without \
            schedstats): late sleeps of this guest's own making count against its neighbours"
            .into(),
        Note::NoCpu => {
            "/proc/stat cannot be read: neither steal nor this guest's own load is known".into()
        }
        Note::NoSteal => "steal is 0 since boot: there is none, or the hypervisor reports none, \
            and what it steals is unexplained"
            .into(),
        Note::Steal(StealFault::Backwards) => {
            "steal went back: it is not believed, what was stolen is unexplained".into()
        }
        Note::Steal(StealFault::MoreThanTime) => "steal grew by more than the time that passed: \
            it is not believed, what was stolen is unexplained"
            .into(),
        Note::Quota { runtime, period } => format!(
            "the CPU quota of this control group, {runtime} in {period}, was used up meanwhile: it \
             stops all threads of the group, and no neighbour can be blamed"
        ),
        Note::Pause(time) => format!(
            "one sleep took {}: the guest was paused or migrated, or its clock set",
            human(time.as_nanos() as f64, "ns")
        ),
    }
}

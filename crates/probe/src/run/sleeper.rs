//! The thread that sleeps on one vCPU.
//!
//! Between two sleeps it reads the clock twice, records into an existing histogram, and makes no
//! other system call, except the few readings of `/proc` that `Probe` requests.

use crate::{
    Counts, CpuTime, NodeVerdict, Note, Probe, QuotaTime, ReasonedVerdict, Rule, Sample,
    ThreadTime, Witness,
};
use hdrhistogram::Histogram;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tailbound_sys::cgroup::{self, Quota};
use tailbound_sys::cpuset::{Cpus, set_affinity};
use tailbound_sys::procfs::{self, Reread};
use tailbound_sys::root::Root;
use tailbound_sys::timer;
use tailbound_units::Nanos;

/// A thread that sleeps on one vCPU, as those see it that are on others.
#[derive(Debug)]
pub struct Sleeper {
    cpu: u32,
    interval: Mutex<Interval>,
}

/// Measurements since the last report.
#[derive(Debug)]
struct Interval {
    /// Durations of the sleeps in nanoseconds.
    sleeps: Histogram<u64>,
    /// Counts since the start.
    counts: Counts,
}

/// Failure of a sleeper.
#[derive(Debug, thiserror::Error)]
#[error("CPU {cpu}: {what}: {source}")]
pub struct SleeperError {
    /// CPU of the sleeper.
    pub cpu: u32,
    /// Operation that the kernel refused.
    pub what: &'static str,
    /// Error of the kernel.
    pub source: io::Error,
}

/// Result of a sleeper.
#[derive(Debug)]
pub struct SleeperResult {
    /// CPU of the sleeper.
    pub cpu: u32,
    /// Verdict on the vCPU, with its reason.
    pub verdict: ReasonedVerdict,
    /// Counts of the whole run.
    pub counts: Counts,
    /// Limitations of the verdict.
    pub notes: Vec<Note>,
    /// The share of the vCPU that others in this guest used.
    pub busy: Option<f64>,
    /// Duration of the run.
    pub elapsed: Nanos,
    /// The CPU time it used itself.
    pub used: Nanos,
}

impl Sleeper {
    /// A sleeper that has not slept yet; `sleeps` is the empty histogram to record into.
    pub(crate) fn new(cpu: u32, sleeps: Histogram<u64>) -> Self {
        let counts = Counts::default();
        Self {
            cpu,
            interval: Mutex::new(Interval { sleeps, counts }),
        }
    }

    /// The vCPU that it sleeps on.
    pub fn cpu(&self) -> u32 {
        self.cpu
    }

    /// Takes the sleeps since the last call in exchange for an empty histogram, and returns the
    /// counts since the start.
    pub fn take(&self, empty: &mut Histogram<u64>) -> Counts {
        let mut interval = self.lock();
        std::mem::swap(&mut interval.sleeps, empty);
        interval.counts
    }

    fn lock(&self) -> MutexGuard<'_, Interval> {
        self.interval.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sleeps on the calling thread until there is a verdict or `stop` is set. A BAD
    /// vCPU makes a BAD node, so it sets `stop` for the others.
    pub(crate) fn run(&self, rule: Rule, stop: &AtomicBool) -> Result<SleeperResult, SleeperError> {
        let cpu = self.cpu;
        let failed = |what| move |source| SleeperError { cpu, what, source };
        set_affinity(0, &Cpus::one(cpu)).map_err(failed("running there"))?;
        timer::set_least_slack().map_err(failed("setting the timer slack"))?;
        let wanted = timer::timespec(rule.config().sleep);
        let mut proc = Proc::open(cpu);
        let start = timer::now();
        let used = timer::thread_cpu_time();
        let mut probe = Probe::new(rule, start, &mut proc);
        let verdict = loop {
            let begin = timer::now();
            timer::sleep(&wanted).map_err(failed("sleeping"))?;
            let end = timer::now();
            let verdict = probe.sample(Sample { begin, end }, &mut proc);
            {
                let mut interval = self.lock();
                interval
                    .sleeps
                    .saturating_record(end.since(begin).as_nanos());
                interval.counts = probe.counts();
            }
            if let Some(verdict) = verdict {
                break verdict;
            }
            if stop.load(Ordering::Relaxed) {
                break probe.interrupt();
            }
        };
        if verdict.outcome == NodeVerdict::Bad {
            stop.store(true, Ordering::Relaxed);
        }
        Ok(SleeperResult {
            cpu,
            verdict,
            counts: probe.counts(),
            notes: probe.notes(),
            busy: probe.busy(),
            elapsed: timer::now().since(start),
            used: timer::thread_cpu_time().since(used),
        })
    }
}

/// Files of `/proc`; None if a file does not exist.
#[derive(Debug)]
struct Proc {
    cpu: u32,
    schedstat: Option<Reread>,
    stat: Option<Reread>,
    quotas: Vec<Limit>,
}

/// A quota of a group that the thread is in.
#[derive(Debug)]
struct Limit {
    quota: Quota,
    /// The group's `cpu.stat`.
    stat: Reread,
}

impl Proc {
    fn open(cpu: u32) -> Self {
        Self {
            cpu,
            schedstat: Reread::open("/proc/thread-self/schedstat").ok(),
            stat: Reread::open("/proc/stat").ok(),
            quotas: limits(),
        }
    }
}

/// Returns the quotas of this process, the tightest first.
fn limits() -> Vec<Limit> {
    let mut quotas = cgroup::own_quotas(&Root::default());
    let share = |quota: &Quota| quota.runtime.as_secs_f64() / quota.period.as_secs_f64();
    quotas.sort_by(|(_, one), (_, other)| share(one).total_cmp(&share(other)));
    let open = |(group, quota): (PathBuf, Quota)| {
        let stat = Reread::open(group.join("cpu.stat")).ok()?;
        Some(Limit { quota, stat })
    };
    quotas.into_iter().filter_map(open).collect()
}

impl Witness for Proc {
    fn thread(&mut self) -> Option<ThreadTime> {
        let text = self.schedstat.as_mut()?.text().ok()??;
        let (run, wait) = procfs::parse_schedstat(text)?;
        Some(ThreadTime { run, wait })
    }

    fn cpu(&mut self) -> Option<CpuTime> {
        let text = self.stat.as_mut()?.text().ok()??;
        let procfs::CpuTime { busy, steal } = procfs::parse_cpu_time(text, self.cpu)?;
        Some(CpuTime { busy, steal })
    }

    fn suspended(&mut self) -> Option<Nanos> {
        timer::suspended()
    }

    fn quota(&mut self) -> Option<QuotaTime> {
        let Quota { runtime, period } = self.quotas.first()?.quota;
        let time = |limit: &mut Limit| {
            let text = limit.stat.text().ok().flatten();
            text.map_or(Nanos::ZERO, |text| cgroup::parse_throttled(text).time)
        };
        let times = self.quotas.iter_mut().map(time);
        Some(QuotaTime {
            runtime,
            period,
            throttled: times.fold(Nanos::ZERO, Nanos::saturating_add),
        })
    }
}

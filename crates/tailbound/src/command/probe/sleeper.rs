//! The thread that sleeps on one vCPU.
//!
//! Between two sleeps it reads the clock twice, records into a histogram that is
//! there already, and makes no other system call, but for the few readings of
//! `/proc` that `tailbound_probe::Probe` asks for.

use super::error::ProbeError;
use hdrhistogram::Histogram;
use rustix::thread::{CpuSet, sched_setaffinity};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tailbound_probe::{
    Counts, CpuTime, Note, Outcome, Probe, Rule, Sample, ThreadTime, Verdict, Witness,
};
use tailbound_sys::procfs::{self, Reread};
use tailbound_sys::timer;
use tailbound_units::Nanos;

/// What a sleeper shares with the thread that reports.
#[derive(Debug)]
pub(super) struct Shared {
    interval: Mutex<Interval>,
}

/// What happened since it was last taken.
#[derive(Debug)]
pub(super) struct Interval {
    /// How long the sleeps took, in nanoseconds.
    pub(super) sleeps: Histogram<u64>,
    /// What was counted since the start.
    pub(super) counts: Counts,
}

/// What a sleeper found.
#[derive(Debug)]
pub(super) struct Finished {
    pub(super) verdict: Verdict,
    pub(super) counts: Counts,
    pub(super) notes: Vec<Note>,
    /// The share of the vCPU that others in this guest used.
    pub(super) busy: Option<f64>,
    /// How long it ran.
    pub(super) elapsed: Nanos,
    /// The CPU time it used itself.
    pub(super) used: Nanos,
}

impl Shared {
    pub(super) fn new() -> Self {
        let sleeps = tailbound_report::empty_histogram();
        let counts = Counts::default();
        Self {
            interval: Mutex::new(Interval { sleeps, counts }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Interval> {
        self.interval.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the sleeps since the last time in exchange for an empty histogram.
    pub(super) fn take(&self, empty: &mut Histogram<u64>) -> Counts {
        let mut interval = self.lock();
        std::mem::swap(&mut interval.sleeps, empty);
        interval.counts
    }
}

/// Sleeps on `cpu` until there is a verdict or `stop` is set. A BAD vCPU makes a BAD
/// node, so it stops the others.
pub(super) fn run(
    cpu: u32,
    rule: Rule,
    shared: &Shared,
    stop: &AtomicBool,
) -> Result<Finished, ProbeError> {
    let failed = |what| move |source| ProbeError::Sleeper { cpu, what, source };
    let mut only = CpuSet::new();
    only.set(cpu as usize);
    sched_setaffinity(None, &only)
        .map_err(io::Error::from)
        .map_err(failed("running there"))?;
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
            let mut interval = shared.lock();
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
    if verdict.outcome == Outcome::Bad {
        stop.store(true, Ordering::Relaxed);
    }
    Ok(Finished {
        verdict,
        counts: probe.counts(),
        notes: probe.notes(),
        busy: probe.busy(),
        elapsed: timer::now().since(start),
        used: timer::thread_cpu_time().since(used),
    })
}

/// What `/proc` tells; nothing where it is not there.
#[derive(Debug)]
struct Proc {
    cpu: u32,
    schedstat: Option<Reread>,
    stat: Option<Reread>,
}

impl Proc {
    fn open(cpu: u32) -> Self {
        Self {
            cpu,
            schedstat: Reread::open("/proc/thread-self/schedstat").ok(),
            stat: Reread::open("/proc/stat").ok(),
        }
    }
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
}

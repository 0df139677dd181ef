//! Scheduling and waits of threads, measured once.

mod waiting;

use super::agent::AgentError;
use super::guest::{Guest, GuestThread, Vmm};
use super::journal::{Changes, peek};
use super::kernel::{Kernel as _, Linux};
use super::rule::GuestRule;
use super::scan::Scanner;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};
use tailbound_sys::cpuset::Cpus;
use tailbound_sys::root::Root;
use tailbound_sys::thread::{Schedstat, Scheduling, Tasks, ThreadId};
use tailbound_units::Nanos;
use waiting::{Reading, Waiting};

/// Number of readings of each thread in an interval.
const READINGS: u64 = 8;
/// The pause after a reading of all threads, in times of what that took.
const PAUSE_FACTOR: u64 = 4;

/// Usage of a guest's thread.
#[derive(Debug, Clone, PartialEq)]
pub struct ThreadUsage {
    /// Its guest's name.
    pub guest: String,
    /// The VMM or runtime of its guest.
    pub vmm: Vmm,
    /// Its role.
    pub role: String,
    /// Its number.
    pub tid: u32,
    /// Its name.
    pub name: String,
    /// Its scheduling.
    pub scheduling: Scheduling,
    /// True if the agent set it.
    pub ours: bool,
    /// The CPUs that it may run on.
    pub cpus: String,
    /// The share of the interval in which it could run and waited.
    pub ready: f64,
    /// The mean of its waits in the interval.
    pub mean_wait: Nanos,
    /// Wait since its start.
    pub waited: Nanos,
    /// Run time since its start.
    pub ran: Nanos,
}

/// The threads of all guests.
#[derive(Debug, Clone, PartialEq)]
pub struct Usage {
    /// Duration of the measurement.
    pub interval: Nanos,
    /// Their threads; those that exited meanwhile are left out.
    pub threads: Vec<ThreadUsage>,
    /// Unknown properties of a guest, with the reasons.
    pub notes: Vec<String>,
}

/// Measures the threads of all guests, and of the processes that `rules` name, for
/// `interval`, which is above zero. The agent's changes are those that the file at `state` has.
///
/// # Errors
/// [`AgentError::Observe`].
pub fn measure(rules: &[GuestRule], interval: Nanos, state: &Path) -> Result<Usage, AgentError> {
    let mut scanner = Scanner::new().map_err(AgentError::Observe)?;
    let guests = scanner.scan(rules).map_err(AgentError::Observe)?;
    let changes = peek(&Root::default(), state).unwrap_or_default();
    let threads: Vec<_> = guests
        .iter()
        .flat_map(|guest| guest.threads.iter().map(move |thread| (guest, thread)))
        .collect();
    let waits = watch(&threads, interval);
    let mut measurement = Measurement {
        changes,
        kernel: Linux::new().map_err(AgentError::Observe)?,
    };
    let measured = threads.iter().zip(waits);
    let threads = measured
        .filter_map(|((guest, thread), waits)| measurement.thread(guest, thread, &waits?))
        .collect();
    let note = |guest: &Guest, note: &String| format!("{}: {note}", guest.name);
    let noted = guests
        .iter()
        .flat_map(|guest| guest.notes.iter().map(move |text| note(guest, text)));
    let refusals = scanner.refusals().iter().cloned();
    let names = scanner.missing_names().map(str::to_owned);
    let quotas = guests.iter().flat_map(|guest| {
        let quotas = scanner.quotas(guest).into_iter();
        quotas.map(move |quota| format!("{}: {quota}", guest.name))
    });
    Ok(Usage {
        interval,
        threads,
        notes: noted.chain(quotas).chain(refusals).chain(names).collect(),
    })
}

/// Returns what each thread waited for `interval`; `None` for one that exited.
fn watch(threads: &[(&Guest, &GuestThread)], interval: Nanos) -> Vec<Option<Waiting>> {
    let start = Instant::now();
    let tickless = tickless(&Root::default());
    let reading = |thread| reading(thread, start, &tickless);
    let mut waits: Vec<_> = threads
        .iter()
        .map(|(_, thread)| reading(thread).map(Waiting::since))
        .collect();
    loop {
        let now = Nanos::from(start.elapsed());
        let left = interval.saturating_sub(now);
        if left == Nanos::ZERO {
            return waits;
        }
        // Many threads are read seldomer, so that reading them is no load itself.
        let took = waits
            .iter()
            .flatten()
            .next()
            .map_or(now, |first| now.since(first.last_at()));
        let step = Nanos(interval.0 / READINGS).max(Nanos(took.0.saturating_mul(PAUSE_FACTOR)));
        std::thread::sleep(Duration::from(step.min(left)));
        for (waiting, (_, thread)) in waits.iter_mut().zip(threads) {
            match reading(thread) {
                Some(reading) => waiting.iter_mut().for_each(|waiting| waiting.read(reading)),
                None => *waiting = None,
            }
        }
    }
}

/// Returns the CPUs without ticks: counters of threads that run there stand still.
fn tickless(root: &Root) -> Cpus {
    let list = fs::read_to_string(root.path("/sys/devices/system/cpu/nohz_full"));
    list.ok()
        .and_then(|list| list.parse().ok())
        .unwrap_or_default()
}

fn reading(thread: &GuestThread, begin: Instant, tickless: &Cpus) -> Option<Reading> {
    let ThreadId { pid, tid, start } = thread.id;
    let tasks = Tasks::open(&Root::default(), pid).ok()?;
    let counters = tasks.schedstat(tid).ok()??;
    let seen = tasks.stat(tid).ok()??;
    (seen.start == start).then(|| Reading {
        at: Nanos::from(begin.elapsed()),
        counters,
        is_ready: seen.state == 'R' && !tickless.contains(seen.processor),
    })
}

/// The end of an interval.
struct Measurement {
    changes: Changes,
    kernel: Linux,
}

impl Measurement {
    /// Returns what `thread` has and did; `None` when it has exited.
    fn thread(
        &mut self,
        guest: &Guest,
        thread: &GuestThread,
        waits: &Waiting,
    ) -> Option<ThreadUsage> {
        let state = self.kernel.state(thread.id).ok()??;
        let Schedstat { wait, run, .. } = waits.counters();
        Some(ThreadUsage {
            guest: guest.name.clone(),
            vmm: guest.vmm,
            role: thread.role.to_string(),
            tid: thread.id.tid,
            name: thread.name.clone(),
            scheduling: state.scheduling,
            ours: self.changes.threads.contains_key(&thread.id),
            cpus: state.cpus.to_string(),
            ready: share(waits.total(), waits.passed()),
            mean_wait: waits.mean(),
            waited: wait,
            ran: run,
        })
    }
}

/// Returns the share of an interval that was waited; none of one that is empty.
fn share(waited: Nanos, interval: Nanos) -> f64 {
    if interval == Nanos::ZERO {
        return 0.0;
    }
    waited.as_secs_f64() / interval.as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_a_share_of_any_interval() {
        let ms = Nanos::from_millis;
        for (waited, interval, expected) in [(0, 0, 0.0), (7, 0, 0.0), (0, 5, 0.0), (1, 4, 0.25)] {
            assert!((share(ms(waited), ms(interval)) - expected).abs() < 1e-9);
        }
    }
}

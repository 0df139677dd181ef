//! A run of the probe: one sleeper on each vCPU, until all have ended.

use super::sleeper::{Sleeper, SleeperError, SleeperResult};
use crate::Rule;
use hdrhistogram::Histogram;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;
use tailbound_sys::cpuset::Cpus;
use tailbound_sys::timer;
use tailbound_units::Nanos;

/// Interval between reports.
const INTERVAL: Nanos = Nanos::from_secs(1);

/// Sleeps on each of `cpus` and returns what was found, in the order of the CPUs.
///
/// `report` is called each second and once at the end, with the sleepers in the same order. SIGINT
/// and SIGTERM end the run, and its verdicts record the interruption.
///
/// # Errors
/// A sleeper failed, or `report` did. The others are stopped then.
pub fn run<E: From<SleeperError>>(
    cpus: &Cpus,
    rule: &Rule,
    histogram: impl Fn() -> Histogram<u64>,
    report: impl FnMut(&[Sleeper]) -> Result<(), E>,
) -> Result<Vec<SleeperResult>, E> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // Without it a signal ends the process at once: no verdict is printed.
        let _ = signal_hook::flag::register(signal, Arc::clone(&stop));
    }
    let stop = &*stop;
    let sleepers: Vec<_> = cpus
        .iter()
        .map(|cpu| Sleeper::new(cpu, histogram()))
        .collect();
    std::thread::scope(|scope| {
        let (sender, receiver) = mpsc::channel();
        let start = |sleeper| {
            let sleeper: &Sleeper = sleeper;
            let (cpu, sender, rule) = (sleeper.cpu(), sender.clone(), rule.clone());
            let named = std::thread::Builder::new().name(format!("probe {cpu}"));
            let run = move || {
                // Whoever stopped listening has set `stop`.
                let _ = sender.send(sleeper.run(rule, stop));
            };
            match named.spawn_scoped(scope, run) {
                Ok(_) => Ok(()),
                Err(source) => Err(SleeperError {
                    cpu,
                    what: "starting a thread",
                    source,
                }),
            }
        };
        let started = sleepers.iter().try_for_each(start);
        drop(sender);
        let found = started
            .map_err(E::from)
            .and_then(|()| watch(&receiver, &sleepers, report));
        // Of an error; otherwise all have ended.
        stop.store(true, Ordering::Relaxed);
        found
    })
}

/// Reports each interval until all sleepers have sent what they found.
fn watch<E: From<SleeperError>>(
    receiver: &Receiver<Result<SleeperResult, SleeperError>>,
    sleepers: &[Sleeper],
    mut report: impl FnMut(&[Sleeper]) -> Result<(), E>,
) -> Result<Vec<SleeperResult>, E> {
    let mut finished = Vec::new();
    let mut next = timer::now().saturating_add(INTERVAL);
    loop {
        match receiver.recv_timeout(Duration::from(next.since(timer::now()))) {
            Ok(found) => finished.push(found?),
            Err(RecvTimeoutError::Timeout) => {
                next = next.saturating_add(INTERVAL);
                report(sleepers)?;
            }
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    report(sleepers)?;
    finished.sort_unstable_by_key(|finished| finished.cpu);
    Ok(finished)
}

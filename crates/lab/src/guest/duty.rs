//! Computes for a part of each period and sleeps for the rest, as cpulimit limits programs.

use super::{Outcome, Starter, cpu_time, now, sleep_until};
use std::io;
use tailbound_units::Nanos;

/// Remaining work that is not worth another reading of the clock.
const MIN_WORK: Nanos = Nanos::from_micros(20);

pub(super) fn run(starter: &Starter<'_>, busy: Nanos, period: Nanos) -> io::Result<()> {
    let schedule = starter.ready()?;
    let mut begin = schedule.start;
    let mut outcome = Outcome::default();
    let mut done = false;
    sleep_until(begin);
    loop {
        let used = compute(busy);
        let end = now();
        if schedule.counts(begin) {
            outcome.cpu += used;
            outcome.time = end.max(begin.saturating_add(period)).since(schedule.from);
        } else if begin >= schedule.to && !done {
            done = true;
            starter.finish(&outcome)?;
        }
        begin = begin.saturating_add(period).max(end);
        sleep_until(begin);
    }
}

/// Uses `busy` CPU time, independently of the elapsed time; returns the used CPU time.
///
/// The CPU clock is read rarely: on each reading the kernel updates this thread's accounting, and
/// preempts the thread if its slice is over. A computing vCPU offers no such preemption points.
pub(super) fn compute(busy: Nanos) -> Nanos {
    let before = cpu_time();
    loop {
        let used = cpu_time().since(before);
        let left = busy.since(used);
        if left < MIN_WORK {
            return used;
        }
        let until = now().saturating_add(left);
        while now() < until {
            std::hint::spin_loop();
        }
    }
}

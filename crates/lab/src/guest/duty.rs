//! Computes for a part of each period and sleeps the rest, as cpulimit makes
//! programs do.

use super::{Outcome, Starter, cpu_time, now, sleep_until};
use std::io;
use tailbound_units::Nanos;

/// Less work than this is not worth another look at the clock.
const LEAST: Nanos = Nanos::from_micros(20);

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

/// Uses so much CPU time, however long that takes; returns what it was.
///
/// The CPU clock is read rarely: each time the kernel brings this thread's account
/// up to date, and interrupts it there and then if its slice is over. A vCPU that
/// computes does not do it that favour.
pub(super) fn compute(busy: Nanos) -> Nanos {
    let before = cpu_time();
    loop {
        let used = cpu_time().since(before);
        let left = busy.since(used);
        if left < LEAST {
            return used;
        }
        let until = now().saturating_add(left);
        while now() < until {
            std::hint::spin_loop();
        }
    }
}

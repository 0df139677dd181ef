//! Sleeps until random times and measures the delay of each wakeup.

use super::{Outcome, Sample, Starter, now};
use crate::arrivals::poisson;
use std::io;
use tailbound_units::Nanos;

pub(super) fn run(
    starter: &Starter<'_>,
    span: Nanos,
    mean_gap: Nanos,
    seed: u64,
) -> io::Result<()> {
    let arrivals = poisson(seed, mean_gap, span, 1);
    let mut outcome = Outcome {
        samples: Vec::with_capacity(arrivals.len()),
        ..Outcome::default()
    };
    let schedule = starter.ready()?;
    for (arrival, moment) in arrivals.iter().enumerate() {
        let start = schedule.start.saturating_add(moment.at);
        super::sleep_until(start);
        let sample = Sample {
            arrival: arrival as u32,
            start,
            end: now(),
        };
        let cpu = u32::try_from(rustix::thread::sched_getcpu()).unwrap_or(u32::MAX);
        if schedule.counts(start) {
            outcome.samples.push(sample);
            *outcome.served.entry(cpu).or_default() += 1;
        }
    }
    starter.finish(&outcome)
}

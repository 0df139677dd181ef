//! Checks of a sweep that its types cannot express.

use super::point;
use super::sweep::{Guest, Measure, Sweep};
use std::ops::RangeInclusive;
use tailbound_experiment::{Mistakes, Name};
use tailbound_hypervisor::Task;
use tailbound_units::Nanos;

const MAX_GUESTS: usize = 64;
const MAX_PCPUS: u32 = 256;
const MAX_TIME: Nanos = Nanos::from_secs(1_000_000);
const TIMES: RangeInclusive<Nanos> = Nanos::from_millis(100)..=MAX_TIME;

/// Checks a sweep.
pub(super) fn sweep(sweep: &Sweep, mistakes: &mut Mistakes) {
    let mut top = mistakes.top();
    top.range("duration", sweep.duration, TIMES);
    top.range("warmup", sweep.warmup, Nanos::ZERO..=MAX_TIME);
    top.range("pcpus", sweep.pcpus, 1..=MAX_PCPUS);
    top.count("scheduler", sweep.scheduler.len(), 1..=100);
    top.count("point", sweep.point.len(), 1..=10_000);
    schedulers(sweep, mistakes);
    guests(sweep, mistakes);
    points(sweep, mistakes);
    counts(sweep, mistakes);
    if mistakes.is_empty() {
        // Schedulers and workloads check themselves when they are created.
        for (scheduler, point) in sweep.runs() {
            if let Err(refused) = point::prepare(sweep, scheduler, point, 0) {
                let at = match refused.of {
                    point::Of::Scheduler => &scheduler.name,
                    point::Of::Point => &point.name,
                };
                mistakes.at(at, refused.message);
            }
        }
    }
}

fn texts<'n>(names: impl Iterator<Item = &'n Name>) -> impl Iterator<Item = &'n str> {
    names.map(|name| name.get_ref().as_str())
}

fn guest_names(sweep: &Sweep) -> impl Iterator<Item = &str> {
    texts(sweep.guest.iter().map(|guest| &guest.name))
}

fn schedulers(sweep: &Sweep, mistakes: &mut Mistakes) {
    mistakes.names("scheduler", sweep.scheduler.iter().map(|it| &it.name));
    for scheduler in &sweep.scheduler {
        for guest in scheduler.guests() {
            mistakes.known("guest", guest, guest_names(sweep));
        }
    }
}

fn guests(sweep: &Sweep, mistakes: &mut Mistakes) {
    mistakes.names("guest", sweep.guest.iter().map(|guest| &guest.name));
    for guest in &sweep.guest {
        let names = [&guest.series, &guest.cpu, &guest.work];
        for name in names.into_iter().flatten() {
            mistakes.plain(name);
        }
        if let Some(pcpu) = guest.pin.iter().find(|pcpu| **pcpu >= sweep.pcpus) {
            let last = sweep.pcpus.saturating_sub(1);
            let message = format!("is pinned to pCPU {pcpu}: choose 0 to {last}");
            mistakes.at(&guest.name, message);
        }
        let sends = matches!(guest.task, Task::Sender { .. });
        if guest.measure == Measure::Rtp && !sends {
            let message = "is measured as RTP, but sends nothing: use a task of kind \"sender\"";
            mistakes.at(&guest.name, message);
        }
        if guest.series.is_some() && matches!(guest.task, Task::None | Task::Driver) {
            let message = "has a series, but no task that is measured: leave `series` out";
            mistakes.at(&guest.name, message);
        }
    }
}

fn points(sweep: &Sweep, mistakes: &mut Mistakes) {
    mistakes.names("point", sweep.point.iter().map(|point| &point.name));
    for (index, point) in sweep.point.iter().enumerate() {
        let mut top = mistakes.top();
        let mut section = top.item("point", index);
        section.count("guests", point.guests.len(), 1..=MAX_GUESTS);
        if let Some(duration) = point.duration {
            section.range("duration", duration, TIMES);
        }
        for guest in &point.guests {
            mistakes.known("guest", guest, guest_names(sweep));
        }
        for scheduler in &point.schedulers {
            let known = sweep.scheduler.iter().map(|it| &it.name);
            mistakes.known("scheduler", scheduler, texts(known));
        }
    }
}

fn counts(sweep: &Sweep, mistakes: &mut Mistakes) {
    mistakes.names("count", sweep.count.iter().map(|count| &count.name));
    let series: Vec<_> = sweep.guest.iter().flat_map(Guest::series_names).collect();
    for (index, count) in sweep.count.iter().enumerate() {
        mistakes.known("series", &count.series, series.iter().map(String::as_str));
        if count.ranges.is_empty() || count.ranges.iter().any(|(from, to)| from >= to) {
            let message = "needs ranges that are not empty: write [[\"10ms\", \"20ms\"]]";
            mistakes.at(&count.name, message);
        }
        if let Some(whole) = &count.share_of {
            let before = sweep.count[..index].iter().map(|it| &it.name);
            mistakes.known("count above", whole, texts(before));
        }
    }
}

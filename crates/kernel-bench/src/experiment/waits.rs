//! Waits of a thread for a CPU beside a thread that never sleeps: as the BPF program of
//! `tailbound_sys::waits` measures them, beside the thread's own measurement and the kernel's count.

use crate::Outcome;
use crate::experiment::add_quantiles;
use crate::figures::{Figures, Unit};
use crate::load::{cpu_time, now, sleep_until, spin};
use std::sync::atomic::{AtomicBool, Ordering};
use tailbound_metrics::FineHistogram;
use tailbound_sys::thread::{Schedstat, parse_schedstat};
use tailbound_sys::waits::{Settings, Tracer, Waits};
use tailbound_units::Nanos;

/// Number of wake-ups, and the sleep before each.
const WAKE_UPS: u64 = 60;
const SLEEP: Nanos = Nanos::from_millis(2);
/// CPU time after each: with the sleep it would be 60 % of a CPU, of which the thread gets half.
const WORK: Nanos = Nanos::from_millis(3);
/// Shortest wait that the program reports by itself.
const LATE_WAIT: Nanos = Nanos::from_millis(1);

pub(crate) fn run(figures: &mut Figures) -> Outcome<()> {
    let mut tracer = Tracer::load(&Settings {
        threads: 1,
        late: LATE_WAIT,
        bounds: &FineHistogram::BUCKET_BOUNDS_NS,
        cells: &FineHistogram::cells(),
        times_softirqs: false,
        histograms: true,
        entries: true,
    })?;
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let hog = std::thread::Builder::new().name("hog".to_owned());
        hog.spawn_scoped(scope, || {
            spin(&done);
        })?;
        let measured = measure(figures, &mut tracer);
        done.store(true, Ordering::Relaxed);
        measured
    })
}

fn measure(figures: &mut Figures, tracer: &mut Tracer) -> Outcome<()> {
    let tid = rustix::thread::gettid().as_raw_nonzero().get();
    tracer.follow(tid.cast_unsigned(), 0)?;
    let before = schedstat()?;
    let mut late = Vec::new();
    for _ in 0..WAKE_UPS {
        let due = now().saturating_add(SLEEP);
        sleep_until(due);
        late.push(now().since(due).0);
        let begun = cpu_time();
        while cpu_time().since(begun) < WORK {}
    }
    let after = schedstat()?;
    let measured = tracer.read(0)?;
    tracer.leave(tid.cast_unsigned());
    add(figures, "woken", &measured.woken);
    add(figures, "preempted", &measured.preempted);
    figures.add("unknown", measured.unknown, Unit::Waits);
    add_late(figures, tracer);
    // The same by the kernel's own count.
    let kernel = after.wait.since(before.wait);
    figures.add("schedstat.sum", kernel.0, Unit::Nanos);
    let sum = measured.woken.sum + measured.preempted.sum;
    let difference = sum.cast_signed() - kernel.0.cast_signed();
    figures.add_signed("difference.sum", difference, Unit::Nanos);
    // The thread's own: from when it was due until it ran.
    add_quantiles(figures, "lateness", late)
}

fn add(figures: &mut Figures, name: &str, waits: &Waits) {
    let count = waits.counts.iter().map(|count| u64::from(*count)).sum();
    figures.add(format!("{name}.count"), count, Unit::Waits);
    figures.add(format!("{name}.sum"), waits.sum, Unit::Nanos);
    figures.add(format!("{name}.longest"), waits.longest, Unit::Nanos);
}

/// The waits above the limit, and for how long the hog ran in them.
fn add_late(figures: &mut Figures, tracer: &mut Tracer) {
    let (mut count, mut sum, mut hog) = (0, 0, 0);
    while let Some(wait) = tracer.next_late() {
        count += 1;
        sum += wait.until.since(wait.from).0;
        let runs = wait.runs.iter().filter(|run| run.name == "hog");
        hog += runs
            .map(|run| run.until.min(wait.until).since(run.from.max(wait.from)).0)
            .sum::<u64>();
    }
    figures.add("late.count", count, Unit::Waits);
    figures.add("late.sum", sum, Unit::Nanos);
    figures.add("late.hog", hog, Unit::Nanos);
}

/// Reads the kernel's count for this thread.
fn schedstat() -> Outcome<Schedstat> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    Ok(parse_schedstat(&text).ok_or("a schedstat of another shape")?)
}

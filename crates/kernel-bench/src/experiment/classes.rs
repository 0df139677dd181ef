//! Wake-up latency of a thread that mostly sleeps, by its scheduling class, beside threads on its CPU that
//! never sleep: once with time slices and runtimes that end at ticks, once with timers that end them
//! (`HRTICK`, `HRTICK_DL`).

use crate::Outcome;
use crate::experiment::add_quantiles;
use crate::figures::{Figures, Unit};
use crate::load::{cpu_time, now, sleep_until, spin};
use crate::network;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use tailbound_sys::thread::{PolicyNumber, Scheduling, set_scheduling};
use tailbound_units::Nanos;

/// Number of threads that never sleep.
const HOGS: u32 = 5;
/// Number of wake-ups in each class: with 100, the 99th percentile depends on the start of the program.
const WAKE_UPS: u64 = 400;
/// CPU time after each wake-up.
const WORK: Nanos = Nanos::from_micros(100);
/// The scheduler's features, a word each; `NO_` is before those that are off.
const FEATURES: &str = "/sys/kernel/debug/sched/features";

/// A class as the agent's levels `high` and `top` set it.
const CLASSES: [(&str, Scheduling); 3] = [
    ("default", Scheduling::PLAIN),
    (
        "high",
        Scheduling {
            nice: -10,
            runtime: Nanos::from_micros(100),
            ..Scheduling::PLAIN
        },
    ),
    (
        "periodic",
        Scheduling {
            policy: PolicyNumber::DEADLINE,
            runtime: Nanos::from_millis(1),
            deadline: Nanos::from_millis(4),
            period: Nanos::from_millis(4),
            ..Scheduling::PLAIN
        },
    ),
];

pub(crate) fn run(figures: &mut Figures) -> Outcome<()> {
    network::run("mount -t debugfs debugfs /sys/kernel/debug")?;
    let features = fs::read_to_string(FEATURES)?;
    let is_on = |name: &str| features.split_ascii_whitespace().any(|word| word == name);
    figures.add("hrtick", is_on("HRTICK").into(), Unit::Count);
    figures.add("hrtick-dl", is_on("HRTICK_DL").into(), Unit::Count);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for number in 0..HOGS {
            let hog = std::thread::Builder::new().name(format!("hog-{number}"));
            hog.spawn_scoped(scope, || spin(&done))?;
        }
        let measured = measure(figures);
        done.store(true, Ordering::Relaxed);
        measured
    })
}

fn measure(figures: &mut Figures) -> Outcome<()> {
    for (end, prefix) in [("ticks", "NO_"), ("timers", "")] {
        for feature in ["HRTICK", "HRTICK_DL"] {
            fs::write(FEATURES, format!("{prefix}{feature}"))?;
        }
        for (name, class) in &CLASSES {
            set_scheduling(0, class)?;
            let late = lateness();
            set_scheduling(0, &Scheduling::PLAIN)?;
            add_quantiles(figures, &format!("{end}.{name}"), late)?;
        }
    }
    Ok(())
}

/// Sleeps and works; returns the time from each due moment until the thread ran.
fn lateness() -> Vec<u64> {
    let late = |number: u64| {
        // 1.5 to 4.5 ms, so that wake-ups are at all phases of a tick.
        let due = now().saturating_add(Nanos::from_micros(1_500 + number * 733 % 3_000));
        sleep_until(due);
        let late = now().since(due).0;
        let begun = cpu_time();
        while cpu_time().since(begun) < WORK {}
        late
    };
    (0..WAKE_UPS).map(late).collect()
}

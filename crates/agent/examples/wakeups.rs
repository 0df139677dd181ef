//! Lateness of a thread beside six loads on one CPU: the reference for the model of EEVDF in
//! `tailbound-hypervisor`.
//!
//! `cargo run -p tailbound-agent --example wakeups` (four minutes)
//!
//! The thread sleeps 1.5 to 4.5 ms by an absolute timer, then works for 0.1 ms of CPU time. A load
//! is threads that are busy by the clock, then sleep; a hog never sleeps. Without a load, a hog of
//! `SCHED_IDLE` uses the rest of the CPU, and any thread preempts it. So this process always has
//! the CPU, and a wake-up during which another process had it is excluded and counted as spoiled.
//! If other processes often use the CPU, the exclusion removes the late wake-ups, and the rest is
//! too early: put this process into a control group with a large weight, until few wake-ups are
//! spoiled. `preempted` runs beside the `SCHED_IDLE` hog only and shows the cost of a wake-up by
//! itself.

use rustix::time::ClockId;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tailbound_sys::cpuset::{Cpus, affinity, set_affinity};
use tailbound_sys::thread::{PolicyNumber, Scheduling, scheduling, set_scheduling};

/// A load: its name, and for each of its threads how long it is busy and sleeps, in ms; one that
/// sleeps for 0 is a hog.
type Loaded = (&'static str, &'static [(u64, u64)]);

const LOADS: [Loaded; 7] = [
    ("preempted", &[]),
    ("one hog", &[(0, 0)]),
    ("two hogs", &[(0, 0); 2]),
    ("five hogs", &[(0, 0); 5]),
    ("a burst of 50 ms", &[(50, 50)]),
    ("three bursts of 5 ms", &[(5, 5); 3]),
    ("a hog and a burst of 20 ms", &[(0, 0), (20, 20)]),
];
const SECONDS: u64 = 33;
/// CPU time that interrupts may use during a sleep.
const OTHERS: Duration = Duration::from_micros(100);

fn main() -> Result<(), Box<dyn Error>> {
    let all = affinity(0)?;
    let core = all.iter().last().ok_or("there is a CPU")?;
    println!(
        "on CPU {core}, {SECONDS} s each, of {} CPUs",
        all.iter().count()
    );
    println!(
        "load                        wakes   p50 us   p99 us  p99.9 us   max us  stolen  spoiled"
    );
    set_affinity(0, &Cpus::one(core))?;
    for (name, threads) in LOADS {
        let stop = Arc::new(AtomicBool::new(false));
        let busy = threads.iter().map(|(busy, sleep)| {
            let (busy, sleep) = (Duration::from_millis(*busy), Duration::from_millis(*sleep));
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || load(busy, sleep, &stop))
        });
        let mut busy: Vec<_> = busy.collect();
        if !threads.contains(&(0, 0)) {
            let stop = Arc::clone(&stop);
            let rest = move || {
                give_way();
                load(Duration::ZERO, Duration::ZERO, &stop);
            };
            busy.push(std::thread::spawn(rest));
        }
        let before = stolen(core)?;
        let (late, spoiled) = sleep_and_work(Duration::from_secs(SECONDS));
        let stolen = stolen(core)? - before;
        stop.store(true, Ordering::Relaxed);
        for thread in busy {
            thread.join().map_err(|_| "a thread of the load panicked")?;
        }
        let at = |share: f64| {
            let index = (late.len() as f64 * share) as usize;
            late[index.min(late.len() - 1)] as f64 / 1000.0
        };
        println!(
            "{name:<26} {:>6} {:>8.1} {:>8.1} {:>9.1} {:>8.1}  {stolen:>3} ms  {spoiled:>7}",
            late.len(),
            at(0.5),
            at(0.99),
            at(0.999),
            at(1.0),
        );
    }
    Ok(())
}

/// Steal time of a CPU since the start, in ms.
fn stolen(core: u32) -> Result<u64, Box<dyn Error>> {
    let text = std::fs::read_to_string("/proc/stat")?;
    let name = format!("cpu{core}");
    let mut lines = text.lines().map(str::split_ascii_whitespace);
    let line = lines.find_map(|mut line| (line.next() == Some(&name)).then_some(line));
    let ticks: u64 = line
        .and_then(|mut line| line.nth(7))
        .ok_or("no steal")?
        .parse()?;
    Ok(ticks * 10)
}

/// Runs this thread after all other threads.
fn give_way() {
    let now = scheduling(0).expect("of this thread");
    let policy = PolicyNumber::IDLE;
    set_scheduling(0, &Scheduling { policy, ..now }).expect("anybody may");
}

fn load(busy: Duration, sleep: Duration, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        let begin = Instant::now();
        while begin.elapsed() < busy || (sleep.is_zero() && !stop.load(Ordering::Relaxed)) {
            std::hint::spin_loop();
        }
        std::thread::sleep((busy + sleep).saturating_sub(begin.elapsed()));
    }
}

/// Returns how late each wake-up was, in nanoseconds, ascending, and how many were spoiled.
fn sleep_and_work(duration: Duration) -> (Vec<u64>, u64) {
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
    let (mut late, mut spoiled) = (Vec::new(), 0);
    let mut random = 88_172_645_463_325_252_u64;
    let begin = Instant::now();
    while begin.elapsed() < duration {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let pause = Duration::from_micros(1500 + random % 3000);
        let before = cpu_time(ClockId::ProcessCPUTime);
        let from = Instant::now();
        std::thread::sleep(pause);
        let took = from.elapsed();
        let ours = cpu_time(ClockId::ProcessCPUTime).saturating_sub(before);
        if took.saturating_sub(ours) > OTHERS {
            spoiled += 1;
        } else {
            let took = took.saturating_sub(pause).as_nanos();
            late.push(u64::try_from(took).unwrap_or(u64::MAX));
        }
        let ran = cpu_time(ClockId::ThreadCPUTime) + Duration::from_micros(100);
        while cpu_time(ClockId::ThreadCPUTime) < ran {
            std::hint::spin_loop();
        }
    }
    late.sort_unstable();
    (late, spoiled)
}

fn cpu_time(clock: ClockId) -> Duration {
    let now = rustix::time::clock_gettime(clock);
    let (seconds, nanos) = (now.tv_sec.cast_unsigned(), now.tv_nsec.cast_unsigned());
    Duration::from_secs(seconds) + Duration::from_nanos(nanos)
}

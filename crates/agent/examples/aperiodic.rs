//! Compares remedies for a thread that sleeps and works beside five hogs on one core: a short
//! slice, a large share, both, a reservation.
//!
//! `cargo run --release -p tailbound-agent --example aperiodic` (root; about
//! four minutes)
//!
//! The thread sleeps 1.5 to 4.5 ms by an absolute timer, then computes for 0.1
//! or 0.5 ms. Lateness is from when the timer was set to when the thread ran.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tailbound_agent::{Agent, Aperiodic, Class, Desired, Periodic};
use tailbound_sys::cpuset::{Cpus, affinity, set_affinity};
use tailbound_units::Nanos;

const HOGS: usize = 5;
const SECONDS: u64 = 15;

fn main() -> Result<(), Box<dyn Error>> {
    let all = affinity(0)?;
    let core = all.iter().last().ok_or("there is a CPU")?;
    println!("{HOGS} hogs on CPU {core}, {SECONDS} s each");
    println!(
        "class                                 works    p50 us   p99 us  p99.9 us   max us  hogs"
    );
    for work in [100, 500].map(Duration::from_micros) {
        let mut alone = None;
        for class in classes() {
            let seen = measure(class, core, work)?;
            let rate = seen.hogs / *alone.get_or_insert(seen.hogs);
            let LatenessSamples { late, .. } = seen;
            let at = |share: f64| {
                let index = (late.len() as f64 * share) as usize;
                late[index.min(late.len() - 1)] / 1000
            };
            println!(
                "{:<36}  {:>4} us  {:>6}  {:>7}  {:>8}  {:>7}  {:.1} %",
                class.to_string(),
                work.as_micros(),
                at(0.5),
                at(0.99),
                at(0.999),
                at(1.0),
                100.0 * rate
            );
        }
    }
    Ok(())
}

fn classes() -> Vec<Class> {
    let share = |slice, weight| Class::Aperiodic(Aperiodic { slice, weight });
    let short = Aperiodic::default().slice;
    // As good as the kernel's own, which cannot be asked for by number.
    let long = Nanos::from_millis(3);
    let mut classes = vec![Class::Normal, share(long, 10), share(long, 87)];
    classes.extend([1, 3, 10, 28, 87].map(|weight| share(short, weight)));
    classes.push(Class::Periodic(Periodic {
        runtime: Nanos::from_millis(1),
        deadline: Nanos::from_millis(3),
        period: Nanos::from_millis(3),
    }));
    classes
}

struct LatenessSamples {
    /// Nanoseconds, ascending.
    late: Vec<u64>,
    /// Rounds of all hogs in a second of the thread's.
    hogs: f64,
}

fn measure(class: Class, core: u32, work: Duration) -> Result<LatenessSamples, Box<dyn Error>> {
    let stop = Arc::new(AtomicBool::new(false));
    let rounds = Arc::new(AtomicU64::new(0));
    let all = affinity(0)?;
    set_affinity(0, &Cpus::one(core))?;
    let hogs: Vec<_> = (0..HOGS)
        .map(|_| {
            let (stop, rounds) = (Arc::clone(&stop), Arc::clone(&rounds));
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    for _ in 0..1000 {
                        std::hint::black_box(());
                    }
                    rounds.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    let (tell, hear) = std::sync::mpsc::channel();
    let (go, start) = std::sync::mpsc::channel();
    let counted = Arc::clone(&rounds);
    let sleeper = std::thread::spawn(move || {
        let tid = rustix::thread::gettid().as_raw_nonzero().get();
        let _ = tell.send(tid.cast_unsigned());
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
        let _ = start.recv();
        sleep_and_work(work, &counted)
    });
    set_affinity(0, &all)?;
    let thread = tailbound_agent::thread(hear.recv()?).ok_or("the sleeper has ended")?;
    let state = std::env::temp_dir().join(format!("tailbound-{}.json", std::process::id()));
    let mut agent = Agent::open(&state)?;
    let desired = Desired {
        home: matches!(class, Class::Periodic(_)).then_some(core),
        ..Desired::new(thread, class)
    };
    let plan = agent.plan(&[desired])?;
    agent.apply(&plan)?;
    go.send(())?;
    let seen = sleeper.join().map_err(|_| "the sleeper panicked")?;
    agent.restore()?;
    stop.store(true, Ordering::Relaxed);
    for hog in hogs {
        hog.join().map_err(|_| "a hog panicked")?;
    }
    Ok(seen)
}

fn sleep_and_work(work: Duration, rounds: &AtomicU64) -> LatenessSamples {
    let mut late = Vec::new();
    let mut random = 88_172_645_463_325_252_u64;
    let (begin, before) = (Instant::now(), rounds.load(Ordering::Relaxed));
    while begin.elapsed() < Duration::from_secs(SECONDS) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let pause = Duration::from_micros(1500 + random % 3000);
        let due = Instant::now() + pause;
        std::thread::sleep(pause);
        late.push(u64::try_from(due.elapsed().as_nanos()).unwrap_or(u64::MAX));
        let ran = cpu_time() + work;
        while cpu_time() < ran {
            std::hint::spin_loop();
        }
    }
    let hogs = rounds.load(Ordering::Relaxed) - before;
    late.sort_unstable();
    LatenessSamples {
        hogs: hogs as f64 / begin.elapsed().as_secs_f64(),
        late,
    }
}

fn cpu_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let (seconds, nanos) = (now.tv_sec.cast_unsigned(), now.tv_nsec.cast_unsigned());
    Duration::from_secs(seconds) + Duration::from_nanos(nanos)
}

//! The time to set the classes of 1,000 threads, each read back, and to restore them.
//!
//! `cargo run --release -p tailbound-agent --example plan_1000` (root, for
//! deadlines and weights; otherwise slices alone)

use std::error::Error;
use std::sync::mpsc::channel;
use std::time::Instant;
use tailbound_agent::{Agent, Aperiodic, Class, Desired, Periodic};
use tailbound_units::Nanos;

const THREADS: usize = 1000;
const ROUNDS: usize = 9;

fn main() -> Result<(), Box<dyn Error>> {
    let (tell, hear) = channel();
    let mut ends = Vec::new();
    for _ in 0..THREADS {
        let (end, wait) = channel::<()>();
        let tell = tell.clone();
        std::thread::Builder::new()
            .stack_size(64 << 10)
            .spawn(move || {
                let tid = rustix::thread::gettid().as_raw_nonzero().get();
                let _ = tell.send(tid.cast_unsigned());
                let _ = wait.recv();
            })?;
        ends.push(end);
    }
    let threads: Vec<_> = hear
        .iter()
        .take(THREADS)
        .filter_map(tailbound_agent::thread)
        .collect();
    let root = rustix::process::geteuid().is_root();
    let aperiodic = Class::Aperiodic(Aperiodic {
        weight: if root { Aperiodic::default().weight } else { 1 },
        ..Aperiodic::default()
    });
    // A thousandth of a CPU each.
    let periodic = Class::Periodic(Periodic {
        runtime: Nanos::from_micros(100),
        deadline: Nanos::from_millis(100),
        period: Nanos::from_millis(100),
    });
    let state = std::env::temp_dir().join(format!("tailbound-{}.json", std::process::id()));
    println!("{THREADS} threads, medians of {ROUNDS} rounds (fastest to slowest), in ms");
    println!("class       plan                 apply and read back  restore");
    for class in [Some(aperiodic), root.then_some(periodic)]
        .into_iter()
        .flatten()
    {
        let mut times: [Vec<f64>; 3] = Default::default();
        for _ in 0..ROUNDS {
            let mut agent = Agent::open(&state)?;
            let desired: Vec<_> = threads.iter().map(|id| Desired::new(*id, class)).collect();
            let start = Instant::now();
            let plan = agent.plan(&desired)?;
            let planned = Instant::now();
            let applied = agent.apply(&plan)?;
            let done = Instant::now();
            let restored = agent.restore()?;
            let back = done.elapsed();
            assert_eq!((applied.changed, restored.restored), (THREADS, THREADS));
            let spans = [planned - start, done - planned, back];
            for (times, span) in times.iter_mut().zip(spans) {
                times.push(span.as_secs_f64() * 1e3);
            }
        }
        let [plan, apply, restore] = times.map(summary);
        println!("{:<10}  {plan:<19}  {apply:<19}  {restore}", class.name());
    }
    Ok(())
}

fn summary(mut times: Vec<f64>) -> String {
    times.sort_by(f64::total_cmp);
    format!(
        "{:.1} ({:.1} to {:.1})",
        times[times.len() / 2],
        times[0],
        times[times.len() - 1]
    )
}

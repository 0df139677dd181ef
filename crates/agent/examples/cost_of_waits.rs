//! The cost of measuring waits in the kernel, by the kernel's own count (`bpf_stats`).
//!
//! `cargo run --release -p tailbound-agent --example cost_of_waits`, as root. On each CPU pairs of
//! threads wake each other by pipes, as fast as they can; none, a tenth and all of them are
//! followed. The count itself reads the clock twice for each run, which is in the figures.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tailbound_agent::tail::Tail;
use tailbound_sys::bpf_program::count_cost;
use tailbound_sys::cpuset::{Cpus, affinity, set_affinity};
use tailbound_sys::thread::ThreadId;
use tailbound_units::Nanos;

/// Pairs on each CPU.
const PAIRS: usize = 5;
/// Duration of each measurement.
const TIME: Duration = Duration::from_secs(5);
/// The rate for which costs are reported.
const SWITCHES: f64 = 100_000.0;

/// Threads that wake each other until the program stops them.
struct Pairs {
    end: Arc<AtomicBool>,
    turns: Arc<AtomicU64>,
    ids: Vec<ThreadId>,
    threads: Vec<JoinHandle<()>>,
}

impl Pairs {
    fn start() -> std::io::Result<Self> {
        let mut pairs = Self {
            end: Arc::default(),
            turns: Arc::default(),
            ids: Vec::new(),
            threads: Vec::new(),
        };
        for cpu in affinity(0)?.iter() {
            for _ in 0..PAIRS {
                let (first, second) = (std::io::pipe()?, std::io::pipe()?);
                pairs.add(cpu, first.0, second.1)?;
                pairs.add(cpu, second.0, first.1.try_clone()?)?;
                // What goes to and fro.
                (&first.1).write_all(&[0])?;
            }
        }
        Ok(pairs)
    }

    fn add(
        &mut self,
        cpu: u32,
        mut from: std::io::PipeReader,
        mut to: std::io::PipeWriter,
    ) -> std::io::Result<()> {
        let (end, turns) = (Arc::clone(&self.end), Arc::clone(&self.turns));
        let (tell, hear) = channel();
        self.threads.push(std::thread::spawn(move || {
            let _ = set_affinity(0, &Cpus::one(cpu));
            let _ = tell.send(rustix::thread::gettid().as_raw_nonzero().get());
            let mut byte = [0];
            while from.read_exact(&mut byte).is_ok() {
                turns.fetch_add(1, Ordering::Relaxed);
                if end.load(Ordering::Relaxed) || to.write_all(&byte).is_err() {
                    return;
                }
            }
        }));
        let tid = hear.recv().map_err(std::io::Error::other)?;
        let id = tailbound_agent::thread(tid.cast_unsigned());
        self.ids.push(id.ok_or(std::io::ErrorKind::NotFound)?);
        Ok(())
    }

    fn end(self) {
        self.end.store(true, Ordering::Relaxed);
        for thread in self.threads {
            let _ = thread.join();
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let _counted = count_cost()?;
    let pairs = Pairs::start()?;
    for (name, every) in [("none", 0), ("a tenth", 10), ("all", 1)] {
        let mut tail = Tail::open(Nanos::from_millis(1))?;
        let followed: BTreeSet<_> = match every {
            0 => BTreeSet::new(),
            // Of a tenth both ends of a pair.
            10 => pairs.ids.chunks(2).step_by(10).flatten().copied().collect(),
            _ => pairs.ids.iter().copied().collect(),
        };
        tail.follow(&followed)?;
        let before = tail.tracer().cost()?;
        let turns = pairs.turns.load(Ordering::Relaxed);
        let begin = Instant::now();
        while begin.elapsed() < TIME {
            std::thread::sleep(Duration::from_millis(100));
            tail.late_waits();
        }
        let took = begin.elapsed().as_secs_f64();
        let turns = pairs.turns.load(Ordering::Relaxed) - turns;
        let (mut sum, mut switches) = (0, 0);
        println!(
            "{name} of {} threads followed ({}):",
            pairs.ids.len(),
            followed.len()
        );
        for (part, before) in tail.tracer().cost()?.into_iter().zip(before) {
            let (time, runs) = (part.time.0 - before.time.0, part.runs - before.runs);
            let tracepoint = part.name;
            println!(
                "  {tracepoint}: {runs} runs, {:.0} ns each",
                time as f64 / runs.max(1) as f64
            );
            sum += time;
            if tracepoint == "sched_switch" {
                switches = runs;
            }
        }
        let share = sum as f64 / switches as f64 * SWITCHES / 1e9;
        println!(
            "  {:.0} switches a second; at {SWITCHES} a second {:.2} % of a core; {:.0} turns a second",
            switches as f64 / took,
            100.0 * share,
            turns as f64 / took,
        );
    }
    pairs.end();
    Ok(())
}

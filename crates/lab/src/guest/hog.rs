//! CPU-bound work with brief sleeps (Small is Better, 5.2): scans of a block with the size of the
//! L2 cache, so that a preemption has the cost of real programs, with a short sleep after each
//! burst of scans.

use super::{Outcome, Starter, cpu_time, now};
use std::hint::black_box;
use std::io;
use tailbound_units::{Bytes, Nanos};

pub(super) fn run(starter: &Starter<'_>, scans: u32, sleep: Nanos, block: Bytes) -> io::Result<()> {
    let words = (block.as_u64() as usize / size_of::<u64>()).max(1);
    let block: Vec<u64> = (0..words as u64).collect();
    let schedule = starter.ready()?;
    super::sleep_until(schedule.start);
    let mut outcome = Outcome::default();
    let mut done = false;
    let mut used = None;
    loop {
        for _ in 0..scans {
            let begin = now();
            black_box(scan(black_box(&block)));
            if schedule.counts(begin) {
                outcome.amount += 1;
                used.get_or_insert_with(cpu_time);
                outcome.time = now().since(schedule.from);
            } else if begin >= schedule.to && !done {
                done = true;
                // The CPU clock is read only twice in total: `duty` describes the effect of a
                // reading.
                outcome.cpu = cpu_time().since(used.unwrap_or(cpu_time()));
                starter.finish(&outcome)?;
            }
        }
        super::sleep_until(now().saturating_add(sleep));
    }
}

fn scan(block: &[u64]) -> u64 {
    block.iter().fold(0, |sum, word| sum.wrapping_add(*word))
}

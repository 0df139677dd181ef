//! Time of early acknowledgement with many connections.
//!
//! `cargo run --release -p tailbound-dataplane --example snoop` sends segments to each of 100
//! connections, and then of a million, in random order. The guest acknowledges them a few hundred
//! segments later. The example compares the times of a segment, with its acknowledgements and the
//! checksum over its payload. It fails if the time with a million connections is more than three
//! times as long.

#[path = "../benches/common/mod.rs"]
mod common;

use common::{PAYLOAD, START, guest, segment};
use std::collections::VecDeque;
use std::error::Error;
use std::fs;
use std::process::ExitCode;
use tailbound_dataplane::snoop::{Origin, RingPlacement};
use tailbound_dataplane::{Packet, SnoopConfig};
use tailbound_units::Nanos;

/// Maximum time of a segment with a million connections, relative to 100.
const SCALING: f64 = 3.0;
const SEGMENTS: u32 = 1_000_000;
/// Number of segments that arrive before the guest acknowledges them.
const FLIGHT: u32 = 400;
/// Number of segments that the switch offers to a ring together.
const BURST: usize = 32;

/// CPU time of this thread in nanoseconds, without the time of other processes.
fn cpu_time() -> Result<f64, Box<dyn Error>> {
    let schedstat = fs::read_to_string("/proc/thread-self/schedstat")?;
    let nanos = schedstat.split(' ').next().unwrap_or_default();
    Ok(nanos.parse()?)
}

/// The connection that gets the next segment, by a generator of full period over a power of two
/// (Knuth, *The Art of Computer Programming*, volume 2, 3.2.1.2).
fn next(peer: u32, flows: u32) -> u32 {
    let mut next = peer;
    loop {
        next = next.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        next &= flows.next_power_of_two() - 1;
        if next < flows {
            return next;
        }
    }
}

/// Nanoseconds of a segment with this number of connections.
fn time(flows: u32) -> Result<f64, Box<dyn Error>> {
    let (mut snoop, pool) = guest(flows);
    let mut numbers = vec![1_u32; flows as usize];
    let (mut peer, mut now, mut nanos) = (0, START, 0.0);
    for _ in 0..SEGMENTS / FLIGHT {
        let (mut come, mut answers) = (VecDeque::new(), Vec::new());
        for _ in 0..FLIGHT {
            peer = next(peer, flows);
            let number = &mut numbers[peer as usize];
            come.push_back(segment(&pool, true, peer, *number, 1, PAYLOAD));
            *number = number.wrapping_add(PAYLOAD);
            answers.push(segment(&pool, false, peer, 1, *number, 0));
        }
        let began = cpu_time()?;
        while !come.is_empty() {
            let burst = come.len().min(BURST);
            if snoop.len() > SnoopConfig::CACHED {
                snoop.load(come.iter().take(burst));
            }
            for frame in come.drain(..burst) {
                now += Nanos::from_micros(1);
                drop::<Option<Packet>>(snoop.handle_ingress(now, frame));
            }
            snoop.handle_placed(RingPlacement::All);
            while let Some(answer) = snoop.poll_to_peer() {
                drop(answer);
            }
        }
        for frame in answers {
            drop(snoop.handle_egress(now, frame, Origin::OUTSIDE));
        }
        nanos += cpu_time()? - began;
    }
    let segments = SEGMENTS / FLIGHT * FLIGHT;
    assert_eq!(snoop.stats().early, u64::from(segments), "all of them");
    Ok(nanos / f64::from(segments))
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let mut best = [f64::MAX; 2];
    for _ in 0..5 {
        for (best, flows) in best.iter_mut().zip([100, 1_000_000]) {
            *best = best.min(time(flows)?);
        }
    }
    let ratio = best[1] / best[0];
    println!("      100 connections: {:.0} ns a segment", best[0]);
    println!("1,000,000 connections: {:.0} ns a segment", best[1]);
    println!("a million take {ratio:.2} times as much as 100");
    Ok(if ratio <= SCALING {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

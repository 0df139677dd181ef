//! Instructions of early acknowledgement, counted by valgrind: as in `instructions`.
//!
//! The bare loops are the cost of a segment without early acknowledgement: the checksum over its
//! payload, and the loop.

#![allow(missing_docs, reason = "the benchmark macros write public items")]

mod common;

use common::{PAYLOAD, START, segment};
use gungraun::prelude::*;
use gungraun::{Callgrind, EventKind};
use std::hint::black_box;
use tailbound_dataplane::snoop::{Origin, RingPlacement, TcpFrame};
use tailbound_dataplane::{Packet, Pool, Snoop};
use tailbound_units::Nanos;

const PACKETS: u32 = 4_000;

/// Limits of an early-acknowledged segment, in addition to half an instruction for each byte of its
/// checksum; and of a segment of the guest.
const EARLY: u64 = 300 + PAYLOAD as u64 / 2;
const OUT: u64 = 120;

fn limit(per_packet: u64) -> LibraryBenchmarkConfig {
    LibraryBenchmarkConfig::default()
        .tool(Callgrind::default().hard_limits([(EventKind::Ir, per_packet * u64::from(PACKETS))]))
        .clone()
}

/// A guest with connections, some of which receive segments in turn.
struct Guest {
    snoop: Snoop<Packet>,
    segments: Vec<Packet>,
    /// Holds the returned buffers.
    pool: Pool,
}

/// The connections that get segments.
const BUSY: u32 = 100;

/// Segments of a connection in a burst.
const BURST: u32 = 20;

/// Returns a guest with connections of which some get bursts of segments in turn.
fn guest(flows: u32, burst: u32) -> Guest {
    let (snoop, pool) = common::guest(flows);
    let step = flows / BUSY;
    let segments = (0..PACKETS).map(|n| {
        let (turn, peer) = (n / burst / BUSY, n / burst % BUSY);
        let seq = 1 + (turn * burst + n % burst) * PAYLOAD;
        segment(&pool, true, peer * step, seq, 1, PAYLOAD)
    });
    let segments = segments.collect();
    // Buffers for retained segments and for acknowledgements.
    let warm: Vec<_> = (0..3 * PACKETS).map(|_| pool.buffer(Pool::SMALL)).collect();
    drop(warm);
    Guest {
        snoop,
        segments,
        pool,
    }
}

fn take_in(mut guest: Guest, burst: u32) -> Guest {
    let mut now = START;
    let mut left = burst;
    for frame in guest.segments.drain(..) {
        now += Nanos::from_micros(1);
        black_box(guest.snoop.handle_ingress(now, black_box(frame)));
        left -= 1;
        if left == 0 {
            left = burst;
            guest.snoop.handle_placed(RingPlacement::All);
            while let Some(answer) = guest.snoop.poll_to_peer() {
                black_box(answer);
            }
        }
    }
    assert_eq!(guest.snoop.stats().early, u64::from(PACKETS));
    guest
}

#[library_benchmark]
#[bench::of_100(args = (guest(100, 1), 1), config = limit(EARLY))]
#[bench::of_a_million(args = (guest(1_000_000, 1), 1), config = limit(EARLY))]
#[bench::in_bursts(args = (guest(100, BURST), BURST), config = limit(EARLY))]
fn early(guest: Guest, burst: u32) -> Guest {
    take_in(guest, burst)
}

#[library_benchmark]
#[bench::bare(args = (guest(100, 1)))]
fn checksum(guest: Guest) -> Guest {
    for frame in &guest.segments {
        black_box(black_box(frame).is_intact());
    }
    guest
}

/// Returns a guest that answers early-acknowledged segments.
fn answering() -> (Guest, Vec<Packet>) {
    let guest = take_in(guest(100, 1), 1);
    let answers = (0..PACKETS).map(|n| {
        let ack = 1 + (n / BUSY + 1) * PAYLOAD;
        segment(&guest.pool, false, n % BUSY, 1, ack, 0)
    });
    let answers = answers.collect();
    (guest, answers)
}

#[library_benchmark]
#[bench::answers(args = (answering()), config = limit(OUT))]
fn way_out(input: (Guest, Vec<Packet>)) -> Guest {
    let (mut guest, answers) = input;
    for answer in answers {
        black_box(
            guest
                .snoop
                .handle_egress(START, black_box(answer), Origin::OUTSIDE),
        );
    }
    assert!(!guest.snoop.owes());
    guest
}

library_benchmark_group!(name = snoop, benchmarks = [early, checksum, way_out]);

main!(library_benchmark_groups = snoop);

//! Instructions a frame at a machine's card, counted by valgrind: the copy out of the
//! guest's ring and the copy into it, in bursts as the switch takes them.
//!
//! Needs valgrind and `gungraun-runner` of the same version as the crate.

#![allow(missing_docs, reason = "the benchmark macros write public items")]

#[path = "../tests/support/ports.rs"]
mod ports;
#[path = "../tests/support/mod.rs"]
mod support;

use gungraun::prelude::*;
use gungraun::{Callgrind, EventKind};
use ports::{PLAIN, Socket, frame, outgoing, started};
use std::collections::VecDeque;
use std::hint::black_box;
use support::{Build, Descriptor, Machine};
use tailbound_dataplane::Pool;
use tailbound_switch::port::{BURST, Burst, Outgoing, Port};
use tailbound_units::Nanos;
use tailbound_vhost::VhostPort;

const FRAMES: usize = 1_024;
/// Frames of 60 bytes, which cost what is not copying.
const LEN: usize = 60;

/// Budget of instructions for a frame out of a ring, and into one, without optimisation across
/// crates.
const TAKE: u64 = 705;
const PUT: u64 = 1_000;

/// A port, and what belongs to it.
struct Bench {
    port: VhostPort,
    pool: Pool,
    burst: Burst,
    outgoing: VecDeque<Outgoing>,
    _rest: (Socket, Machine),
}

/// A port with a full ring of frames, and a guest with room for all of them.
fn full() -> Bench {
    let build = Build {
        entries: FRAMES as u16,
        ..Build::default()
    };
    let (socket, port, mut machine) = started(build);
    let pool = Pool::new();
    machine.send(0, PLAIN, &frame(LEN, 0));
    let at = machine.rings[1].buffer(0);
    for entry in 1..FRAMES as u16 {
        let descriptor = Descriptor::of(at, 12 + LEN as u32);
        machine.describe(1, entry, descriptor);
        machine.make_available(1, entry);
        // A guest has its buffers before it offers them.
        machine.write(0u16, machine.rings[0].buffer(entry));
    }
    let outgoing = (0..FRAMES).map(|_| outgoing(&pool, &frame(LEN, 1), None));
    Bench {
        port,
        outgoing: outgoing.collect(),
        pool,
        burst: Burst::default(),
        _rest: (socket, machine),
    }
}

fn limit(per_frame: u64) -> LibraryBenchmarkConfig {
    let most = per_frame * FRAMES as u64;
    LibraryBenchmarkConfig::default()
        .tool(Callgrind::default().hard_limits([(EventKind::Ir, most)]))
        .clone()
}

#[library_benchmark]
#[bench::of_60_bytes(args = (full()), config = limit(TAKE))]
fn frame_from_a_guest(mut bench: Bench) -> Bench {
    let mut taken = 0;
    while taken < FRAMES {
        let received = bench
            .port
            .receive(Nanos(0), &bench.pool, black_box(&mut bench.burst));
        received.expect("a port");
        taken += bench.burst.frames.len();
        bench.burst.frames.clear();
    }
    bench
}

#[library_benchmark]
#[bench::of_60_bytes(args = (full()), config = limit(PUT))]
fn frame_to_a_guest(mut bench: Bench) -> Bench {
    let mut burst = VecDeque::with_capacity(BURST);
    while !bench.outgoing.is_empty() {
        burst.extend(bench.outgoing.drain(..BURST));
        let sent = bench.port.transmit(Nanos(0), black_box(&mut burst));
        assert_eq!(sent.expect("a port").packets, BURST as u64);
    }
    bench
}

library_benchmark_group!(
    name = card,
    benchmarks = [frame_from_a_guest, frame_to_a_guest]
);

main!(library_benchmark_groups = card);

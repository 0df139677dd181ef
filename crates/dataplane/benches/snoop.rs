//! Instructions of early acknowledgement, counted by valgrind: as in `instructions`.
//!
//! The bare loops beside them are what a segment costs without: its checksum over the
//! payload, and the loop itself.

#![allow(missing_docs, reason = "the benchmark macros write public items")]

use gungraun::prelude::*;
use gungraun::{Callgrind, EventKind};
use std::hint::black_box;
use tailbound_dataplane::snoop::{Origin, Placed, TcpFrame};
use tailbound_dataplane::{GuestId, HashKeys, Packet, Pool, Snoop, SnoopConfig, TcpMaker};
use tailbound_units::{Bytes, Nanos};

const PACKETS: u32 = 4_000;
const PAYLOAD: usize = 1448;
const START: Nanos = Nanos::from_secs(1);
const GUEST: GuestId = GuestId::first(1);

/// What may be spent on an early-acknowledged segment, beside half an instruction a byte
/// for its checksum; and on a segment of the guest.
const EARLY: u64 = 300 + PAYLOAD as u64 / 2;
const OUT: u64 = 120;

fn limit(per_packet: u64) -> LibraryBenchmarkConfig {
    LibraryBenchmarkConfig::default()
        .tool(Callgrind::default().hard_limits([(EventKind::Ir, per_packet * u64::from(PACKETS))]))
        .clone()
}

/// A segment over IPv4 with timestamps, as Linux sends it; its checksum is right.
fn segment(pool: &Pool, to_guest: bool, peer: u32, seq: u32, ack: u32, payload: usize) -> Packet {
    let [a, b, c, d] = peer.to_be_bytes();
    let (guest, peer) = ([10, 0, 0, 1], [10 + a, b, c, d]);
    let (from, to, ports) = if to_guest {
        (peer, guest, [9_u16, 80])
    } else {
        (guest, peer, [80_u16, 9])
    };
    let flags = if ack == 1 && seq == 0 { 0x12 } else { 0x10 };
    let mut tcp = ports.map(u16::to_be_bytes).concat();
    tcp.extend(seq.to_be_bytes());
    tcp.extend(ack.to_be_bytes());
    tcp.extend([0x80, flags, 0xff, 0xff, 0, 0, 0, 0]);
    tcp.extend([1, 1, 8, 10, 0, 0, 0, 9, 0, 0, 0, 9]);
    tcp.resize(32 + payload, 5);
    let mut sum = 6 + tcp.len() as u32;
    for pair in [&from[..], &to, &tcp].concat().chunks(2) {
        sum += u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0));
    }
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    tcp[16..18].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0];
    frame.extend((20 + tcp.len() as u16).to_be_bytes());
    frame.extend([0, 1, 0x40, 0, 64, 6, 0, 0]);
    frame.extend(from);
    frame.extend(to);
    frame.extend(tcp);
    let start = Packet::HEADROOM;
    let mut buffer = pool.buffer(start + frame.len());
    buffer[start..start + frame.len()].copy_from_slice(&frame);
    let source = (!to_guest).then_some(GUEST);
    Packet::new(buffer, start, frame.len(), None, source).expect("well formed")
}

/// A guest with connections, of which so many are to get segments in turn.
struct Guest {
    snoop: Snoop<Packet>,
    segments: Vec<Packet>,
    /// Keeps the buffers that come back.
    pool: Pool,
}

/// The connections that get segments.
const BUSY: u32 = 100;

fn guest(flows: u32) -> Guest {
    let pool = Pool::with_keys(HashKeys::FIXED);
    let maker = TcpMaker {
        pool: pool.clone(),
        guest: GUEST,
    };
    let config = SnoopConfig {
        flows: flows as usize,
        flow: Bytes(1 << 30),
        guest: Bytes(1 << 31),
        ..SnoopConfig::default()
    };
    let mut snoop = Snoop::new(config, maker);
    for peer in 0..flows {
        let answer = segment(&pool, false, peer, 0, 1, 0);
        snoop.handle_egress(START, answer, Origin::OUTSIDE);
    }
    let step = flows / BUSY;
    let segments = (0..PACKETS).map(|n| {
        let seq = 1 + n / BUSY * PAYLOAD as u32;
        segment(&pool, true, n % BUSY * step, seq, 1, PAYLOAD)
    });
    let segments = segments.collect();
    // Buffers for what is kept and for acknowledgements.
    let warm: Vec<_> = (0..3 * PACKETS).map(|_| pool.buffer(Pool::SMALL)).collect();
    drop(warm);
    Guest {
        snoop,
        segments,
        pool,
    }
}

fn take_in(mut guest: Guest) -> Guest {
    let mut now = START;
    for frame in guest.segments.drain(..) {
        now += Nanos::from_micros(1);
        black_box(guest.snoop.handle_ingress(now, black_box(frame)));
        guest.snoop.handle_placed(Placed::All);
        black_box(guest.snoop.poll_to_peer());
    }
    assert_eq!(guest.snoop.stats().early, u64::from(PACKETS));
    guest
}

#[library_benchmark]
#[bench::of_100(args = (guest(100)), config = limit(EARLY))]
#[bench::of_a_million(args = (guest(1_000_000)), config = limit(EARLY))]
fn early(guest: Guest) -> Guest {
    take_in(guest)
}

#[library_benchmark]
#[bench::bare(args = (guest(100)))]
fn checksum(guest: Guest) -> Guest {
    for frame in &guest.segments {
        black_box(black_box(frame).is_intact());
    }
    guest
}

/// A guest that answers what was acknowledged for it.
fn answering() -> (Guest, Vec<Packet>) {
    let guest = take_in(guest(100));
    let answers = (0..PACKETS).map(|n| {
        let ack = 1 + (n / BUSY + 1) * PAYLOAD as u32;
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

//! Instructions for each packet, counted by valgrind: reproducible on a busy computer.
//!
//! Each benchmark runs [`PACKETS`] packets through a warm mechanism (flows known, buffers in the
//! pool), so its count divided by that number is the cost of a packet. A bare loop of the same
//! structure runs for comparison; the difference is the cost of the mechanism. The limits are the
//! documented budgets on top of the bare loop, so a run above a budget fails. Tables have fixed
//! hash keys, so that all runs have the same counts.
//!
//! Needs valgrind and `gungraun-runner` of the same version as the crate.

#![allow(missing_docs, reason = "the benchmark macros write public items")]

use gungraun::prelude::*;
use gungraun::{Callgrind, EventKind};
use std::collections::VecDeque;
use std::hint::black_box;
use tailbound_dataplane::shaper::WindowConfig;
use tailbound_dataplane::{
    Classes, Classifier, Fabric, FqCodelConfig, Frame, GuestId, HashKeys, MeterConfig, NicConfig,
    Packet, Pipeline, PipelineConfig, Pool, Promise, Queue, QueueConfig, QueueStats, Shaper,
    ShaperConfig,
};
use tailbound_units::{Nanos, Rate};

#[path = "../src/testing/frames.rs"]
mod frames;
#[path = "../src/testing/tcp.rs"]
mod tcp;
use tcp::Tcp;

/// Packets (or segments) in one run: at 12 us each, the arrivals of 67 ms, the longest cycle of any
/// measured mechanism (the meter's order of flows).
const PACKETS: u64 = 5_580;
/// Segments of one 64 KB packet.
const SEGMENTS: u64 = 45;
/// Headers and payload of one segment.
const HEADERS: usize = 66;
const PAYLOAD: usize = 1448;
const START: Nanos = Nanos::from_secs(1);

/// Cost of the bare loops for each packet, rounded down: the loop, moving a packet out of a queue
/// and into it, copying a segment's headers and payload.
const LOOP: u64 = 8;
const MOVES: u64 = 34;
const COPY: u64 = 210;

fn limit(per_packet: u64) -> LibraryBenchmarkConfig {
    LibraryBenchmarkConfig::default()
        .tool(Callgrind::default().hard_limits([(EventKind::Ir, per_packet * PACKETS)]))
        .clone()
}

fn packet(pool: &Pool, tcp: &Tcp, guest: u32, destination: u8) -> Packet {
    let mut frame = tcp.frame();
    frame[33] = destination;
    let start = Packet::HEADROOM;
    let mut buffer = pool.buffer(start + frame.len());
    buffer[start..start + frame.len()].copy_from_slice(&frame);
    let source = Some(GuestId::first(guest));
    Packet::new(buffer, start, frame.len(), Some(tcp.virtio()), source).expect("well formed")
}

/// Full frames of four guests to sixteen addresses each, in turn.
fn frames(count: u64) -> Vec<Packet> {
    let pool = Pool::with_keys(HashKeys::FIXED);
    let tcp = Tcp {
        payload: PAYLOAD,
        gso: 0,
        ..Tcp::default()
    };
    (0..count)
        .map(|i| packet(&pool, &tcp, i as u32 % 4, (i / 4 % 16) as u8))
        .collect()
}

/// A meter that knows the flows of the frames, and classifies them as small and their guests as
/// within their budgets: the mark is written and the header checksum updated.
fn warm_meter() -> (Classifier, Vec<Packet>) {
    let config = MeterConfig {
        rate: Rate::from_mbit(1000),
        link: Some(Rate::from_mbit(10_000)),
        ..MeterConfig::default()
    };
    let classes = Some(Classes::of(Fabric::SmallFlowsFirst));
    let mut classifier = Classifier::new(classes, Some(&config), HashKeys::FIXED);
    classifier.set_guests(4);
    for mut frame in frames(64) {
        classifier.classify(START, &mut frame, Promise::Nothing);
    }
    (classifier, frames(PACKETS))
}

#[library_benchmark]
#[bench::high(args = (warm_meter()), config = limit(119 + LOOP))]
fn meter_and_tag(input: (Classifier, Vec<Packet>)) -> (Classifier, Vec<Packet>) {
    let (mut classifier, mut frames) = input;
    let mut now = START;
    for frame in &mut frames {
        now += Nanos::from_micros(12);
        classifier.classify(now, black_box(frame), Promise::Nothing);
    }
    assert_eq!(classifier.stats().small, PACKETS + 64);
    (classifier, frames)
}

#[library_benchmark]
#[bench::bare(args = (frames(PACKETS)))]
fn meter_and_tag_bare(mut frames: Vec<Packet>) -> Vec<Packet> {
    let mut now = START;
    for frame in &mut frames {
        now += Nanos::from_micros(12);
        black_box((now, black_box(frame)));
    }
    frames
}

/// A queue in which four guests have a backlog below `CoDel`'s target.
fn warm_queue() -> Queue<Packet> {
    let mut queue = Queue::new(&QueueConfig::FqCodel(FqCodelConfig::default()));
    let mut stats = QueueStats::default();
    for frame in frames(64) {
        queue.push(START, frame, &mut stats);
    }
    queue
}

#[library_benchmark]
#[bench::backlogged(args = (warm_queue()), config = limit(300 + MOVES))]
fn fq_codel(mut queue: Queue<Packet>) -> (Queue<Packet>, QueueStats) {
    let mut stats = QueueStats::default();
    let mut now = START;
    for _ in 0..PACKETS {
        now += Nanos::from_micros(12);
        if let Some(queued) = queue.pull(now, &mut stats) {
            queue.push(now, black_box(queued.frame), &mut stats);
        }
    }
    assert_eq!(stats.pulled.packets, PACKETS);
    (queue, stats)
}

#[library_benchmark]
#[bench::bare(args = (frames(64).into()))]
fn fq_codel_bare(mut queue: VecDeque<Packet>) -> VecDeque<Packet> {
    for _ in 0..PACKETS {
        if let Some(frame) = queue.pop_front() {
            queue.push_back(black_box(frame));
        }
    }
    queue
}

/// A shaper with a smooth window in which frames of a guest wait for the bucket.
fn warm_shaper() -> Shaper<Packet> {
    let config = ShaperConfig::SmoothWindow(WindowConfig::new(Rate::from_mbit(1000)));
    let mut shaper = Shaper::new(&config).expect("sound");
    for frame in frames(64) {
        shaper.push(START, frame);
    }
    shaper
}

#[library_benchmark]
#[bench::smooth(args = (warm_shaper()), config = limit(120 + MOVES))]
fn shaper(mut shaper: Shaper<Packet>) -> Shaper<Packet> {
    let mut now = START;
    for _ in 0..PACKETS {
        now += Nanos::from_micros(13);
        if let Some(queued) = shaper.pull(now) {
            shaper.push(now, black_box(queued.frame));
        }
    }
    assert_eq!(shaper.stats().sent.packets, PACKETS);
    shaper
}

/// Returns 64 KB packets for [`PACKETS`] segments, and a pool with buffers for them.
fn large_packets(v6: bool) -> (Pool, Vec<Packet>) {
    let pool = Pool::with_keys(HashKeys::FIXED);
    let tcp = Tcp {
        v6,
        ..Tcp::default()
    };
    let packets = (0..PACKETS / SEGMENTS).map(|i| packet(&pool, &tcp, i as u32, 2));
    let packets = packets.collect();
    // Afterwards, because buffers of another size would be freed for those of the packets.
    let warm: Vec<_> = (0..PACKETS).map(|_| pool.buffer(Pool::SMALL)).collect();
    drop(warm);
    (pool, packets)
}

/// Packets, their pool, and room for their segments.
struct ToSegment {
    packets: Vec<Packet>,
    segments: Vec<Packet>,
    /// Without a handle the pool would free each buffer.
    pool: Pool,
}

fn to_segment(v6: bool) -> ToSegment {
    let (pool, packets) = large_packets(v6);
    ToSegment {
        packets,
        segments: Vec::with_capacity(PACKETS as usize),
        pool,
    }
}

#[library_benchmark]
#[bench::tcp4(args = (to_segment(false)), config = limit(150 + COPY))]
#[bench::tcp6(args = (to_segment(true)), config = limit(150 + COPY))]
fn segment(input: ToSegment) -> (Pool, Vec<Packet>) {
    let ToSegment {
        packets,
        mut segments,
        pool,
    } = input;
    for packet in packets {
        packet.segment(|segment| segments.push(segment));
    }
    assert_eq!(segments.len() as u64, PACKETS);
    (pool, segments)
}

#[library_benchmark]
#[bench::copies(args = (large_packets(false).1, vec![0; 2048]))]
fn segment_bare(packets: Vec<Packet>, mut out: Vec<u8>) -> (Vec<Packet>, Vec<u8>) {
    for packet in &packets {
        let (headers, payload) = packet.bytes().split_at(HEADERS);
        for chunk in payload.chunks_exact(PAYLOAD) {
            out[16..16 + HEADERS].copy_from_slice(black_box(headers));
            out[16 + HEADERS..16 + HEADERS + PAYLOAD].copy_from_slice(black_box(chunk));
            black_box(&mut out);
        }
    }
    (packets, out)
}

struct Host {
    pipeline: Pipeline<Packet>,
    packets: Vec<Packet>,
    /// Holds the returned buffers.
    pool: Pool,
}

/// Returns a warm host, and packets of its pool.
fn warm_pipeline() -> Host {
    let config = PipelineConfig {
        meter: Some(MeterConfig::default()),
        segment: true,
        queue: QueueConfig::FqCodel(FqCodelConfig::default()),
        nic: Some(NicConfig::new(Rate::from_mbit(10_000))),
        classes: Some(Classes::of(Fabric::SmallFlowsFirst)),
        limit: None,
    };
    let pipeline = Pipeline::with_keys(&config, HashKeys::FIXED);
    let (pool, packets) = large_packets(false);
    let mut host = Host {
        pipeline,
        packets,
        pool,
    };
    host.forward(START);
    (host.pool, host.packets) = large_packets(false);
    host
}

impl Host {
    /// Forwards 64 KB packets as segments at 10 Gbit/s.
    fn forward(&mut self, mut now: Nanos) {
        for packet in self.packets.drain(..) {
            self.pipeline.push(now, packet);
            while let Some(at) = self.pipeline.poll_at() {
                now = at.max(now);
                black_box(self.pipeline.pull(now));
            }
        }
    }
}

#[library_benchmark]
#[bench::patched(args = (warm_pipeline()))]
fn pipeline(mut host: Host) -> Host {
    host.forward(START + Nanos::from_millis(2));
    host
}

library_benchmark_group!(
    name = instructions,
    benchmarks = [
        meter_and_tag,
        meter_and_tag_bare,
        fq_codel,
        fq_codel_bare,
        shaper,
        segment,
        segment_bare,
        pipeline
    ]
);

main!(library_benchmark_groups = instructions);

//! Instructions a frame and a void in the pacer, counted as in `instructions`.
//!
//! A program of its own, so that each is compiled as if the other were not there.

#![allow(missing_docs, reason = "the benchmark macros write public items")]

use gungraun::prelude::*;
use gungraun::{Callgrind, EventKind};
use std::collections::VecDeque;
use std::hint::black_box;
use tailbound_dataplane::pacer::{Guarantee, Paced, Pacer, PacerConfig};
use tailbound_dataplane::{Frame, GuestId, HashKeys, Packet, Pool};
use tailbound_units::{Bytes, Nanos, Rate};

#[path = "../src/testing/tcp.rs"]
mod tcp;
use tcp::Tcp;

/// Frames, or voids, in one run.
const PACKETS: u64 = 5_000;
const START: Nanos = Nanos::from_secs(1);
/// What moving a packet out of a queue and into it costs, rounded down.
const MOVES: u64 = 60;

/// What the frames between the voids cost a void, rounded down.
const ALONE: u64 = 40;

fn limit(per_packet: u64) -> LibraryBenchmarkConfig {
    LibraryBenchmarkConfig::default()
        .tool(Callgrind::default().hard_limits([(EventKind::Ir, per_packet * PACKETS)]))
        .clone()
}

/// The payload of a full frame.
const FULL: usize = 1448;

/// A frame of a guest to one of its addresses.
fn packet(pool: &Pool, guest: u32, destination: u8, payload: usize) -> Packet {
    let tcp = Tcp {
        payload,
        gso: 0,
        ..Tcp::default()
    };
    let mut frame = tcp.frame();
    frame[33] = destination;
    let start = Packet::HEADROOM;
    let mut buffer = pool.buffer(start + frame.len());
    buffer[start..start + frame.len()].copy_from_slice(&frame);
    let source = Some(GuestId::first(guest));
    Packet::new(buffer, start, frame.len(), Some(tcp.virtio()), source).expect("well formed")
}

const LINK: Rate = Rate::from_mbit(10_000);

/// Guests that always have frames here, and a wire.
struct Host {
    pacer: Pacer<Packet>,
    now: Nanos,
    /// Frames that have been sent, to be sent again.
    free: VecDeque<Packet>,
    sent: u64,
}

/// `guests` share nine tenths of the link, and send one frame at a time to each of
/// up to sixteen addresses. These are limited to `limit` each, if any; where that
/// is less than a sixteenth of the share, frames wait for it.
fn backlogged(guests: u32, limit: Option<Rate>) -> Host {
    sending(guests, limit, [FULL; 2])
}

/// The same with payloads of two lengths in turn.
fn sending(guests: u32, limit: Option<Rate>, payloads: [usize; 2]) -> Host {
    let config = PacerConfig {
        voids: false,
        ..PacerConfig::new(LINK)
    };
    let mut pacer = Pacer::with_keys(&config, HashKeys::FIXED).expect("sound");
    // Shares differ, by up to one and a half times.
    let unit = LINK.0 / 10 * 9 / u64::from(5 * guests);
    let guarantee = |guest: u32| Guarantee {
        horizon: Nanos::from_millis(200),
        mark: None,
        ..Guarantee::new(Rate(unit * u64::from(4 + guest % 3)), Bytes(30_000), LINK)
    };
    let pool = Pool::new();
    let mut free = VecDeque::new();
    for guest in 0..guests {
        pacer
            .set_guest(START, GuestId::first(guest), Some(&guarantee(guest)))
            .expect("sound");
    }
    let each = (5000 / guests).clamp(1, 16);
    for to in 0..each {
        for guest in 0..guests {
            let frame = packet(&pool, guest, to as u8, payloads[to as usize % 2]);
            let flow = frame.flow().expect("IPv4");
            pacer
                .set_destination(START, GuestId::first(guest), flow.destination, limit)
                .expect("sound");
            free.push_back(frame);
        }
    }
    let mut host = Host {
        pacer,
        now: START,
        free,
        sent: 0,
    };
    // Twice around, so that bursts are over and everything is warm.
    host.send(2 * PACKETS);
    host.sent = 0;
    host
}

impl Host {
    /// Sends so many frames, each of them again as soon as it is out.
    fn send(&mut self, frames: u64) {
        while self.sent < frames {
            while let Some(frame) = self.free.pop_front() {
                if let Err(blocked) = self.pacer.enqueue(self.now, black_box(frame)) {
                    unreachable!("held until {}", blocked.retry_at);
                }
            }
            let Self {
                pacer, free, sent, ..
            } = self;
            pacer.batch(self.now).for_each(|paced| {
                if let Paced::Guaranteed { frame, .. } = paced {
                    *sent += 1;
                    free.push_back(black_box(frame));
                }
            });
            if self.free.is_empty() {
                self.now = self.pacer.poll_at().expect("frames wait").max(self.now);
            }
        }
    }
}

fn queue() -> VecDeque<Packet> {
    let pool = Pool::new();
    (0..64)
        .map(|guest| packet(&pool, guest % 4, 2, FULL))
        .collect()
}

// What the loop around the pacer costs: frames move out of a queue, and back.
#[library_benchmark]
#[bench::moves(args = (queue()))]
fn bare(mut free: VecDeque<Packet>) -> VecDeque<Packet> {
    for _ in 0..PACKETS {
        if let Some(frame) = free.pop_front() {
            let frame = black_box(frame);
            free.push_back(black_box(frame));
        }
    }
    free
}

#[library_benchmark]
#[bench::chain(args = (backlogged(4, Some(Rate::from_mbit(2000)))), config = limit(400 + MOVES))]
#[bench::without_destinations(args = (backlogged(4, None)), config = limit(325 + MOVES))]
#[bench::lengths_in_turn(args = (sending(4, Some(Rate::from_mbit(2000)), [FULL, 600])), config = limit(425 + MOVES))]
#[bench::waiting_for_destinations(args = (backlogged(4, Some(Rate::from_mbit(100)))), config = limit(620 + MOVES))]
#[bench::ten_guests(args = (backlogged(10, Some(Rate::from_mbit(100)))))]
#[bench::many_guests(args = (backlogged(5000, Some(Rate::from_mbit(2)))))]
fn pacer(mut host: Host) -> Host {
    host.send(PACKETS);
    host
}

/// A guest of 100 Mbit/s on a wire of 10 Gbit/s, with frames for thirty
/// milliseconds: voids for half a batch before each, where there are voids.
fn slow(voids: bool) -> Pacer<Packet> {
    let config = PacerConfig {
        voids,
        ..PacerConfig::new(LINK)
    };
    let mut pacer = Pacer::with_keys(&config, HashKeys::FIXED).expect("sound");
    let rate = Rate::from_mbit(100);
    let guarantee = Guarantee {
        horizon: Nanos::from_millis(100),
        ..Guarantee::new(rate, Bytes(1538), rate)
    };
    pacer
        .set_guest(Nanos::ZERO, GuestId::first(0), Some(&guarantee))
        .expect("sound");
    let pool = Pool::new();
    for _ in 0..=PACKETS / 20 {
        let frame = packet(&pool, 0, 2, FULL);
        pacer.enqueue(START, frame).expect("within the horizon");
    }
    pacer
}

// Twenty-one voids a frame; the bare run has the same frames alone.
#[library_benchmark]
#[bench::between_frames(args = (slow(true)), config = limit(40 + ALONE))]
#[bench::bare(args = (slow(false)))]
fn void(mut pacer: Pacer<Packet>) -> Pacer<Packet> {
    let mut voids = 0_u64;
    while let Some(at) = pacer.poll_at() {
        pacer.batch(at).for_each(|paced| {
            if let Paced::Void { wire, .. } = paced {
                voids += u64::from(black_box(wire).0 > 0);
            }
        });
    }
    assert!(voids == 0 || voids.abs_diff(PACKETS) <= 250, "{voids}");
    pacer
}

library_benchmark_group!(name = instructions, benchmarks = [pacer, bare, void]);

main!(library_benchmark_groups = instructions);

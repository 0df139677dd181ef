//! Instructions for each frame and each void in the pacer, counted as in `instructions`.
//!
//! A separate program, so that the compiler optimizes each independently of the other.

#![allow(missing_docs, reason = "the benchmark macros write public items")]

use gungraun::prelude::*;
use gungraun::{Callgrind, EventKind};
use std::collections::VecDeque;
use std::hint::black_box;
use std::sync::Arc;
use tailbound_dataplane::pacer::{
    Guarantee, Home, HostGroups, Pacer, PacerConfig, PacerDrops, Place, WireItem,
};
use tailbound_dataplane::{Frame, GuestId, HashKeys, Packet, Pool};
use tailbound_units::{Bursts, Bytes, Nanos, Rate};

#[path = "../src/testing/frames.rs"]
mod frames;
#[path = "../src/testing/tcp.rs"]
mod tcp;
use tcp::Tcp;

/// Frames, or voids, in one run.
const PACKETS: u64 = 5_000;
const START: Nanos = Nanos::from_secs(1);
/// Cost of moving a packet out of a queue and into it, rounded down.
const MOVES: u64 = 31;

/// Voids in one run.
const VOIDS: u64 = 3_000;

/// Cost of the frames between the voids for each void, rounded down.
const ALONE: u64 = 40;

fn limit(per_packet: u64) -> LibraryBenchmarkConfig {
    limit_of(PACKETS, per_packet)
}

fn limit_of(count: u64, each: u64) -> LibraryBenchmarkConfig {
    LibraryBenchmarkConfig::default()
        .tool(Callgrind::default().hard_limits([(EventKind::Ir, each * count)]))
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

/// Hosts that are alone in their racks and pods: these need no bucket of their own.
fn racks_of_one() -> Arc<HostGroups> {
    let groups = (0..=256).map(|host| (host, vec![host, 1000 + host]));
    Arc::new(groups.collect())
}

/// A wire and guests that always have waiting frames.
struct Host {
    pacer: Pacer<Packet>,
    now: Nanos,
    /// Frames that will arrive, and those that have been sent.
    coming: VecDeque<Packet>,
    sent: Vec<Packet>,
    /// Number of frames that wait, and number of frames in an arriving burst.
    window: usize,
    burst: usize,
}

/// Load of four or more guests that share nine tenths of the link.
#[derive(Clone, Copy)]
struct Load {
    guests: u32,
    /// The limit of each of up to sixteen addresses, if any; below a sixteenth of a guest's share,
    /// frames wait for it.
    limit: Option<Rate>,
    /// Number of consecutive frames of one guest, and of those to one address.
    burst: u64,
    train: u64,
    /// The payloads of a guest's frames, in turn.
    payloads: [usize; 2],
    /// Number of addresses on one host, which may get one burst; `None` without a place.
    together: Option<u64>,
}

const LOAD: Load = Load {
    guests: 4,
    limit: Some(Rate::from_mbit(2000)),
    burst: 16,
    train: 1,
    payloads: [FULL; 2],
    together: None,
};

impl Load {
    /// Returns `count` frames in order of arrival.
    fn frames(self, pool: &Pool, count: u64) -> impl Iterator<Item = Packet> {
        let each = u64::from((5000 / self.guests).clamp(1, 16));
        let guests = u64::from(self.guests);
        (0..count).map(move |n| {
            let (burst, place) = (n / self.burst, n % self.burst);
            let (guest, number) = (burst % guests, burst / guests * self.burst + place);
            let (to, place) = (number / self.train % each, number % self.train);
            let payload = self.payloads[((to + place) % 2) as usize];
            packet(pool, guest as u32, to as u8, payload)
        })
    }

    /// Returns a warm host that will send [`PACKETS`] frames.
    fn host(self) -> Host {
        let config = PacerConfig {
            voids: false,
            memory: Bytes(1 << 34),
            ..PacerConfig::strict(LINK)
        };
        let mut pacer = Pacer::with_keys(&config, HashKeys::FIXED).expect("sound");
        // Shares differ by a factor of up to one and a half.
        let unit = LINK.0 / 10 * 9 / u64::from(5 * self.guests);
        for guest in 0..self.guests {
            let share = Rate(unit * u64::from(4 + guest % 3));
            let guarantee = Guarantee {
                bursts: self.together.map_or(Bursts::PerReceiver, |_| Bursts::ONE),
                ..Guarantee::new(share, Bytes(30_000), LINK)
            };
            let guarantee = Guarantee {
                mark: guarantee.mark.filter(|_| self.together.is_none()),
                ..guarantee
            };
            pacer
                .set_guest(START, GuestId::first(guest), Some(&guarantee))
                .expect("sound");
        }
        let pool = Pool::new();
        let window = (u64::from(self.guests) * 16 * self.train).min(5000);
        let all = u64::from(self.guests) * 16 * self.train;
        for frame in self.frames(&pool, all) {
            let flow = frame.flow().expect("IPv4");
            pacer
                .set_destination(START, flow.source, flow.destination, self.limit)
                .expect("sound");
            if let Some(together) = self.together {
                let machine = flow.destination as u64 % 256;
                let host = machine / together;
                let place = Place { machine, host };
                pacer.set_place(flow.source, flow.destination, Some(place));
                let home = Home {
                    host: 256,
                    machines: 17,
                    groups: racks_of_one(),
                };
                pacer.set_home(flow.source, Some(home));
            }
        }
        let mut host = Host {
            pacer,
            now: START,
            coming: self.frames(&pool, 2 * PACKETS).collect(),
            sent: Vec::new(),
            window: window as usize,
            burst: self.burst as usize,
        };
        // Bursts are over, and all code and data are warm.
        host.send();
        host.coming = self.frames(&pool, PACKETS).collect();
        host.sent = Vec::with_capacity(2 * PACKETS as usize);
        host
    }
}

impl Host {
    /// Sends as many frames as arrive, so that the backlog stays constant.
    fn send(&mut self) {
        while !self.coming.is_empty() {
            while self.pacer.waiting() < self.window && !self.coming.is_empty() {
                let frames = Coming {
                    frames: &mut self.coming,
                    left: self.burst,
                };
                self.pacer.enqueue_burst(self.now, frames, |_, _, _| {});
            }
            let sent = &mut self.sent;
            self.pacer.batch(self.now).for_each(|paced| {
                if let WireItem::Guaranteed { frame, .. } = paced {
                    sent.push(black_box(frame));
                }
            });
            self.now = self.pacer.poll_at().expect("frames wait").max(self.now);
        }
        let drops = self.pacer.stats().drops;
        assert_eq!(drops, PacerDrops::default());
    }
}

/// A burst of frames.
struct Coming<'c> {
    frames: &'c mut VecDeque<Packet>,
    left: usize,
}

impl Iterator for Coming<'_> {
    type Item = Packet;

    #[inline]
    fn next(&mut self) -> Option<Packet> {
        self.left = self.left.checked_sub(1)?;
        Some(black_box(self.frames.pop_front()?))
    }
}

fn queue() -> VecDeque<Packet> {
    let pool = Pool::new();
    LOAD.frames(&pool, PACKETS).collect()
}

// Cost of the loop around the pacer: frames move from one queue into another.
#[library_benchmark]
#[bench::moves(args = (queue(), Vec::with_capacity(PACKETS as usize)))]
fn bare(mut coming: VecDeque<Packet>, mut sent: Vec<Packet>) -> Vec<Packet> {
    while let Some(frame) = coming.pop_front() {
        let frame = black_box(frame);
        sent.push(black_box(frame));
    }
    sent
}

#[library_benchmark]
#[bench::chain(args = (LOAD.host()), config = limit(300 + MOVES))]
#[bench::chain_in_trains(args = (Load { train: 8, ..LOAD }.host()), config = limit(250 + MOVES))]
#[bench::without_destinations(args = (Load { limit: None, ..LOAD }.host()), config = limit(250 + MOVES))]
#[bench::lengths_in_turn(args = (Load { payloads: [FULL, 600], ..LOAD }.host()), config = limit(330 + MOVES))]
#[bench::waiting_for_destinations(args = (Load { limit: Some(Rate::from_mbit(100)), ..LOAD }.host()), config = limit(400 + MOVES))]
#[bench::by_host(args = (Load { together: Some(4), ..LOAD }.host()), config = limit(360 + MOVES))]
#[bench::by_host_in_trains(args = (Load { together: Some(4), train: 8, ..LOAD }.host()), config = limit(310 + MOVES))]
#[bench::waiting_by_host(args = (Load { together: Some(4), limit: Some(Rate::from_mbit(100)), ..LOAD }.host()), config = limit(460 + MOVES))]
#[bench::many_guests(args = (Load { guests: 5000, burst: 1, limit: Some(Rate::from_mbit(2)), ..LOAD }.host()))]
fn pacer(mut host: Host) -> Host {
    host.send();
    host
}

/// Returns a guest of 100 Mbit/s on a wire of 10 Gbit/s, with frames for twenty milliseconds: with
/// `voids`, voids precede each frame for half a batch.
fn slow(voids: bool) -> Pacer<Packet> {
    let config = PacerConfig {
        voids,
        ..PacerConfig::strict(LINK)
    };
    let mut pacer = Pacer::with_keys(&config, HashKeys::FIXED).expect("sound");
    let rate = Rate::from_mbit(100);
    let guarantee = Guarantee::new(rate, Bytes(1538), rate);
    pacer
        .set_guest(Nanos::ZERO, GuestId::first(0), Some(&guarantee))
        .expect("sound");
    let pool = Pool::new();
    for _ in 0..=VOIDS / 20 {
        pacer.enqueue(START, packet(&pool, 0, 2, FULL));
    }
    pacer
}

// Twenty-one voids for each frame; the bare run has only the same frames.
#[library_benchmark]
#[bench::between_frames(args = (slow(true)), config = limit_of(VOIDS, 15 + ALONE))]
#[bench::bare(args = (slow(false)))]
fn void(mut pacer: Pacer<Packet>) -> Pacer<Packet> {
    let mut voids = 0_u64;
    while let Some(at) = pacer.poll_at() {
        pacer.batch(at).for_each(|paced| {
            if let WireItem::Void { wire, .. } = paced {
                voids += u64::from(black_box(wire).0 > 0);
            }
        });
    }
    assert!(voids == 0 || voids.abs_diff(VOIDS) <= 150, "{voids}");
    pacer
}

library_benchmark_group!(name = instructions, benchmarks = [pacer, bare, void]);

main!(library_benchmark_groups = instructions);

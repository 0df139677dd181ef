//! The price of guests that send bulk in the first class: by how much a neighbour's small flows take
//! longer, in virtual time. The uplink has a meter, a queue that serves small flows first, and a NIC
//! with a queue behind that.
//!
//! `cargo test -p tailbound-dataplane --test first_class -- --ignored --nocapture` prints the table
//! of docs/explanation/dataplane.md.

use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use tailbound_dataplane::meter::Share;
use tailbound_dataplane::{
    Class, Classes, Fabric, FlowKey, Frame, GuestId, HashKeys, Mark, MeterConfig, NicConfig,
    Pipeline, PipelineConfig, PriorityConfig, QueueConfig,
};
use tailbound_units::{Bytes, Nanos, Rate};

const START: Nanos = Nanos::from_secs(5);
const NEVER: Nanos = Nanos(u64::MAX);
/// A full frame, and what the wire spends on it beside.
const FULL: usize = 1514;
const OVERHEAD: usize = 24;
/// The victim's small flows are of 10 KB each, and take a fiftieth of the link.
const FLOW_FRAMES: usize = 7;
const FLOWS_SHARE: f64 = 0.02;
/// The rate of each flow of the others: small by itself.
const SPREAD: f64 = 2e6;

/// A frame: of a guest that sends bulk, or the last or another one of a small flow of the victim's.
struct Record {
    sender: Sender,
    sent: Nanos,
    class: Class,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sender {
    Bulk { guest: u32, address: u64 },
    Victim { is_last: bool },
}

impl Frame for Record {
    fn len(&self) -> usize {
        FULL
    }
    /// The victim is within its budget: its frames keep the first class, as those from outside do.
    fn source(&self) -> Option<GuestId> {
        match self.sender {
            Sender::Bulk { guest, .. } => Some(GuestId::first(guest)),
            Sender::Victim { .. } => None,
        }
    }
    fn flow(&self) -> Option<FlowKey> {
        match self.sender {
            Sender::Bulk { guest, address } => Some(FlowKey {
                source: GuestId::first(guest),
                destination: 0xffff_0a00_0000 + u128::from(address),
            }),
            Sender::Victim { .. } => None,
        }
    }
    fn class(&self) -> Class {
        self.class
    }
    fn set_class(&mut self, class: Class, _: Mark) {
        self.class = class;
    }
}

fn exponential(random: &mut Pcg64Mcg, mean: f64) -> Nanos {
    Nanos((-mean * (1.0 - random.random::<f64>()).ln()) as u64)
}

/// The addresses to which the others send their bulk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bulk {
    /// One each: none of it is of the first class.
    Plain,
    /// Many: as much of it is of the first class as their budgets allow.
    Spread,
}

#[derive(Debug, Clone, Copy)]
struct Scene {
    link: Rate,
    guests: u32,
    /// A part of the link that the budgets are together; `None`: the default.
    budgets: Option<f64>,
    /// The limit of the NIC's queue; `None`: the default, 300 us.
    nic: Option<Bytes>,
}

/// The seeds of the random numbers by which each scene runs.
const SEEDS: [u64; 3] = [1, 2, 3];
/// The number of the victim's small flows by one seed. A 99th percentile takes a thousand by all of them.
const FLOWS: usize = 1_000;

/// The 99th percentile of the victim's small flows in microseconds, and the part of the wire that the
/// others' first class had.
struct Outcome {
    p99: f64,
    first: f64,
}

fn pipeline(scene: Scene) -> Pipeline<Record> {
    let part = |part: f64| Rate((scene.link.0 as f64 * part) as u64);
    let each = |all: f64| part(all / f64::from(scene.guests));
    // The bucket of all is for the same part.
    let link = scene
        .budgets
        .map_or(scene.link, |all| Rate(part(all).0 * Share::OF_LINK));
    let config = PipelineConfig {
        meter: Some(MeterConfig {
            link: Some(link),
            budget: scene.budgets.map(each),
            ..MeterConfig::default()
        }),
        queue: QueueConfig::Priority(PriorityConfig::default()),
        nic: Some(NicConfig {
            overhead: Bytes(OVERHEAD as u64),
            limit: scene.nic,
            ..NicConfig::new(scene.link)
        }),
        classes: Some(Classes::of(Fabric::SmallFlowsFirst)),
        ..PipelineConfig::default()
    };
    let mut pipeline = Pipeline::with_keys(&config, HashKeys::FIXED);
    pipeline.set_guests(scene.guests as usize);
    pipeline
}

/// The guests that send bulk, together 1.5 times the link: full frames at a constant rate, each guest
/// from a moment of its own on.
struct Others {
    next: Vec<f64>,
    counts: Vec<u64>,
    order: BinaryHeap<Reverse<(u64, usize)>>,
    gap: f64,
    addresses: u64,
}

impl Others {
    fn new(scene: Scene, bulk: Bulk, within: f64, random: &mut Pcg64Mcg) -> Self {
        let others = scene.guests - 1;
        let each = scene.link.0 as f64 * 1.5 / f64::from(others);
        let next: Vec<f64> = (0..others)
            .map(|_| START.0 as f64 + within * random.random::<f64>())
            .collect();
        let order = (0..).zip(&next);
        Self {
            order: order
                .map(|(guest, at)| Reverse((*at as u64, guest)))
                .collect(),
            counts: vec![0; others as usize],
            next,
            gap: (FULL + OVERHEAD) as f64 * 8e9 / each,
            addresses: match bulk {
                Bulk::Plain => 1,
                Bulk::Spread => (each / SPREAD).ceil() as u64,
            },
        }
    }

    fn at(&self) -> Nanos {
        self.order.peek().map_or(NEVER, |it| Nanos(it.0.0))
    }

    fn pop(&mut self) -> Option<Sender> {
        let Reverse((_, guest)) = self.order.pop()?;
        let address = self.counts[guest] % self.addresses;
        self.counts[guest] += 1;
        self.next[guest] += self.gap;
        self.order.push(Reverse((self.next[guest] as u64, guest)));
        Some(Sender::Bulk {
            guest: guest as u32 + 1,
            address,
        })
    }
}

/// Runs a scene by all seeds.
fn watch(scene: Scene, bulk: Bulk) -> Outcome {
    let (mut took, mut first) = (Vec::new(), 0.0);
    for seed in SEEDS {
        let (its, part) = run(scene, bulk, seed);
        took.extend(its);
        first += part / SEEDS.len() as f64;
    }
    took.sort_by(f64::total_cmp);
    let rank = (took.len() * 99).div_ceil(100);
    let p99 = took[rank - 1] / 1e3;
    Outcome { p99, first }
}

/// Runs a scene until all of its small flows were seen. Returns their times in nanoseconds, and the part
/// of the wire that the others' first class had.
fn run(scene: Scene, bulk: Bulk, seed: u64) -> (Vec<f64>, f64) {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let mut pipeline = pipeline(scene);
    let frame_time = (FULL + OVERHEAD) as f64 * 8e9 / scene.link.0 as f64;
    let gap = frame_time * FLOW_FRAMES as f64 / FLOWS_SHARE;
    // Some checks of large flows, which come every 100 ms. What full buckets are worth at the
    // start is over by then.
    let within = 3e8;
    let counted = START + Nanos(2 * within as u64);
    let mut others = Others::new(scene, bulk, within, &mut random);
    let mut victim = START + exponential(&mut random, gap);
    let (mut wire, mut first, mut took) = (START.0 as f64, 0_u64, Vec::new());
    let (mut now, mut pull_at) = (START, NEVER);
    while took.len() < FLOWS {
        now = now.max(others.at().min(victim).min(pull_at));
        let is_due = pull_at <= now;
        while is_due && let Some(departure) = pipeline.pull(now) {
            let frame = departure.frame;
            wire = wire.max(now.0 as f64) + frame_time;
            match frame.sender {
                _ if frame.sent < counted => {}
                Sender::Victim { is_last: true } => took.push(wire - frame.sent.0 as f64),
                Sender::Victim { is_last: false } => {}
                Sender::Bulk { .. } => first += u64::from(frame.class != Class::Lowest),
            }
        }
        let mut push = |sender, class| {
            let sent = now;
            pipeline.push(
                now,
                Record {
                    sender,
                    sent,
                    class,
                },
            );
        };
        if victim <= now {
            for frame in 1..=FLOW_FRAMES {
                let is_last = frame == FLOW_FRAMES;
                push(Sender::Victim { is_last }, Class::Small);
            }
            victim = now + exponential(&mut random, gap);
        } else if others.at() <= now
            && let Some(sender) = others.pop()
        {
            push(sender, Class::Lowest);
        }
        // A frame behind others changes no departure.
        if is_due || pull_at == NEVER {
            pull_at = pipeline.poll_at().unwrap_or(NEVER);
        }
    }
    let first = first as f64 * frame_time / now.since(counted).0 as f64;
    (took, first)
}

/// The links, numbers of guests and NICs that are looked at: as by default, and one without a queue
/// that bulk could fill.
fn scenes() -> impl Iterator<Item = Scene> {
    let links = [Rate::from_mbit(1_000), Rate::from_mbit(10_000)];
    links.into_iter().flat_map(move |link| {
        [2, 50].into_iter().flat_map(move |guests| {
            [None, Some(Bytes(1))].into_iter().map(move |nic| Scene {
                link,
                guests,
                budgets: None,
                nic,
            })
        })
    })
}

#[test]
fn guests_at_their_budgets_cost_a_neighbours_small_flows_a_fifth_at_most() {
    for scene in scenes() {
        let plain = watch(scene, Bulk::Plain);
        let spread = watch(scene, Bulk::Spread);
        let times = spread.p99 / plain.p99;
        assert!(times <= 1.2, "{times} times as long: {scene:?}");
        assert!(plain.first < 0.01, "{} of the first class", plain.first);
        assert!(spread.first > 0.1, "{} of the first class", spread.first);
    }
}

#[test]
#[ignore = "prints a table"]
fn the_table_compares_budgets_with_latency_of_neighbours() {
    println!("| link | guests | NIC | budgets | first class | p99 without | with | times |");
    for scene in scenes() {
        let plain = watch(scene, Bulk::Plain).p99;
        for part in [0.5, 0.4, 0.3, 0.25, 0.2, 0.1] {
            let budgets = Some(part);
            let seen = watch(Scene { budgets, ..scene }, Bulk::Spread);
            println!(
                "| {} | {} | {:?} | {part} | {:.3} | {plain:.1} us | {:.1} us | {:.2} |",
                scene.link,
                scene.guests,
                scene.nic.map(|limit| limit.0),
                seen.first,
                seen.p99,
                seen.p99 / plain
            );
        }
    }
}

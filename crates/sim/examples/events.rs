//! Speed of the packet-level simulator, compared with loops around a plain binary heap: the event
//! queue alone, then a whole network.
//!
//! `cargo run --release -p tailbound-sim --example events`

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::hint::black_box;
use std::time::{Duration, Instant};
use tailbound_sim::net::{
    CLASSES, Envelope, Fabric, FlowConfig, Frame, Node as _, NodeId, Pattern, PortConfig, Source,
    SourceConfig, Time, TournamentQueue, Wire,
};
use tailbound_units::{Bytes, Nanos, Rate};

/// Number of runs; each figure is the best of them.
const RUNS: usize = 5;

fn main() {
    println!("the queue alone");
    println!("{:>8}  {:>9}  {:>9}  ratio", "nodes", "queue", "heap");
    for nodes in [16, 256, 4_096, 65_536] {
        let queue = best(|| hold_tournament(nodes));
        let heap = best(|| hold_heap(nodes));
        let nanos = |time: Duration| time.as_secs_f64() * 1e9 / f64::from(HOLDS);
        println!(
            "{nodes:>8}  {:>6.1} ns  {:>6.1} ns  {:.2}",
            nanos(queue),
            nanos(heap),
            heap.as_secs_f64() / queue.as_secs_f64()
        );
    }
    println!(
        "\na tree of hosts: {} B a node and {} B a waiting frame, against {} B a waiting frame",
        2 * size_of::<(Time, NodeId)>(),
        size_of::<Frame>(),
        size_of::<Entry>()
    );
    println!(
        "{:>8}  {:>14}  {:>14}  ratio",
        "hosts", "simulator", "plain heap"
    );
    for racks in [1, 8, 64] {
        let fabric = tree(racks);
        let (mut events, mut longest) = (0, Vec::new());
        let ours = best(|| {
            let mut run = fabric.start(1);
            run.run(Time::NEVER, &mut ());
            events = run.events();
            longest = run.flows().iter().map(|flow| flow.longest).collect();
        });
        let mut plain_longest = Vec::new();
        let plain = best(|| plain_longest = plain_loop(&fabric));
        // Frames that arrive at the same time may be served in another order.
        let sum = |times: &[Time]| times.iter().map(|time| time.0 as f64).sum::<f64>();
        let apart = sum(&longest) / sum(&plain_longest) - 1.0;
        assert!(
            apart.abs() < 0.01,
            "two simulations of one network differ by {apart}"
        );
        let rate = |time: Duration| events as f64 / time.as_secs_f64() / 1e6;
        println!(
            "{:>8}  {:>10.2} M/s  {:>10.2} M/s  {:.2}",
            racks * HOSTS,
            rate(ours),
            rate(plain),
            plain.as_secs_f64() / ours.as_secs_f64()
        );
    }
}

fn best(mut job: impl FnMut()) -> Duration {
    let time = |()| {
        let start = Instant::now();
        job();
        start.elapsed()
    };
    let times = [(); RUNS].map(time);
    times.into_iter().min().unwrap_or_default()
}

const HOLDS: u32 = 2_000_000;

/// Returns the time until a node's next event: zero, or up to some microseconds.
fn later(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    match *state & 3 {
        0 => 0,
        1 => (*state >> 8) % 2_000,
        2 => 1_200_000,
        _ => (*state >> 8) % 4_000_000,
    }
}

fn hold_tournament(nodes: u32) {
    let mut state = 1;
    let mut queue = TournamentQueue::new(nodes as usize);
    (0..nodes).for_each(|node| queue.set(NodeId(node), Time(later(&mut state))));
    for _ in 0..HOLDS {
        let (time, node) = queue.first();
        queue.set(node, Time(time.0 + later(&mut state)));
    }
    black_box(queue.first());
}

fn hold_heap(nodes: u32) {
    let mut state = 1;
    let mut heap: BinaryHeap<_> = (0..nodes)
        .map(|node| Reverse((later(&mut state), node)))
        .collect();
    for _ in 0..HOLDS {
        if let Some(Reverse((time, node))) = heap.pop() {
            heap.push(Reverse((time + later(&mut state), node)));
        }
    }
    black_box(heap.peek());
}

/// Hosts in a rack.
const HOSTS: usize = 16;

/// Returns racks of hosts below one core; each host sends to another one at half of its link, with
/// bursts.
fn tree(racks: usize) -> Fabric {
    let port = |gbit: u64| PortConfig {
        rate: Rate::from_mbit(gbit * 1_000),
        latency: Nanos::ZERO,
        propagation: Nanos::ZERO,
        buffer: [None; CLASSES],
    };
    let hosts = racks * HOSTS;
    // Hosts up, hosts down, racks up, racks down.
    let mut ports = vec![port(10); 2 * hosts];
    ports.extend(vec![port(100); 2 * racks]);
    let flow = |host: usize| {
        let to = (host * 7 + 5) % hosts;
        let path = if host / HOSTS == to / HOSTS {
            vec![host, hosts + to]
        } else {
            let (up, down) = (host / HOSTS, racks + to / HOSTS);
            vec![host, 2 * hosts + up, 2 * hosts + down, hosts + to]
        };
        FlowConfig {
            source: SourceConfig {
                envelope: Envelope {
                    rate: Rate::from_mbit(4_000),
                    burst: Bytes(50_000),
                    burst_rate: None,
                    frame: Bytes(1_538),
                },
                pattern: Pattern::Greedy,
                // Simultaneous starts would be no test of the queue.
                start: Time(host as u64 * 104_729),
                stop: Time(host as u64 * 104_729 + 4_000_000_000 / racks as u64),
                class: 0,
            },
            path,
        }
    };
    Fabric {
        ports,
        flows: (0..hosts).map(flow).collect(),
    }
}

/// An event of the plain loop: a frame arrives at a port of its path, or a sender sends.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Send(usize),
    Arrive {
        hop: usize,
        flow: usize,
        size: Bytes,
        sent: Time,
    },
}

/// An event in the heap: time, number, event.
type Entry = Reverse<(Time, u64, Event)>;

/// Runs the same network with a plain loop: every frame in flight is an event in a heap, ties in
/// the order of creation; no classes, buffers or statistics.
fn plain_loop(fabric: &Fabric) -> Vec<Time> {
    let mut sources: Vec<_> = (fabric.flows.iter().enumerate())
        .map(|(index, flow)| Source::new(flow.source, index as u32, 0, 0))
        .collect();
    let mut wires: Vec<_> = fabric
        .ports
        .iter()
        .map(|port| Wire::new(port.rate))
        .collect();
    let mut longest = vec![Time::ZERO; sources.len()];
    let mut heap: BinaryHeap<Entry> = BinaryHeap::new();
    let mut number = 0_u64;
    for (index, source) in sources.iter().enumerate() {
        heap.push(Reverse((source.poll_at(), number, Event::Send(index))));
        number += 1;
    }
    let mut out = Vec::new();
    let mut due: VecDeque<Event> = VecDeque::new();
    while let Some(Reverse((now, _, event))) = heap.pop() {
        due.push_back(event);
        while let Some(event) = due.pop_front() {
            match event {
                Event::Send(index) => {
                    sources[index].poll(now, &mut out);
                    due.extend(out.drain(..).map(|frame| Event::Arrive {
                        hop: 0,
                        flow: index,
                        size: frame.size,
                        sent: now,
                    }));
                    let next = sources[index].poll_at();
                    if next < Time::NEVER {
                        heap.push(Reverse((next, number, Event::Send(index))));
                        number += 1;
                    }
                }
                Event::Arrive {
                    hop,
                    flow,
                    size,
                    sent,
                } => {
                    let Some(port) = fabric.flows[flow].path.get(hop) else {
                        longest[flow] = longest[flow].max(now - sent);
                        continue;
                    };
                    let end = wires[*port].send(now, size);
                    let next = Event::Arrive {
                        hop: hop + 1,
                        flow,
                        size,
                        sent,
                    };
                    heap.push(Reverse((end, number, next)));
                    number += 1;
                }
            }
        }
    }
    longest
}

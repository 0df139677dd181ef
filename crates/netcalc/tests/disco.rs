//! Our bounds against those of the Disco Deterministic Network Calculator, on a committed set of
//! networks (`tools/disco/make.py` makes it, with Disco's values in it).

use serde::Deserialize;
use tailbound_netcalc::{Flow, FlowBounds, Network, Port};
use tailbound_units::{Bytes, Nanos, Rate};

#[derive(Deserialize)]
struct Line {
    name: String,
    /// Mbit/s and microseconds.
    ports: Vec<(u64, u64)>,
    /// Mbit/s, bytes, and the ports.
    flows: Vec<(u64, u64, Vec<usize>)>,
    /// Nanoseconds: FIFO TFA and SFA; TFA, SFA and PMOO for any order.
    disco: Vec<[u64; 5]>,
}

fn set() -> Vec<Line> {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../experiments/networks/disco.jsonl"
    );
    let text = std::fs::read_to_string(path).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    lines.collect()
}

/// The delays of all flows, in nanoseconds, rounded up.
fn ours(line: &Line) -> Vec<u64> {
    // Fluid, and servers may be faster than they promise, as in that tool.
    let mut network = Network::new(Bytes(0), false);
    let ports: Vec<_> = (line.ports.iter().enumerate())
        .map(|(index, &(rate, latency))| {
            network.add_port(Port {
                name: index.to_string(),
                rate: Rate::from_mbit(rate),
                latency: Nanos::from_micros(latency),
                buffer: None,
            })
        })
        .collect();
    for (index, (rate, burst, path)) in line.flows.iter().enumerate() {
        network.add_flow(Flow {
            name: index.to_string(),
            path: path.iter().map(|port| ports[*port]).collect(),
            rate: Rate::from_mbit(*rate),
            burst: Bytes(*burst),
            burst_rate: None,
            priority: 0,
            deadline: None,
        });
    }
    let bounds = network.bounds().unwrap();
    let delays = bounds.flows.iter().map(FlowBounds::delay);
    delays.map(|delay| delay.to_nanos().unwrap().0).collect()
}

/// No bound is below what a flow may take: all its latencies, and its burst at its slowest port.
fn at_least(line: &Line, flow: usize) -> u64 {
    let (_, burst, path) = &line.flows[flow];
    let latencies: u64 = path.iter().map(|port| line.ports[*port].1).sum();
    let slowest = path.iter().map(|port| line.ports[*port].0).min().unwrap();
    latencies * 1_000 + burst * 8_000 / slowest
}

#[test]
fn bounds_are_as_tight_as_discos() {
    let mut ratios = Vec::new();
    let mut worst = (0.0, String::new());
    let set = set();
    assert_eq!(set.len(), 300);
    for line in &set {
        for (index, (ours, disco)) in ours(line).into_iter().zip(&line.disco).enumerate() {
            assert!(ours >= at_least(line, index), "{} flow {index}", line.name);
            let best = disco.iter().min().unwrap();
            let ratio = ours as f64 / *best as f64;
            if ratio > worst.0 {
                worst = (ratio, format!("{} flow {index}", line.name));
            }
            ratios.push(ratio);
        }
    }
    ratios.sort_by(f64::total_cmp);
    let share = |share: f64| ratios[(share * ratios.len() as f64) as usize];
    let (median, ninety) = (share(0.5), share(0.9));
    println!(
        "{} flows: ours is {:.3} to {:.3} of the best of Disco's, {median:.3} at the median, \
         {ninety:.3} at the 90th percentile; the worst is {}",
        ratios.len(),
        ratios[0],
        worst.0,
        worst.1
    );
    assert!(median <= 1.05, "{median}");
    assert!(ninety <= 1.3, "{ninety}");
}

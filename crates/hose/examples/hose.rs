//! Cost of an interval of the hose model for one host: `cargo run --release -p tailbound-hose
//! --example hose`.
//!
//! One machine here receives from, and sends to, a machine on each of N other
//! hosts, all backlogged. The other hosts run too, and are not timed.

use std::collections::HashMap;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tailbound_hose::{
    Address, ClassesCode, Destination, Epoch, FlowKey, GuestId, HoseConfig, HoseState, HostId,
    KeyEpoch, Machine, PairKeys, Secret, Station, TimeOfDay, Usage,
};
use tailbound_units::{Bytes, Nanos, Rate};

const INTERVAL: Nanos = Nanos::from_millis(1);
const STEP: Nanos = Nanos::from_micros(50);
/// Intervals that are timed.
const INTERVALS: u64 = 200;

fn name(host: usize) -> String {
    format!("host-{host}")
}

fn id(host: usize) -> HostId {
    HostId::of(&name(host))
}

fn address(host: usize) -> Address {
    Address(0xffff_0a00_0000 + host as u128)
}

fn station(host: usize) -> Station {
    let [high, low] = (host as u16).to_be_bytes();
    Station::new([2, 0, 0, 0, high, low]).expect("it is no group's")
}

fn host(index: usize, count: usize) -> HoseState {
    let config = HoseConfig {
        host: id(index),
        classes: ClassesCode::NONE,
        epoch: Epoch(1),
        interval: INTERVAL,
        commitment: Nanos::ZERO,
        peers: (0..count).filter(|i| *i != index).map(id).collect(),
    };
    let mut state = HoseState::new(Nanos::ZERO, config);
    let secret = Secret::new(&[7; 32]).expect("it is long enough");
    let keys = (0..count).map(|other| {
        let key = secret.pair_key(KeyEpoch::OWN, &name(index), &name(other));
        (id(other), Arc::new(PairKeys::own(key)))
    });
    let mut keys: HashMap<_, _> = keys.collect();
    state.set_keys(Nanos::ZERO, |host| keys.remove(&host));
    let machine = Machine {
        guest: GuestId(0),
        name: format!("acme/web/{index}"),
        station: Some(station(index)),
        addresses: vec![address(index)],
        bandwidth: Rate::from_mbit(1000),
        burst: Bytes(15_000),
        inward: None,
        tenant_machines: count as u32,
    };
    state.set_machines(Nanos::ZERO, vec![machine]);
    state
}

fn main() {
    println!("pairs each way   us an interval   us a pair each way   datagrams out an interval");
    for peers in [1, 10, 50, 200] {
        let count = peers + 1;
        // The hub knows all; the others only it, which is all that they use.
        let mut hosts: Vec<_> = (0..count).map(|index| host(index, count)).collect();
        let places: HashMap<_, _> = (0..count).map(|index| (id(index), index)).collect();
        let mut flying: Vec<(usize, Vec<u8>)> = Vec::new();
        let mut costs: Vec<Duration> = Vec::new();
        let mut sent = 0;
        let warm = Nanos::from_millis(50);
        let end = warm + Nanos(INTERVAL.0 * INTERVALS);
        let mut now = Nanos::ZERO;
        while now < end {
            now += STEP;
            if now > warm && now.since(STEP).0.is_multiple_of(INTERVAL.0) {
                costs.push(Duration::ZERO);
            }
            let arriving = std::mem::take(&mut flying);
            for (to, datagram) in &arriving {
                if *to != 0 {
                    let _ = hosts[*to].handle_datagram(now, TimeOfDay(1), datagram);
                }
            }
            for (index, state) in hosts.iter_mut().enumerate() {
                let start = Instant::now();
                if index == 0 {
                    for (_, datagram) in arriving.iter().filter(|(to, _)| *to == 0) {
                        let _ = state.handle_datagram(now, TimeOfDay(1), datagram);
                    }
                }
                if now.0.is_multiple_of(INTERVAL.0) {
                    let to = if index == 0 { 1..count } else { 0..1 };
                    for to in to {
                        let flow = FlowKey {
                            guest: GuestId(0),
                            destination: Destination::Station(station(to)),
                        };
                        let usage = Usage {
                            taken: Bytes(1538),
                            lacks: Bytes(1538),
                            waiting: true,
                            queued: Bytes(1538),
                        };
                        state.handle_usage(now, flow, usage);
                    }
                    state.handle_sample_end(now);
                }
                state.poll_datagrams(now, TimeOfDay(1), |to, datagram| {
                    // Others need not hear each other.
                    if index == 0 || to == id(0) {
                        flying.push((places[&to], datagram.to_vec()));
                    }
                });
                state.poll_changes().for_each(|change| {
                    black_box(change);
                });
                if index == 0 && now > warm {
                    *costs.last_mut().expect("an interval has begun") += start.elapsed();
                }
            }
            if now > warm {
                sent += flying.iter().filter(|(to, _)| *to != 0).count();
            }
        }
        // The median: other programs take the CPU in some.
        costs.sort_unstable();
        let micros = costs[costs.len() / 2].as_secs_f64() * 1e6;
        println!(
            "{peers:14} {micros:16.1} {:20.2} {:27.1}",
            micros / peers as f64,
            sent as f64 / INTERVALS as f64
        );
    }
}
